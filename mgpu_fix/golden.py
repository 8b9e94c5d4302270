"""Goldens: the numbers of a healthy run, kept beside a program, that later runs are held against.

A golden is an ``.npz`` file, ``golden/NAME.npz`` beside ``NAME.py``: what came out of each kernel call, in arrays named
``NUMBER.DTYPE``, and ``golden.json``, which says of each call what kernel, shapes and inputs (a digest of their bytes)
they belong to, and how they were made. Nothing in it is pickled; :func:`numpy.load` reads it.
"""

import functools
import io
import itertools
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_fix import verify
from mgpu_fix.levels import Oracle
from mgpu_fix.model import KernelCall, Numbers, Observation, Remaining

FOLDER = "golden"
_HEAD = "golden.json"
_FORMAT = 1
_ARRAY = re.compile(r"\d{5,}\.\w+\.npy")
#: members carry no date, so that the same numbers are the same bytes
_NO_DATE = (1980, 1, 1, 0, 0, 0)


class GoldenError(Exception):
    """A golden that cannot be read; the message says what to do."""


@dataclass(frozen=True)
class Draft:
    """What can be recorded of a run: ``calls``, with what each is true by. ``left`` are the labels of calls that cannot
    be, with why; ``refused`` is why nothing should be."""

    calls: tuple[tuple[KernelCall, Oracle], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    refused: str = ""


def place(program: str, folder: str = "") -> Path:
    """Where the golden of a program lies: in ``folder``, else in ``golden/`` beside it."""
    path = Path(program)
    return Path(folder or path.parent / FOLDER, f"{path.stem}.npz")


def draft(first: Observation, again: Observation, compare: verify.Compare) -> Draft:
    """What of ``again`` can be recorded, a second run of the program of which ``first`` was the first."""
    if first.failures:
        failure = first.failures[0]
        return Draft(refused=f"{failure.kernel or 'it'} fails ({failure.type}); mgpu-fix apply comes first")
    for run in (first, again):
        if run.status != "ok":
            return Draft(refused=f"the program does not come to its end: {run.reason or run.status}")
    stray = next(iter(verify.strays(again, compare)), None)
    if stray:
        return Draft(refused=stray.lost)
    verdicts = {id(v.after): v for v in verify.judge(first, again, compare)}
    calls, left = [], []
    for call in again.calls:
        verdict = verdicts[id(call)]
        doubt = verify.doubt(call) or ("two runs of it differ" if verify.races(call) else "")
        empty = verdict.hollow or call.unwritten
        if verdict.lost or doubt or empty:
            why = verdict.lost or doubt or "it has an output that nothing writes to"
            return Draft(refused=f"{call.name} gives no numbers to rely on: {why}")
        if call.batched:
            continue
        if verdict.agrees:
            calls.append((call, verdict.oracle))
        else:
            left.append((call.label, verdict.why))
    return Draft(tuple(calls), tuple(left))


def dump(drafted: Draft, run: Observation, how: Mapping[str, Any], tolerance: verify.Tolerance) -> bytes:
    """The bytes of a golden; ``run`` is the run whose folder holds the arrays, ``how`` tells what made it."""
    out = io.BytesIO()
    entries: list[dict[str, Any]] = []
    count = itertools.count(1)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes | str) -> None:
            archive.writestr(zipfile.ZipInfo(name, _NO_DATE), data, zipfile.ZIP_DEFLATED)

        def kept(names: Sequence[str]) -> list[str]:
            paths = [Path(run.folder, name) for name in names]
            members = [f"{next(count):05d}.{path.name.split('.')[1]}.npy" for path in paths]
            for member, path in zip(members, paths, strict=True):
                add(member, path.read_bytes())
            return members

        for call, oracle in drafted.calls:
            numbers = [
                {"inputs": n.inputs, "outputs": kept(n.outputs), "draw": kept(n.draw)}
                for n in call.numbers
                if n.state == "known"
            ]
            kernel = {"kernel": call.name, "entry": call.entry, "operands": call.avals, "results": call.outputs}
            entries.append({**kernel, "truth": oracle, "numbers": numbers})
        head = {"format": _FORMAT, **how, "tolerance": tolerance, "calls": entries}
        add(_HEAD, json.dumps(head, indent=1) + "\n")
    return out.getvalue()


def load(path: Path, folder: Path, rtol: float | None, atol: float | None) -> verify.Golden:
    """A golden, its arrays unpacked into ``folder``, to be compared within ``rtol`` and ``atol`` or else as it says.

    Raises GoldenError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read(_HEAD))
            if head["format"] != _FORMAT:
                raise GoldenError(f"{path} is of format {head['format']}; this mgpu-fix reads {_FORMAT}")
            calls = tuple(map(_call, head["calls"]))
            folder.mkdir(parents=True, exist_ok=True)
            for name in (name for c in calls for n in c.numbers for name in (*n.outputs, *n.draw)):
                if not _ARRAY.fullmatch(name):
                    raise ValueError(f"no array is called {name!r}")
                (folder / name).write_bytes(archive.read(name))
            usual = {str(dtype): (float(r), float(a)) for dtype, (r, a) in head["tolerance"].items()}
    except (zipfile.BadZipFile, OSError, KeyError, TypeError, ValueError, AttributeError) as e:
        what = f"{path} cannot be read as a golden ({type(e).__name__}: {e})"
        raise GoldenError(f"{what}; mgpu-fix golden record makes it anew") from None
    truth = Observation("ok", calls, folder=str(folder), jax=str(head.get("jax", "")))
    return verify.Golden(truth, functools.partial(verify.compare_files, tolerance=verify.tolerance(rtol, atol, usual)))


def _call(entry: Mapping[str, Any]) -> KernelCall:
    numbers = tuple(Numbers("known", str(n["inputs"]), tuple(n["outputs"]), tuple(n["draw"])) for n in entry["numbers"])
    operands, results = tuple(entry["operands"]), tuple(entry["results"])
    return KernelCall(entry["kernel"], entry["entry"], None, operands, results, "run", numbers)


def gaps(run: Observation, golden: verify.Golden) -> list[Remaining]:
    """Calls of a run that its golden does not hold, or for other inputs, and those that it holds and the run does not
    make."""
    recorded = verify.recorded(run, golden.truth)
    found = []
    for call in run.calls:
        known = {n.inputs for n in verify.known_numbers(call)}
        if not known or call.failures:
            continue
        twin = recorded.get(id(call))
        if twin is not None and not known & {n.inputs for n in twin.numbers}:
            message, again = f"{call.label} gets other inputs than were recorded", "golden record takes them"
            path, line = (call.span.path, call.span.line) if call.span else ("", None)
            found.append(Remaining(None, "compare", "OtherInputs", message, path, line, None, again, call.name))
        elif twin is None:
            path, line = (call.span.path, call.span.line) if call.span else ("", None)
            message, again = f"{call.label} is not recorded", "golden record adds it"
            found.append(Remaining(None, "compare", "NotRecorded", message, path, line, None, again, call.name))
    held = {id(call) for call in recorded.values()}
    for call in (c for c in golden.truth.calls if id(c) not in held):
        message, again = f"{call.label} is recorded, and not called so often any more", "golden record leaves it out"
        found.append(Remaining(None, "compare", "NotCalled", message, "", None, None, again, call.name))
    return found
