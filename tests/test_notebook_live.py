"""Notebooks that are run: ``apply`` on their files, and ``%load_ext mgpu_fix`` in a session."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import mgpu_fix
from test_documents import cell, dumped

pytestmark = pytest.mark.live

IMPORTS = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import helper"""
BODY = """\
def double(x_ref, o_ref):
    return x_ref[...] * 2  # é


kernel = pl.kernel(double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())"""
FIXED = BODY.replace("return x_ref", "o_ref[...] = x_ref")
CALL = "y = kernel(jnp.arange(128, dtype=jnp.float32))\ndisplay(y[:helper.three])\ny"


def notebook(*sources: str) -> str:
    cells = [cell(["return x_ref[...] * 2\n"], "markdown", id="text")]
    cells += [cell(source.splitlines(keepends=True), id=f"code-{i}") for i, source in enumerate(sources)]
    return dumped(*cells)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("three = 3\n")
    return tmp_path


def test_apply_changes_the_cell_and_no_other_byte(folder: Path) -> None:
    path = folder / "n.ipynb"
    before = notebook(f"%matplotlib inline\n{IMPORTS}", BODY, "%%bash\nexit 1", f"!ls\n{CALL}")
    path.write_text(before)
    diffed = mgpu_fix("apply", "--diff", "n.ipynb", cwd=folder)
    assert path.read_text() == before
    ran = mgpu_fix("apply", "n.ipynb", cwd=folder)
    assert ran.returncode == 0, ran.stdout
    assert "in cell 3 [safe, proven by" in ran.stdout
    assert "note: 1 left as they are: cell 4: its magic says that it is not Python" in ran.stdout
    after = path.read_text()
    assert after == notebook(f"%matplotlib inline\n{IMPORTS}", FIXED, "%%bash\nexit 1", f"!ls\n{CALL}")
    path.write_text(before)
    subprocess.run(["git", "apply", "-"], input=diffed.stdout, text=True, cwd=folder, check=True)
    assert path.read_text() == after
    assert mgpu_fix("apply", "n.ipynb", cwd=folder).stdout.startswith("n.ipynb: clean, 1 kernel call seen\n")


def test_lines_are_those_of_the_file(folder: Path) -> None:
    (folder / "n.ipynb").write_text(notebook(IMPORTS, BODY, CALL, "raise ValueError('mine')"))
    ran = mgpu_fix("check", "--output-format", "json", "n.ipynb", cwd=folder)
    [file] = json.loads(ran.stdout)["files"]
    rows = (folder / "n.ipynb").read_text().splitlines()
    [left] = file["remaining"]
    assert "return x_ref" in rows[left["line"] - 1]
    assert left["column"] is None
    assert left["reason"].startswith("in cell 3: a fix is known")
    assert (
        file["reason"]
        == f"the program stops: ValueError: mine (line {rows.index(next(r for r in rows if 'mine' in r)) + 1})"
    )


def test_a_notebook_without_pallas_is_not_run(folder: Path) -> None:
    (folder / "n.ipynb").write_text(notebook("open('ran', 'w')"))
    assert mgpu_fix("apply", "n.ipynb", cwd=folder).stdout == "n.ipynb: clean\n  note: it does not use Pallas\n"
    assert not (folder / "ran").exists()


def test_upgrade_proves_a_notebook_by_running_it(folder: Path) -> None:
    old = FIXED.replace("out_type", "out_shape")
    (folder / "n.ipynb").write_text(notebook(IMPORTS, old, CALL))
    (folder / "t.md").write_text(
        "```python\nfrom jax.experimental import pallas as pl\npl.kernel(f, out_shape=x)\n```\n"
    )
    ran = mgpu_fix("upgrade", "--run", "python n.ipynb", "n.ipynb", cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (folder / "n.ipynb").read_text() == notebook(IMPORTS, FIXED, CALL)


SESSION = """\
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
nexts = []
shell.set_next_input = lambda text, replace=False: nexts.append(text)
for text in json.load(sys.stdin):
    shell.run_cell(text, store_history=True)
print("NEXT", json.dumps(nexts))
"""


def session(folder: Path, *cells: str) -> tuple[str, list[str]]:
    """What a shell prints, and what it offers as the next cell."""
    ran = subprocess.run(
        [sys.executable, "-c", SESSION],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        cwd=folder,
        env={"HOME": str(folder), "PATH": "", "NO_COLOR": "1"},
        check=True,
    )
    said, _, nexts = ran.stdout.rpartition("NEXT ")
    return said, json.loads(nexts)


def test_a_cell_that_fails_is_followed_by_a_proven_replacement(folder: Path) -> None:
    said, nexts = session(folder, IMPORTS, "%load_ext mgpu_fix", "1 / 0", BODY, CALL)
    assert "mgpu-fix: MGF401 kernel-returns-value: A kernel body returns a value" in said
    assert "in cell 4 [safe, proven by the interpreter's numbers]" in said
    assert "--- a/In [4]\n+++ b/In [4]\n" in said
    assert "+    o_ref[...] = x_ref[...] * 2  # é\n" in said
    assert nexts == [FIXED]


def test_a_session_that_cannot_be_run_again_says_so(folder: Path) -> None:
    once = "import os\nos.mkdir('made')"
    said, nexts = session(folder, "%load_ext mgpu_fix", once, IMPORTS, f"{BODY}\n{CALL}")
    assert "mgpu-fix: MGF401 kernel-returns-value" in said
    assert "mgpu-fix: the session's cells were run anew: the program stops: FileExistsError" in said
    assert nexts == []


def test_other_errors_and_an_unloaded_extension_say_nothing(folder: Path) -> None:
    said, nexts = session(folder, IMPORTS, BODY, "%load_ext mgpu_fix", "1 / 0", "%unload_ext mgpu_fix", CALL)
    assert "mgpu-fix: " not in said
    assert nexts == []
