"""Why numbers that are known do not settle what a kernel was meant to compute.

An intended trace that shares memory computes what the fix computes, so that its numbers alone prove nothing about
whether sharing was meant. Runs under other rules tell: one that looks for races, one in which fresh memory holds
something else, one in which each warpgroup has memory of its own.
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from mgpu_fix.model import Scope
from mgpu_fix.observe import jaxseam
from mgpu_fix.observe.kernels import Call
from mgpu_fix.observe.survey import survey
from mgpu_fix.observe.values import digest_arrays

#: runs a call once more: (each warpgroup has memory of its own, parameters of the interpreter) → outputs, if any
Again = Callable[[bool, dict[str, object]], Sequence[np.ndarray] | None]

_ZERO: dict[str, object] = {"uninitialized_memory": "zero"}


def doubt(call: Call, known: Sequence[np.ndarray], again: Again) -> str:
    """Why the outputs that are ``known`` may not be what was meant; empty where nothing speaks against them."""
    thread = call.kernel.thread_name
    several = thread is not None and call.kernel.axes[thread] > 1
    changed = [scope for scope in call.changed if _may_matter(scope)]
    unsure = bool(changed) or call.drops
    if not several and not unsure:
        return ""
    detect: dict[str, object] = {"detect_races": True, "on_race": "warn"} if several else {}
    zeroed = again(False, {**detect, **_ZERO})
    if zeroed is None:
        return "whether it reads memory that nothing wrote could not be seen" if unsure else ""
    racing = _races(call) if several else ""
    if racing or not unsure:
        return racing
    if digest_arrays(zeroed) != digest_arrays(known):
        return "what it computes depends on memory that nothing wrote"
    return _otherwise(known, again) if several and any(map(_gains_sharing, changed)) else ""


def _otherwise(known: Sequence[np.ndarray], again: Again) -> str:
    private = again(True, {})
    if private is None:
        return "whether each warpgroup was meant to have memory of its own could not be tried"
    if digest_arrays(private) == digest_arrays(known):
        return ""
    zeroed = again(True, _ZERO)
    if zeroed is not None and digest_arrays(zeroed) != digest_arrays(private):
        # Without sharing, something is read that nobody wrote: sharing was meant.
        return ""
    return "if each warpgroup had memory of its own it would compute something else"


def _gains_sharing(scope: Scope) -> bool:
    return (
        scope.thread is not None
        and scope.thread.size > 1
        and scope.thread not in scope.axes
        and not all(a.confined or a.kind in ("", "acc") for a in scope.allocations)
    )


def _may_matter(scope: Scope) -> bool:
    """Whether other programs share memory in the intended trace than the author's axes say."""
    return _gains_sharing(scope) or any(axis.size > 1 for axis in scope.axes if axis != scope.thread)


def _races(call: Call) -> str:
    """What races in the run just made, but for stores of the same value and those of several blocks."""
    found = jaxseam.races()
    if found is None:
        return "its warpgroups race"
    same: set[str] = set()
    with contextlib.suppress(Exception):
        seen = survey(call.intended.jaxpr, call.kernel.thread_name, call.kernel.axes)
        same = seen.alike - seen.unlike
    for race in found:
        if not (race.both_write and (race.in_gmem or same.issuperset(race.places))):
            places = " and ".join(dict.fromkeys(p.rsplit("/", 1)[-1].split(" ")[0] for p in race.places))
            return f"its warpgroups use the same memory with nothing to order them, at {places}"
    return ""
