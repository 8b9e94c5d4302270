"""How a kernel call of one run compares with the same call of another: stages, inputs, numbers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mgpu_fix.arrays import load
from mgpu_fix.levels import Oracle
from mgpu_fix.model import OUTSIDE, STAGES, WAITS, KernelCall, Numbers, Observation

if TYPE_CHECKING:
    import numpy as np

#: relative and absolute tolerance by dtype; what is not named must be equal bit for bit
TOLERANCE: "Tolerance" = {
    "float64": (1e-12, 1e-14),
    "float32": (1e-5, 1e-6),
    "float16": (2e-3, 1e-4),
    "bfloat16": (1.6e-2, 1e-3),
}
Tolerance: TypeAlias = Mapping[str, tuple[float, float]]


def tolerance(rtol: float | None, atol: float | None, usual: Tolerance = TOLERANCE) -> Tolerance:
    """Tolerances by dtype, with those given in place of the usual ones."""
    return {d: (r if rtol is None else rtol, a if atol is None else atol) for d, (r, a) in usual.items()}


def loose(scale: float) -> Tolerance:
    """Tolerances for numbers up to ``scale`` that were computed in another way, or another precision."""
    size = max(1.0, scale)
    return {
        "float64": (1e-9, 1e-12 * size),
        "float32": (1e-4, 1e-5 * size),
        "float16": (5e-3, 1e-3 * size),
        "bfloat16": (2e-2, 4e-3 * size),
    }


_NOT_CALLED = "it was not called before"

#: says how the outputs in two lists of array files differ, None where they agree
Compare: TypeAlias = Callable[[Sequence[Path], Sequence[Path]], str | None]

#: what :func:`compare_files` says of outputs that agree and were never written
HOLLOW = "nothing but uninitialised memory"


@dataclass(frozen=True)
class CallVerdict:
    """A call before and after. ``agrees`` is None where no numbers can be compared, with ``why``.

    ``lost`` says what got worse, empty where nothing did. ``inputs`` counts compared inputs, ``drawn`` random ones.
    ``hollow`` says that an output holds nothing but what the interpreter fills memory with, ``uniform`` that all inputs
    compared were of one value each, which proves little. ``oracle`` is what the numbers were held against, ``on_gpu``
    says that for all inputs these are a GPU's.
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
    oracle: Oracle = Oracle.ORIGINAL
    on_gpu: bool = False

    @property
    def names(self) -> frozenset[str]:
        """What the kernel is called before and after."""
        return frozenset(call.name for call in (self.before, self.after) if call is not None)


@dataclass(frozen=True)
class Golden:
    """Numbers of a healthy run, as calls of it, and how others are compared with them."""

    truth: Observation
    compare: Compare


def telling(verdicts: Sequence[CallVerdict]) -> list[CallVerdict]:
    """Those of the verdicts on a kernel that a proof rests on: of one that ``vmap`` batches, the kernel's own."""
    own = [v for v in verdicts if v.after is None or not v.after.batched]
    return own or list(verdicts)


def pairs(before: Observation, after: Observation) -> list[tuple[KernelCall, KernelCall | None]]:
    """The calls of ``before``, each with its match: the call with the same shapes at the same place among its like.

    One of the same name goes first, since a program may call more than before; but a fix may change names, and lines.
    Calls of kernels that differ in what they close over have the same match, if a fix makes one kernel of them all.
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
    merged = {
        (_like(before.calls[i]), n.inputs): after for i, after in matches.items() for n in after.numbers if n.inputs
    }
    for i, call in enumerate(before.calls):
        if i not in matches and call.numbers and (_like(call), call.numbers[0].inputs) in merged:
            matches[i] = merged[_like(call), call.numbers[0].inputs]
    return [(call, matches.get(i)) for i, call in enumerate(before.calls)]


def _like(call: KernelCall) -> tuple[object, ...]:
    """The same for calls of kernels that one function is the body of."""
    return call.name, call.span, call.key


def has_oracle(call: KernelCall, run: Observation, golden: Golden | None = None) -> bool:
    """Whether there is a truth to hold a call of ``run`` against: its own numbers, if they are known and the same in
    two runs, a reference, or a golden."""
    own = any(n.state == "known" and n.stable for n in call.numbers)
    referred = any(call.label in r.calls for r in run.referred)
    return own or referred or (golden is not None and id(call) in recorded(run, golden.truth))


def judge(before: Observation, after: Observation, compare: Compare, golden: Golden | None = None) -> list[CallVerdict]:
    """A verdict for each call of ``before`` and each that only ``after`` makes, by the first oracle that knows it:
    ``golden``, a reference in ``after``, or what ``before`` itself computes."""
    known = {}
    if golden:
        known = recorded(after, golden.truth) | recorded(before, golden.truth)
    matched = pairs(before, after)
    found = [
        _settled(_judge(b, a, before, after, compare), known.get(id(b)), golden, before, after) for b, a in matched
    ]
    met = {id(a) for _, a in matched}
    return found + [
        _settled(CallVerdict(a, a, why=_NOT_CALLED), known.get(id(a)), golden, after, after)
        for a in after.calls
        if id(a) not in met
    ]


def with_numbers(run: Observation, other: Observation) -> Observation:
    """A run with the numbers that the ``other`` one of the same program gives, which another JAX made."""
    given = {id(a): b for a, b in pairs(run, other) if b is not None}
    ends = f"under JAX {other.jax} the program does not come to it: {other.reason or other.status}"

    def taken(call: KernelCall) -> KernelCall:
        twin = given.get(id(call))
        if twin is None:
            return replace(call, numbers=tuple(replace(n, state="unknown", why=ends) for n in call.numbers))
        gpu = {n.inputs: (n.on_gpu, n.draw_on_gpu) for n in call.numbers}
        here = []
        for n in twin.numbers:
            outputs, draw = (tuple(map(str, _files(other, names))) for names in (n.outputs, n.draw))
            on_gpu, draw_on_gpu = gpu.get(n.inputs, ((), ()))
            here.append(replace(n, outputs=outputs, draw=draw, on_gpu=on_gpu, draw_on_gpu=draw_on_gpu))
        return replace(call, numbers=tuple(here))

    device = f"{run.device}, numbers by JAX {other.jax}"
    return replace(run, calls=tuple(map(taken, run.calls)), referred=other.referred, device=device)


def strays(observation: Observation, compare: Compare, golden: Golden | None = None) -> list[CallVerdict]:
    """Verdicts on the calls of a run that its golden or a reference contradicts."""
    found = judge(observation, observation, compare, golden)
    return [v for v in found if v.agrees is False and v.after is not None and not v.after.failures]


def recorded(observation: Observation, golden: Observation) -> dict[int, KernelCall]:
    """What is recorded of each call, which is known by its kernel's name, its shapes and its place among its like."""
    queues: dict[tuple[str, ...], list[KernelCall]] = {}
    for call in golden.calls:
        queues.setdefault((call.name, *call.key), []).append(call)
    met: Counter[tuple[str, ...]] = Counter()
    found = {}
    for call in observation.calls:
        like = (call.name, *call.key)
        if met[like] < len(queues.get(like, ())):
            found[id(call)] = queues[like][met[like]]
        met[like] += 1
    return found


def _settled(
    verdict: CallVerdict,
    recorded: KernelCall | None,
    golden: Golden | None,
    before: Observation,
    after: Observation,
) -> CallVerdict:
    """A verdict by the original, or that of a better oracle in its place: but a healthy call computes what it did, and
    what contradicted it before has no say in whether it is worse off now."""
    b, a = verdict.before, verdict.after
    healthy = not b.failures and before is not after
    # What still fails is not what is to be judged.
    if a is None or a.failures or (verdict.lost and (healthy or verdict.agrees is None)):
        return verdict
    known = [r for r in after.referred if a.label in r.calls and r.agrees is not None]
    strayed = healthy and any(r.agrees is False for r in before.referred if b.label in r.calls)
    wrong = next((r for r in known if not r.agrees and not strayed), None)
    # What the user names outweighs a golden.
    if recorded is not None and golden is not None and not (wrong and wrong.given):
        mine = replace(verdict, oracle=Oracle.GOLDEN)
        found = _compared(mine, recorded, a, golden.truth, after, golden.compare)
        was = _compared(mine, recorded, b, golden.truth, before, golden.compare).agrees if healthy else None
        if found.agrees or (found.agrees is False and was is not False):
            return found
    if wrong:
        why = f"{wrong.function} differs from {wrong.reference}: {wrong.why}"
        return CallVerdict(b, a, False, why, lost=why, oracle=Oracle.REFERENCE)
    right = next((r for r in known if r.agrees), None)
    # Not all that a kernel computes need come out of the function that calls it.
    if right and verdict.agrees is not False:
        drawn = int(right.drawn)
        told = CallVerdict(b, a, True, inputs=1, drawn=drawn, uniform=right.uniform, oracle=Oracle.REFERENCE)
        return replace(told, on_gpu=bool(verdict.agrees) and verdict.on_gpu)
    return verdict


def _judge(
    b: KernelCall, a: KernelCall | None, before: Observation, after: Observation, compare: Compare
) -> CallVerdict:
    if a is None:
        called = any(_like(b) == _like(other) for other, twin in pairs(before, after) if twin)
        less = "called less often, or with other values" if called else "no longer called"
        return CallVerdict(b, None, lost=f"{b.name} is {less}")
    if STAGES.index(a.stage) < STAGES.index(b.stage):
        return CallVerdict(b, a, lost=f"{b.name} now stops at {a.stage}")
    if fault(a) and not fault(b):
        return CallVerdict(b, a, lost=f"{b.name} does not come to its end: {fault(a)}")
    verdict = _compared(CallVerdict(b, a), b, a, before, after, compare)
    # That a call computes what it computes proves nothing.
    return replace(verdict, agrees=None, why=_NOT_CALLED) if b is a and verdict.agrees else verdict


def _compared(
    verdict: CallVerdict, b: KernelCall, a: KernelCall, before: Observation, after: Observation, compare: Compare
) -> CallVerdict:
    """``verdict`` with what comparing the numbers of ``a`` with the true ones of ``b`` says."""
    verdict = replace(verdict, agrees=None, why="", lost="")
    known = [n for n in b.numbers if n.state == "known" and n.stable]
    if not known:
        whys = [n.why or "two runs of it differ" for n in b.numbers]
        none = "those of the kernel that vmap batches are" if a.batched else "its numbers were not asked for"
        return replace(verdict, why=whys[0] if whys else none)
    inputs = drawn = 0
    hollow, uniform, on_gpu = False, True, True
    why = "its inputs changed"
    for numbers in known:
        twin = next((n for n in a.numbers if n.inputs == numbers.inputs), None)
        if twin is None:
            continue
        if twin.state != "known" and not twin.on_gpu:
            why = twin.why
            continue
        here = ((numbers.outputs, twin.outputs), (numbers.draw, twin.draw))
        there = ((numbers.outputs, twin.on_gpu), (numbers.draw, twin.draw_on_gpu))
        # What the interpreter's numbers proved exactly, a GPU's need only confirm.
        confirm = compare_on_gpu if twin.state == "known" else compare
        runs = [(*pair, compare, "") for pair in here] + [(*pair, confirm, " on the GPU") for pair in there]
        for mine, theirs, differ, where in runs:
            difference = differ(_files(before, mine), _files(after, theirs)) if mine and theirs else None
            if difference == HOLLOW:
                hollow = True
            elif difference:
                what = "computes something else" if verdict.oracle is Oracle.ORIGINAL else "differs from its golden"
                return replace(verdict, agrees=False, why=difference, lost=f"{b.name} {what}{where}: {difference}")
        inputs += 1
        drawn += bool(numbers.draw and (twin.draw or twin.draw_on_gpu))
        uniform = uniform and twin.uniform and not drawn
        on_gpu = on_gpu and bool(twin.on_gpu)
    if not inputs:
        return replace(verdict, why=why)
    return replace(verdict, agrees=True, inputs=inputs, drawn=drawn, hollow=hollow, uniform=uniform, on_gpu=on_gpu)


def _files(observation: Observation, names: Sequence[str]) -> list[Path]:
    return [Path(observation.folder, name) for name in names]


def races(call: KernelCall) -> bool:
    """Whether two runs of the same trace on the same inputs gave different numbers."""
    return any(n.state == "known" and not n.stable and not n.why for n in call.numbers)


def fault(call: KernelCall) -> str:
    """Why a call does not come to its end in the interpreter, where that is the kernel's own fault; else empty."""
    return next((n.why for n in call.numbers if n.why in (WAITS, OUTSIDE)), "")


def doubt(call: KernelCall) -> str:
    """Why a call's numbers do not settle what was meant, empty where nothing speaks against them."""
    return next((n.doubt for n in call.numbers if n.doubt), "")


def takes_more(before: KernelCall, after: KernelCall) -> str:
    """What a compiled kernel takes that costs it speed and that it did not take before, empty where there is nothing.
    ``before`` may be the same call, or one that was not compiled."""
    now = after.resources
    if now is None:
        return ""
    then = before.resources if before is not after else None
    costs = []
    if now.spill_bytes > (then.spill_bytes if then else 0):
        costs.append(f"it spills {now.spill_bytes} bytes of registers to memory, for want of more than {now.registers}")
    if then and now.registers >= 2 * then.registers:
        costs.append(f"it takes {now.registers} registers a thread, {then.registers} before")
    costs += [warning for warning in now.warnings if then is None or warning not in then.warnings]
    return "; ".join(costs)


def known_numbers(call: KernelCall) -> list[Numbers]:
    """The numbers of a call that were computed, not filled in."""
    return [n for n in call.numbers if n.state == "known"]


def compare_files(mine: Sequence[Path], theirs: Sequence[Path], tolerance: Tolerance = TOLERANCE) -> str | None:
    """How two kernels' outputs differ: count, dtype, shape, then values within ``tolerance``; NaN equals NaN.
    :data:`HOLLOW` where they agree, but one was never written.

    Files are ``NUMBER.DTYPE.npy``; nothing is unpickled.
    """
    if len(mine) != len(theirs):
        return f"{len(theirs)} outputs, {len(mine)} expected"
    hollow = False
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        expected, got = load(a), load(b)
        difference = compare_arrays(expected, got, tolerance)
        if difference:
            return f"output {i}: {difference}" if len(mine) > 1 else difference
        hollow = hollow or is_hollow(got)
    return HOLLOW if hollow else None


def compare_on_gpu(mine: Sequence[Path], theirs: Sequence[Path]) -> str | None:
    """As :func:`compare_files`, for outputs that a GPU gave: it sums in another order, multiplies float32 with fewer
    bits and has instructions for functions that are good to a few."""
    if len(mine) != len(theirs):
        return f"{len(theirs)} outputs, {len(mine)} expected"
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        expected, got = load(a), load(b)
        scale = _scale(expected)
        difference = compare_arrays(expected, got, dict.fromkeys(TOLERANCE, (0.02, 0.005 * scale)))
        if difference:
            return f"output {i}: {difference}" if len(mine) > 1 else difference
    return None


def _scale(array: "np.ndarray") -> float:
    """The largest finite number in an array."""
    import numpy as np

    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(np.max(wide, where=np.isfinite(wide), initial=0.0))


def is_hollow(array: "np.ndarray") -> bool:
    """Whether an array holds nothing but what the interpreter fills fresh memory with: NaN, or the largest integer."""
    import numpy as np

    if array.size == 0 or array.dtype.kind in "bc":
        return False
    if array.dtype.kind in "iu":
        return bool((array == np.iinfo(array.dtype).max).all())
    with np.errstate(invalid="ignore"):
        return bool(np.isnan(array.astype(np.float64)).all())


def compare_arrays(expected: "np.ndarray", got: "np.ndarray", tolerance: Tolerance = TOLERANCE) -> str | None:
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
        rtol, atol = tolerance.get(expected.dtype.name, (0.0, 0.0))
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
