"""Programs run as their users run them: by pytest, with arguments, as modules, with helpers and other processes."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_cli import mgpu_fix
from test_observe_live import HEAD, observe

from mgpu_fix.observe import Command, Observer, Program

pytestmark = pytest.mark.live

KERNEL = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def {0}(x_ref, o_ref):
    return x_ref[...] * 2


kernel = pl.kernel({0}, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
if __name__ == "__main__":
    raise SystemExit("{0} is imported here")
"""
FIXED = KERNEL.replace("return x_ref", "o_ref[...] = x_ref")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def state(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def report(folder: Path, *args: str) -> tuple[int, dict[str, dict[str, Any]]]:
    ran = mgpu_fix(*args, "--output-format", "json", cwd=folder)
    assert ran.stdout, ran.stderr
    return ran.returncode, {f["path"]: f for f in json.loads(ran.stdout)["files"]}


def reasons(file: dict[str, Any]) -> str:
    return " ".join([file["reason"], *(r["reason"] for r in file["remaining"])])


TESTS = """\
import inspect, unittest
import numpy as np
import pytest
import good, wrong, named, marked, deep

def run(kernel, x):
    return kernel(x)

def test_good(x, tmp_path, cache):
    cache.set("seen", 1)
    (tmp_path / "seen").touch()
    y = good.kernel(x)
    assert y[3] == 6 and y[2] == 4, "rewritten"

def test_that_contradicts_the_meaning(x):
    assert wrong.kernel(x)[3] == 7

def test_that_the_fix_breaks(x):
    assert named.kernel(x)[3] == 6
    assert "return x_ref" in inspect.getsource(named.named)

@pytest.mark.xfail(raises=ValueError, strict=True)
def test_marked(x):
    marked.kernel(x)

def test_deep(x):
    with pytest.raises(ValueError, match="None"):
        run(deep.kernel, x)
    pytest.raises(ValueError, deep.kernel, x)

class TestOfUnittest(unittest.TestCase):
    def test_that_fails_by_itself(self):
        self.assertEqual(1, 2)
"""


def test_pytest_runs_once_for_all_files_and_its_tests_decide(tmp_path: Path) -> None:
    names = ("good", "wrong", "named", "marked", "deep")
    conftest = "import numpy as np, pytest\n@pytest.fixture\ndef x():\n    return np.arange(128, dtype=np.float32)\n"
    settings = "[pytest]\naddopts = -n 2\npythonpath = .\n"
    write(tmp_path, {f"{name}.py": KERNEL.format(name) for name in names})
    write(tmp_path, {"tests/conftest.py": conftest, "tests/test_k.py": TESTS, "pytest.ini": settings})
    # What an earlier run of the user's leaves behind is neither read nor changed.
    plain = [sys.executable, "-m", "pytest", "-q", "-n", "0"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(plain, cwd=tmp_path, capture_output=True, check=False, env=environment)
    before = state(tmp_path)
    assert any(".pytest_cache" in p for p in before) and any(p.endswith(".pyc") for p in before)

    code, files = report(tmp_path, "apply", "--run", "pytest tests", *(f"{name}.py" for name in names))
    assert code == 1
    assert {n: f["status"] for n, f in files.items()} == {
        "good.py": "fixed",
        "wrong.py": "unfixed",
        "named.py": "unfixed",
        "marked.py": "clean",
        "deep.py": "clean",
    }
    assert "the program's own check fails with it: tests/test_k.py::test_that_contradicts" in reasons(files["wrong.py"])
    assert "test_that_the_fix_breaks then fails: AssertionError" in reasons(files["named.py"])
    # What is told of the program is told of the first file.
    assert "2 tests fail, first (of 6): tests/test_k.py::test_that_contradicts" in files["good.py"]["reason"]
    assert (files["good.py"]["exit_code"], files["good.py"]["stopped"]) == (1, True)
    assert [k["name"] for k in files["deep.py"]["kernels"]] == ["deep"]
    after = state(tmp_path)
    changed = {Path(p).name for p in before | after if before.get(p) != after.get(p)}
    assert changed == {"good.py"}
    assert (tmp_path / "good.py").read_text() == FIXED.format("good")


def test_a_kernel_in_a_test_module_is_fixed_under_assertion_rewriting(tmp_path: Path) -> None:
    text = KERNEL.format("double") + "def test_it():\n    y = kernel(jnp.ones(128))\n    assert y[3] == 2, y\n"
    write(tmp_path, {"test_it.py": text})
    code, files = report(tmp_path, "apply", "--run", "python -m pytest test_it.py", "test_it.py")
    assert (code, files["test_it.py"]["status"], files["test_it.py"]["reason"]) == (0, "fixed", "")
    assert os.listdir(tmp_path) == ["test_it.py"]


MAIN = """\
import argparse, os, sys
import __main__
from .parts import helper
assert __spec__.name == "pkg.train.__main__" and __package__ == "pkg.train" and __main__.argparse is argparse
assert sys.argv[0] == __file__ and sys.path[0] == os.getcwd()
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
x = helper.jnp.ones(128)
for _ in range(parser.parse_args().steps):
    x = helper.kernel(x)
assert x[3] == 4
"""


def test_a_module_with_arguments_whose_kernel_lies_in_a_helper(tmp_path: Path) -> None:
    main, helper = "pkg/train/__main__.py", "pkg/train/parts/helper.py"
    write(tmp_path, {"pkg/__init__.py": "", "pkg/train/__init__.py": "", main: MAIN, helper: KERNEL.format("double")})
    before = state(tmp_path)
    code, files = report(tmp_path, "apply", "-m", "pkg.train --steps 2", main)
    assert (code, files[main]["status"]) == (1, "unfixed")
    [left] = files[main]["remaining"]
    assert (left["path"], left["line"]) == (helper, 8)
    assert left["reason"].endswith("which was not named")
    assert state(tmp_path) == before

    code, files = report(tmp_path, "apply", "--run", "python -m pkg.train --steps 2", main, helper)
    assert (code, files[main]["status"], files[helper]["status"]) == (0, "clean", "fixed")
    assert (tmp_path / helper).read_text() == FIXED.format("double")
    assert [p for p in tmp_path.rglob("*") if p.suffix == ".pyc"] == []


def test_a_script_with_arguments_and_unittests(tmp_path: Path) -> None:
    text = """\
import os, sys, unittest
import one, two, three
class Case(unittest.TestCase):
    def test_one(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(one.kernel(one.jnp.arange(128.))[i], 2 * i)
    def test_two(self):
        self.assertEqual(two.kernel(two.jnp.arange(128.))[3], 7)
    @unittest.expectedFailure
    def test_three(self):
        three.kernel(three.jnp.arange(128.))
    def test_itself(self):
        self.assertEqual(os.environ["SIZE"], "3")
        self.fail("not yet")
assert sys.argv == ["main.py", "-v"]
unittest.main()
"""
    write(tmp_path, {"main.py": text, **{f"{n}.py": KERNEL.format(n) for n in ("one", "two", "three")}})
    code, files = report(tmp_path, "apply", "--run", "SIZE=3 python main.py -v", "one.py", "two.py", "three.py")
    assert code == 1
    assert [f["status"] for f in files.values()] == ["fixed", "unfixed", "clean"]
    assert "Case.test_two: AssertionError" in reasons(files["two.py"])
    told = "2 tests fail, first (of 4): __main__.Case.test_itself: AssertionError: not yet (main.py:15)"
    assert files["one.py"]["reason"] == told


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["-m", "nowhere"], "there is no module nowhere to run"),
        (["-m", "pkg"], "there is no module pkg.__main__ to run"),
        (
            ["--run", "python -c 'import kernel'"],
            "no kernel is called; seen: double (line 7). Run something that calls",
        ),
        (["--run", "python -c 'import broken'"], "SyntaxError"),
        (["--run", "pytest nowhere"], "ERROR: file or directory not found: nowhere"),
        (["--run", "pytest test_none.py"], "pytest finds no test to run"),
        (
            ["--run", "pytest test_missing.py"],
            "test_missing.py does not load: ModuleNotFoundError: No module named 'no",
        ),
        (["--run", "python -c 'import sys'"], "the program does not load it"),
    ],
)
def test_a_command_that_shows_nothing_is_blocked_with_the_reason(args: list[str], reason: str, tmp_path: Path) -> None:
    files = {"pkg/__init__.py": "", "broken.py": "def f(:\n", "test_none.py": "", "test_missing.py": "import nowhere\n"}
    write(tmp_path, {**files, "kernel.py": KERNEL.format("double")})
    before = state(tmp_path)
    ran = mgpu_fix("apply", *args, "kernel.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stdout.startswith("kernel.py: blocked: ")
    assert reason in ran.stdout.splitlines()[0]
    assert state(tmp_path) == before


#: each asserts its own numbers, so that a status of "ok" means that they were right
PROGRAMS = {
    "x64": """
jax.config.update("jax_enable_x64", True)
@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float64), mesh=plgpu.Mesh())
def wide(x_ref, o_ref):
    return x_ref[...] * 2
assert wide(jnp.arange(128.))[3] == 6""",
    "asks for a GPU": """
from jax.extend.backend import get_backend
if jax.default_backend() != "gpu": sys.exit("no GPU")
assert get_backend().platform == "gpu" and x.devices().pop().platform == "gpu"
assert double(x)[3] == 6""",
    "new_ref": """
@pl.kernel(out_type=(), mesh=plgpu.Mesh())
def inplace(x_ref):
    x_ref[...] = x_ref[...] * 2
ref = jax.new_ref(x)
assert double(ref)[3] == 6
inplace(ref)
assert double(jax.freeze(ref))[3] == 12""",
    "daemon thread": """
import threading
threading.Thread(target=double, args=(x,), daemon=True).start()
import time; time.sleep(0.01)""",
    "grad": """
@jax.custom_vjp
def f(x): return double(x)
f.defvjp(lambda x: (f(x), None), lambda r, g: (double(g),))
assert jax.grad(lambda x: jax.checkpoint(f)(x).sum())(x)[3] == 2
assert jax.vmap(jax.grad(lambda x: f(x).sum()))(jnp.stack([x, x]))[1, 3] == 2""",
    "many calls": "for i in range(5000): y = double(x)\nassert y[3] == 6",
    "large array": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4096, 4096), jnp.float32), grid=(8,), grid_names=("i",))
def add(x_ref, o_ref):
    rows = pl.ds(lax.axis_index("i") * 512, 512)
    o_ref[rows, :] = x_ref[rows, :] + 1
assert add(jnp.ones((4096, 4096)))[4095, 0] == 2 and double(x)[3] == 6""",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_what_programs_do(observer: Observer, tmp_path: Path, text: str) -> None:
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.reason, seen.children) == ("ok", "", False), seen.output
    assert {f.type for f in seen.failures} == {"ValueError"}


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("input()", "stopped", "EOFError: EOF when reading a line; standard input is empty in a run"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('n')\np.parse_args()",
            "stopped",
            "it exits with 2; give it its arguments with --run 'python FILE ...'",
        ),
        ("import nowhere", "stopped", "ModuleNotFoundError: No module named 'nowhere'"),
        (
            "np.testing.assert_allclose(double(x), x)",
            "stopped",
            "AssertionError: Not equal to tolerance rtol=1e-07, atol=0",
        ),
    ],
)
def test_what_a_run_cannot_give_is_said(
    observer: Observer, tmp_path: Path, text: str, status: str, reason: str
) -> None:
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.reason) == (status, reason)
    assert seen.span is not None
    assert seen.span.path == os.path.realpath(tmp_path / "program.py")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("os.waitpid(os.fork() or os._exit(0), 0); double(x)", "ok"),
        ("if not (pid := os.fork()): double(x); sys.exit()\nassert os.waitpid(pid, 0)[1]; double(x)", "ok"),
        ("import subprocess; subprocess.run([sys.executable, '-c', '']); double(x)", "ok"),
        ("import subprocess; subprocess.run('true && python -c 1', shell=True); double(x)", "ok"),
        ("import subprocess; subprocess.run(['true']); double(x)", ""),
        (
            "import multiprocessing as m\nif __name__ == '__main__':\n    double(x)\n"
            "    with m.get_context('spawn').Pool(1) as p: assert p.map(abs, [-1]) == [1]",
            "ok",
        ),
        (
            "import multiprocessing as m\nwith m.get_context('fork').Pool(1) as p: p.map(double, [np.ones(128)])",
            "stopped",
        ),
    ],
)
def test_processes_of_the_programs_own_are_not_seen_and_that_is_said(
    observer: Observer, tmp_path: Path, text: str, status: str
) -> None:
    seen = observe(observer, tmp_path, text, timeout=30.0)
    assert seen.children == bool(status)
    assert seen.status == (status or "ok"), seen.output
    assert len(seen.failures) == (status != "stopped")


def test_a_declaration_that_is_expected_to_fail_fails(observer: Observer, tmp_path: Path) -> None:
    text = """
def declare(**named): return pl.kernel(lambda x, o: None, mesh=plgpu.Mesh(), **named)
kind = jax.ShapeDtypeStruct((128,), jnp.float32)
try:
    pl.kernel(lambda x, o: None, mesh=plgpu.Mesh(), out_shape=kind)
except TypeError:
    direct = True
import pytest
with pytest.raises(TypeError):
    declare(out_shape=kind)
assert direct"""
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.reason) == ("ok", ""), seen.output
    assert {f.caught for f in seen.failures} == {True}


def test_a_variable_that_comes_after_jax_changes_nothing(observer: Observer, tmp_path: Path) -> None:
    write(tmp_path, {"late.py": 'import jax\nimport os\nos.environ["JAX_ENABLE_X64"] = "1"\n'})
    before = observer.runs
    seen = observe(observer, tmp_path, "import late\nassert jnp.arange(3.).dtype == 'float32'; double(x)")
    assert (seen.status, observer.runs - before) == ("ok", 1)


def test_a_command_may_set_variables_and_code_is_run(observer: Observer, tmp_path: Path) -> None:
    code = (
        HEAD + "assert jnp.arange(3.).dtype == 'float64' and sys.argv == ['-c', 'a'] and sys.path[0] == ''; double(x)"
    )
    command = Command("code", code, ("a",), environment=(("JAX_ENABLE_X64", "1"), ("JAX_PLATFORMS", "cuda")))
    assert observer.observe(Program("", command)).status == "ok"


def test_a_script_that_gives_itself_to_pytest(observer: Observer, tmp_path: Path) -> None:
    text = """
def test_good(): assert double(x)[3] == 6
def test_wrong(): assert double(x)[3] == 7
def test_itself(): assert not x.size
if __name__ == "__main__":
    import pytest
    sys.exit(pytest.main([__file__, "-n", "2"]))"""
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.exit_code) == ("stopped", 1), seen.output
    assert [(c.name.rpartition("/")[2], c.kernels) for c in seen.checks] == [
        ("program.py::test_wrong", ("double",)),
        ("program.py::test_itself", ()),
    ]
    assert not seen.children
    assert not list(tmp_path.rglob(".pytest_cache"))


def test_each_file_is_run_by_its_own_target(tmp_path: Path) -> None:
    calls = "import jax.numpy as jnp\nimport {0}\n\n\ndef test_it():\n    assert {0}.kernel(jnp.ones(128))[3] == 2\n"
    write(
        tmp_path,
        {
            "pyproject.toml": "[tool.mgpu-fix.targets]\n'[ab].py' = 'pytest -q tests'\n",
            **{f"{name}.py": KERNEL.format(name) for name in "ab"},
            **{f"tests/test_{name}.py": calls.format(name) for name in "ab"},
            "conftest.py": "",
            "c.py": KERNEL.format("c").partition("if __name__")[0] + "kernel(jnp.ones(128))\n",
        },
    )
    code, files = report(tmp_path, "apply", "a.py", "c.py", "b.py")
    assert code == 0, {name: reasons(file) for name, file in files.items()}
    assert {name: file["status"] for name, file in files.items()} == dict.fromkeys(["a.py", "b.py", "c.py"], "fixed")
    assert [(tmp_path / f"{name}.py").read_text() for name in "ab"] == [FIXED.format(name) for name in "ab"]
