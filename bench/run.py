"""How long mgpu-fix takes, as ratios to what nobody can do without; run from the repository with an environment active.

python bench/run.py [--pairs 15]
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mgpu_fix.catalogue import load
from mgpu_fix.model import Facts, Failure, Function, Param, Returned, Span, Tree
from mgpu_fix.observe import Observer
from mgpu_fix.source import SourceFile

ROOT = Path(__file__).parent.parent
CASE = ROOT / "golden" / "MGF401-kernel-returns-value" / "mesh_decorator" / "before.py"
SCRIPT = '\n\nif __name__ == "__main__":\n    print(jax.tree.leaves(kernel(*example_args()))[0])\n'


def seconds(command: list[str], **env: str) -> float:
    """Wall time of a command; its output is thrown away."""
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False, env={**os.environ, **env})
    return time.perf_counter() - start


def apply_ratio(pairs: int) -> None:
    """``apply`` on one failing kernel against plainly running the script up to its error, in alternating pairs."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "kernel.py")
        script.write_bytes(CASE.read_bytes() + SCRIPT.encode())
        plain, fixing = [], []
        for _ in range(pairs):
            plain.append(seconds([sys.executable, str(script)], JAX_PLATFORMS="cpu"))
            fixing.append(seconds([sys.executable, "-m", "mgpu_fix", "apply", "--check", str(script)]))
    print(f"apply, one failure: {min(fixing):.2f} s, plain run {min(plain):.2f} s: {min(fixing) / min(plain):.2f} x")


def compile_ratio(pairs: int) -> None:
    """``apply`` on one failing kernel that is compiled, against the same without a C compiler to do it with."""
    with Observer() as observer:
        if why := observer.machine.unable_to_compile("sm_90a"):
            print(f"apply, compiling: {why}")
            return
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "kernel.py")
        script.write_bytes(CASE.read_bytes() + SCRIPT.encode())
        command = [sys.executable, "-m", "mgpu_fix", "apply", "--check", str(script)]
        without, compiling = [], []
        for _ in range(pairs):
            without.append(seconds(command, PATH="", CC="", XDG_CACHE_HOME=folder))
            compiling.append(seconds(command))
    ratio = min(compiling) / min(without)
    print(f"apply, compiling: {min(compiling):.2f} s, not compiling {min(without):.2f} s: {ratio:.2f} x")


def editor() -> None:
    """From saving a broken kernel to its proven fix, in a warm language server; and listing what can be done."""
    sys.path.insert(0, str(ROOT / "tests"))
    from bare_client import client

    proven, listed = [], []
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "workspace")
        folder.mkdir()
        (folder / "kernel.py").write_bytes(CASE.read_bytes() + SCRIPT.encode())
        with client(folder, {"trust": True}) as server:
            server.open("kernel.py")
            server.until_idle()
            for _ in range(5):
                server.heard.clear()
                server.type("kernel.py", server.texts["kernel.py"] + "\n")
                start = time.perf_counter()
                server.save("kernel.py")
                server.until_idle()
                proven.append(time.perf_counter() - start)
                start = time.perf_counter()
                assert server.actions("kernel.py")[0]["isPreferred"]
                listed.append(time.perf_counter() - start)
    print(f"editor, warm: proven fix {min(proven):.2f} s after saving, list of actions {min(listed) * 1000:.1f} ms")


def help_cpu() -> None:
    """CPU time of ``--help``."""
    used = []
    for _ in range(5):
        before = os.times()
        seconds([sys.executable, "-m", "mgpu_fix", "--help"])
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    print(f"--help: {min(used) * 1000:.0f} ms of CPU")


def codemod_ratio() -> None:
    """One fix in a file of about 10,000 lines against ``ast.parse`` of it."""
    filler = "def helper_{0}(x, y=None):\n    z = x * {0}\n    if y is not None:\n        z += y\n    return z\n\n\n"
    kernel = "def body(x_ref, o_ref):\n    return x_ref[...] * 2\n\n\nk = pl.kernel(body, mesh=mesh)\n"
    header = "from jax.experimental import pallas as pl\n\n\n"
    half = "".join(filler.format(i) for i in range(715))
    data = (header + half + kernel + "\n\n" + half).encode()
    line = (header + half).count("\n") + 1
    body = Function("big.py", line, "body", "body")
    params = (Param("input", "x_ref", (128,), "float32"), Param("output", "o_ref", (128,), "float32"))
    returned = Returned("pl.kernel", body, params, Tree("leaf", shape=(128,), dtype="float32"))
    message = "The kernel function in mpmd_map body at big.py:1 should return None. It returns a PyTree: *."
    failure = Failure("ValueError", message, "trace", Span("big.py", line), "body", facts=Facts((returned,)))
    rule = load().find("MGF401")
    assert rule is not None

    def fix() -> None:
        source = SourceFile("big.py", data)
        [candidate, *_] = rule.candidates(failure, source)
        source.edited(candidate.edits)

    lines = data.count(b"\n")
    parse = min(_timed(lambda: ast.parse(data)) for _ in range(5))
    whole = min(_timed(fix) for _ in range(5))
    print(f"codemod, {lines} lines: {whole:.2f} s, ast.parse {parse:.2f} s: {whole / parse:.1f} x")


READ = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            f.read()
"""


def tree_ratio(pairs: int) -> None:
    """``upgrade`` over 5,000 files without Pallas, 8 kB on average, against a plain read of them all."""
    function = "def helper_{0}(x, y=None):\n    z = x * {0}\n    if y is not None:\n        z += y\n    return z\n\n\n"
    with tempfile.TemporaryDirectory() as folder:
        for i in range(5000):
            path = Path(folder, f"package{i // 100}", f"module{i}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(map(function.format, range(20 + i % 140))))
        read, upgrade = [], []
        for _ in range(pairs):
            read.append(seconds([sys.executable, "-c", READ, folder]))
            upgrade.append(seconds([sys.executable, "-m", "mgpu_fix", "upgrade", folder]))
    print(f"upgrade, 5,000 files: {min(upgrade):.2f} s, plain read {min(read):.2f} s: {min(upgrade) / min(read):.1f} x")


def _timed(work: object) -> float:
    assert callable(work)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    codemod_ratio()
    help_cpu()
    tree_ratio(arguments.pairs)
    apply_ratio(arguments.pairs)
    compile_ratio(arguments.pairs)
    editor()
