"""What people and machines are told of a report."""

import json
from dataclasses import replace

import jsonschema
import pytest

from mgpu_fix.levels import Applicability, Oracle, VerifiedBy, weakest
from mgpu_fix.model import FileReport, Fix, ProvenKernel, Remaining, Report, Resources, Tried, from_json
from mgpu_fix.report import json as json_report
from mgpu_fix.report.text import TextReport

DIFF = "--- a/k.py\n+++ b/k.py\n@@ -1 +1 @@\n-old\n+new\n"
FIX = Fix(
    code="MGF401",
    name="kernel-returns-value",
    title="Store the returned value into `o_ref`",
    applicability=Applicability.SAFE,
    verified_by=VerifiedBy.INTERPRETER,
    path="k.py",
    kernel="double",
    line=8,
    column=5,
    diff=DIFF,
    tried=(Tried("Delete it", "double computes something else: 3, not 2"), Tried("Store it", "kept")),
)
LEFT = Remaining(
    code="MGF101",
    stage="lower",
    type="ValueError",
    message="Can only load scalars in warp-level code.\nmore",
    path="k.py",
    line=12,
    column=9,
    reason="no fix is built yet",
)
KERNEL = ProvenKernel(
    "double", 7, "run", VerifiedBy.INTERPRETER, "f32[128], your data + 1 random draw", oracle=Oracle.ORIGINAL
)
PARTIAL = FileReport("k.py", "partial", (KERNEL,), (FIX,), (LEFT,), DIFF)
REPORT = Report((PARTIAL,), "3.12.1", "0.12.0.1", "described sm_90a", 3, tool={"name": "mgpu-fix", "version": "0"})


def test_the_text_tells_what_failed_how_it_was_proven_and_what_remains() -> None:
    proof = (
        "f32[128], your data + 1 random draw; lowers for sm_90a; equal to the interpreter's run of what your original"
    )
    told = f"""\
k.py: 1 fixed, 1 left
  MGF401 kernel-returns-value, line 8, kernel double
    Store the returned value into `o_ref` [safe, proven by the interpreter's numbers]
    tried, not kept: Delete it: double computes something else: 3, not 2

{DIFF}
  proof double: {proof} means
  Proven at these shapes only, with JAX 0.12.0.1 in 3 runs of the program.
  left k.py:12:9: MGF101: no fix is built yet
    ValueError (lower): Can only load scalars in warp-level code.
"""
    assert TextReport().render(REPORT) == told


def test_colours_are_only_added() -> None:
    coloured = TextReport(colour=True).render(REPORT)
    assert "\x1b[32m+new\x1b[0m" in coloured
    plain = coloured
    for code in ("0", "1", "2", "31", "32", "33", "36"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == TextReport().render(REPORT)


def test_a_blocked_file_says_why_in_one_line() -> None:
    blocked = Report((FileReport("f.py", "blocked", reason="there is no such file"),))
    assert TextReport().render(blocked) == "f.py: blocked: there is no such file\n"


def test_what_is_not_yet_written_is_not_called_fixed() -> None:
    assert TextReport(applied=False).render(REPORT).startswith("k.py: 1 can be fixed, 1 left\n")


def test_json_keeps_its_schema_and_loses_nothing() -> None:
    data = json.loads(json_report.render(REPORT))
    jsonschema.validate(data, json_report.schema())
    assert from_json(Report, data) == REPORT


@pytest.mark.parametrize(
    ("verbose", "told"),
    [
        (False, "compiles for sm_100a; equal"),
        (True, "compiles for sm_100a (40 registers, 8 bytes spilled, 1024 bytes of shared memory); equal"),
    ],
)
def test_a_compiled_kernel_says_for_which_gpu_and_what_it_takes(verbose: bool, told: str) -> None:
    kernel = replace(KERNEL, resources=Resources("sm_100a", 40, 8, 1024))
    report = replace(REPORT, files=(replace(PARTIAL, kernels=(kernel,)),))
    text = TextReport(verbose=verbose).render(report)
    assert f"your data + 1 random draw; {told}" in text
    data = json.loads(json_report.render(report))
    jsonschema.validate(data, json_report.schema())
    assert from_json(Report, data) == report


def test_several_proofs_are_as_good_as_the_weakest() -> None:
    assert weakest([VerifiedBy.INTERPRETER, VerifiedBy.COMPILED]) is VerifiedBy.COMPILED
    assert weakest([VerifiedBy.INTERPRETER]) is VerifiedBy.INTERPRETER
    assert weakest([]) is VerifiedBy.LOWERED


def test_a_kernel_that_could_not_be_compiled_says_why() -> None:
    kernel = replace(KERNEL, uncompiled="it was not compiled within 60 s; --timeout gives it more")
    text = TextReport().render(replace(REPORT, files=(replace(PARTIAL, kernels=(kernel,)),)))
    assert "; lowers for sm_90a, but it was not compiled within 60 s; --timeout gives it more; equal to" in text
