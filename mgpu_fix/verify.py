"""How a kernel call of one run compares with the same call of another: stages, inputs, numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mgpu_fix.arrays import load
from mgpu_fix.model import STAGES, WAITS, KernelCall, Numbers, Observation

if TYPE_CHECKING:
    import numpy as np

#: relative and absolute tolerance by dtype; what is not named must be equal bit for bit
TOLERANCE = {
    "float64": (1e-12, 1e-14),
    "float32": (1e-5, 1e-6),
    "float16": (2e-3, 1e-4),
    "bfloat16": (1.6e-2, 1e-3),
}

#: says how the outputs in two lists of array files differ, None where they agree
Compare: TypeAlias = Callable[[Sequence[Path], Sequence[Path]], str | None]

#: what :func:`compare_files` says of outputs that agree and were never written
HOLLOW = "nothing but uninitialised memory"


@dataclass(frozen=True)
class CallVerdict:
    """A call before and after. ``agrees`` is None where no numbers can be compared, with ``why``.

    ``lost`` says what got worse, empty where nothing did. ``inputs`` counts compared inputs, ``drawn`` random ones.
    ``hollow`` says that an output holds nothing but what the interpreter fills memory with, ``uniform`` that all inputs
    compared were of one value each, which proves little.
    """

    before: KernelCall
    after: KernelCall | None
    agrees: bool | None = None
    why: str = ""
    lost: str = ""
    inputs: int = 0
    drawn: int = 0
    hollow: bool = False
    uniform: bool = False


def pairs(before: Observation, after: Observation) -> list[tuple[KernelCall, KernelCall | None]]:
    """The calls of ``before``, each with its match: the call with the same shapes at the same place among its like.

    One of the same name goes first, since a program may call more than before; but a fix may change names, and lines.
    """
    queues: dict[tuple[str, ...], list[KernelCall]] = {}
    for call in after.calls:
        queues.setdefault(call.key, []).append(call)
    matches: dict[int, KernelCall] = {}
    for by_name in (True, False):
        for i, call in enumerate(before.calls):
            queue = queues.get(call.key, [])
            found = next((c for c in queue if c.name == call.name or not by_name), None)
            if i not in matches and found:
                matches[i] = found
                queue.remove(found)
    return [(call, matches.get(i)) for i, call in enumerate(before.calls)]


def has_oracle(call: KernelCall) -> bool:
    """Whether a call's numbers can serve as the truth: known, and the same in two runs."""
    return any(n.state == "known" and n.stable for n in call.numbers)


def judge(before: Observation, after: Observation, compare: Compare) -> list[CallVerdict]:
    """A verdict for each call of ``before``."""
    return [_judge(b, a, before, after, compare) for b, a in pairs(before, after)]


def _judge(
    b: KernelCall, a: KernelCall | None, before: Observation, after: Observation, compare: Compare
) -> CallVerdict:
    if a is None:
        return CallVerdict(b, None, lost=f"{b.name} is no longer called")
    if STAGES.index(a.stage) < STAGES.index(b.stage):
        return CallVerdict(b, a, lost=f"{b.name} now stops at {a.stage}")
    if any(n.why == WAITS for n in a.numbers) and not any(n.why == WAITS for n in b.numbers):
        return CallVerdict(b, a, lost=f"{b.name} does not come to its end: {WAITS}")
    known = [n for n in b.numbers if n.state == "known" and n.stable]
    if not known:
        whys = [n.why or "two runs of it differ" for n in b.numbers]
        return CallVerdict(b, a, why=whys[0] if whys else "its numbers were not asked for")
    inputs = drawn = 0
    hollow, uniform = False, True
    why = "its inputs changed"
    for numbers in known:
        twin = next((n for n in a.numbers if n.inputs == numbers.inputs), None)
        if twin is None:
            continue
        if twin.state != "known":
            why = twin.why
            continue
        for mine, theirs in ((numbers.outputs, twin.outputs), (numbers.draw, twin.draw)):
            if mine and theirs:
                difference = compare(_files(before, mine), _files(after, theirs))
                if difference == HOLLOW:
                    hollow = True
                elif difference:
                    return CallVerdict(b, a, False, difference, lost=f"{b.name} computes something else: {difference}")
        inputs += 1
        drawn += bool(numbers.draw and twin.draw)
        uniform = uniform and numbers.uniform and not drawn
    if not inputs:
        return CallVerdict(b, a, why=why)
    return CallVerdict(b, a, True, "", inputs=inputs, drawn=drawn, hollow=hollow, uniform=uniform)


def _files(observation: Observation, names: Sequence[str]) -> list[Path]:
    return [Path(observation.folder, name) for name in names]


def races(call: KernelCall) -> bool:
    """Whether two runs of the same trace on the same inputs gave different numbers."""
    return any(n.state == "known" and not n.stable and not n.why for n in call.numbers)


def doubt(call: KernelCall) -> str:
    """Why a call's numbers do not settle what was meant, empty where nothing speaks against them."""
    return next((n.doubt for n in call.numbers if n.doubt), "")


def known_numbers(call: KernelCall) -> list[Numbers]:
    """The numbers of a call that were computed, not filled in."""
    return [n for n in call.numbers if n.state == "known"]


def compare_files(mine: Sequence[Path], theirs: Sequence[Path]) -> str | None:
    """How two kernels' outputs differ: count, dtype, shape, then values within :data:`TOLERANCE`; NaN equals NaN.
    :data:`HOLLOW` where they agree, but one was never written.

    Files are ``NUMBER.DTYPE.npy``; nothing is unpickled.
    """
    if len(mine) != len(theirs):
        return f"{len(theirs)} outputs, {len(mine)} expected"
    hollow = False
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        expected, got = load(a), load(b)
        difference = compare_arrays(expected, got)
        if difference:
            return f"output {i}: {difference}" if len(mine) > 1 else difference
        hollow = hollow or is_hollow(got)
    return HOLLOW if hollow else None


def is_hollow(array: "np.ndarray") -> bool:
    """Whether an array holds nothing but what the interpreter fills fresh memory with: NaN, or the largest integer."""
    import numpy as np

    if array.size == 0 or array.dtype.kind in "bc":
        return False
    if array.dtype.kind in "iu":
        return bool((array == np.iinfo(array.dtype).max).all())
    with np.errstate(invalid="ignore"):
        return bool(np.isnan(array.astype(np.float64)).all())


def compare_arrays(expected: "np.ndarray", got: "np.ndarray") -> str | None:
    """How ``got`` differs from ``expected``, with the largest absolute, relative and ulp error and where it is."""
    import numpy as np

    if expected.dtype != got.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if expected.shape != got.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    if expected.tobytes() == got.tobytes():
        return None
    # Wide enough for every float; integers stay what they are, since a float64 does not hold every int64.
    exact = expected.dtype.kind in "biu"
    a, b = (x if exact else x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (expected, got))
    same = a == b
    if not exact:
        rtol, atol = TOLERANCE.get(expected.dtype.name, (0.0, 0.0))
        with np.errstate(invalid="ignore"):
            close = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= atol + rtol * np.abs(a))
        same |= (np.isnan(a) & np.isnan(b)) | close
    if same.all():
        return None
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(np.subtract(a, b, dtype=np.float64 if exact else None)))
        error = np.where(np.isnan(error), np.inf, error)
        at = np.unravel_index(int(np.argmax(np.where(same, -1.0, error))), error.shape)
        relative = error[at] / float(np.abs(a[at])) if a[at] != 0 else np.inf
    place = ", ".join(map(str, at))
    ulp = _ulp(expected, got, at)
    return (
        f"{int((~same).sum())} of {same.size} elements differ; most at [{place}]: {got[at]!s}, expected"
        f" {expected[at]!s} (abs {error[at]:.3g}, rel {relative:.3g}{ulp})"
    )


def _ulp(expected: "np.ndarray", got: "np.ndarray", at: tuple["np.intp", ...]) -> str:
    import numpy as np

    if expected.dtype.kind in "biuc" or expected.dtype.itemsize > 8:
        return ""
    unsigned = np.dtype(f"u{expected.dtype.itemsize}")
    bits = [int(np.ascontiguousarray(x).view(unsigned).reshape(x.shape)[at]) for x in (expected, got)]
    top = 1 << (8 * expected.dtype.itemsize - 1)
    ordered = [-(b - top) if b & top else b for b in bits]
    return f", {abs(ordered[0] - ordered[1])} ulp"
