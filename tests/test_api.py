"""The Python API."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_repair_live import BROKEN, FIXED

import mgpu_fix


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, mgpu_fix; print([m for m in sys.modules if m.startswith(('mgpu_fix.', 'jax', 'libcst'))])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_all_that_is_promised_is_there() -> None:
    assert all(hasattr(mgpu_fix, name) for name in mgpu_fix.__all__)
    assert not hasattr(mgpu_fix, "nothing")


def test_explain_takes_a_code_a_name_and_an_error() -> None:
    error = "ValueError: The kernel function in mpmd_map f at k.py:3 should return None. It returns a PyTree: *."
    for query in ("MGF401", "kernel-returns-value\n", error):
        rule = mgpu_fix.explain(query)
        assert rule is not None
        assert rule.code == "MGF401"
        assert rule.meaning in rule.page
    assert mgpu_fix.explain("NameError: name 'x' is not defined") is None


def test_arguments_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(mgpu_fix.UsageError, match="needs --call"):
        mgpu_fix.apply("k.py", args=("f32[2]",))
    with pytest.raises(mgpu_fix.UsageError, match="no file"):
        mgpu_fix.check([])
    with pytest.raises(mgpu_fix.CatalogueError, match="MGF999"):
        mgpu_fix.check("k.py", options=mgpu_fix.Options(ignore=("MGF999",)))


@pytest.mark.live
def test_apply_and_check_tell_and_print_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(BROKEN)
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]

    [left] = mgpu_fix.check(script).files[0].remaining
    assert (left.code, left.line) == ("MGF401", 8)
    tried = mgpu_fix.apply(script, write=False).files[0]
    assert (tried.status, script.read_text()) == ("fixed", BROKEN)
    ignored = mgpu_fix.apply([str(script)], options=mgpu_fix.Options(ignore=("MGF401",))).files[0]
    assert (ignored.status, script.read_text()) == ("unfixed", BROKEN)
    done = mgpu_fix.apply([script]).files[0]
    assert (done.status, done.diff, script.read_text()) == ("fixed", tried.diff, FIXED)

    assert capfd.readouterr() == ("", "")
    # The caller's program goes on, and can still be interrupted.
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
