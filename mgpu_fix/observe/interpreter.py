"""Numbers: run intended kernels by Pallas' GPU interpreter within a budget, and keep what came out."""

import contextlib
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mgpu_fix.arrays import stored
from mgpu_fix.model import KEPT_CALLS, OUTSIDE, WAITS, Numbers
from mgpu_fix.observe import doubts, jaxseam
from mgpu_fix.observe.device import Given
from mgpu_fix.observe.kernels import Call
from mgpu_fix.observe.values import digest_arrays, draw_like, first_line

#: the share of its budget that the interpreter may spend on more calls of a kernel than are kept
EXTRA_SHARE = 0.1
#: why a kernel has no numbers when the interpreter ran out of time on it
TOO_LARGE = "too large to interpret"
#: what JAX 0.10.2 to 0.12.0.1 say of an access outside of an array
_OUTSIDE = re.compile(r"(Index|Value)Error: Out-of-bounds")


class Interpreter:
    """Runs calls. ``folder`` receives arrays; ``budget`` is seconds a kernel; ``skip`` labels those too large;
    ``kernels`` counts those that made the calls of one key before, if that is known. ``keep_operands`` leaves in the
    folder what calls were given, too."""

    def __init__(
        self,
        folder: Path,
        budget: float,
        skip: frozenset[str],
        kernels: Mapping[tuple[str, ...], int],
        keep_operands: bool = False,
    ) -> None:
        self.folder, self.budget, self.skip, self.kernels = folder, budget, skip, kernels
        self.keep_operands = keep_operands
        # Not the probe's lock: a trace may wait for a computation whose callback comes here.
        self._lock = threading.RLock()
        self._saved = 0
        self._spoilt = ""
        #: seconds and runs by label: kernels that differ in what they close over share one budget
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._runs: Counter[str] = Counter()
        #: labels of calls whose values the program was given since somebody last cleared this, and of those of which
        #: some were placeholders
        self.touched: set[str] = set()
        self.placeholders: set[str] = set()
        # Taken before the program runs, which may replace it.
        self._open = open

    @contextlib.contextmanager
    def spoiling(self, label: str) -> Iterator[None]:
        """Give other numbers for the calls of that label."""
        self._spoilt = label
        try:
            yield
        finally:
            self._spoilt = ""

    def run(self, call: Call, values: list[np.ndarray], constants: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
        """Outputs of the intended kernel and final values of its Refs; zeros where it cannot be run. Keeps a record."""
        with self._lock:
            self.touched.add(call.label)
            operands = [*values, *constants]
            inputs = digest_arrays(operands)
            if inputs in call.results:
                known = call.results[inputs]
                return [_other(o) for o in known] if call.label == self._spoilt else known
            why = call.unknown or self._over_budget(call)
            outs = None if why else self._execute(call, operands)
            kept = len(call.numbers) < KEPT_CALLS * max(1, self.kernels.get(call.key, 1))
            if kept and self.keep_operands:
                call.given.append(Given(inputs, self._save(operands)))
            if outs is None:
                self.placeholders.add(call.label)
                if kept:
                    state = "unknown" if call.unknown and call.error is not None else "tainted"
                    call.numbers.append(Numbers(state, inputs, why=call.unknown or why))
                zeros = [np.zeros(a.shape, a.dtype) for a in call.kernel.output_avals]
                return [*zeros, *(v for v, ref in zip(values, call.refs, strict=True) if ref)]
            if kept:
                call.results[inputs] = outs
                call.first_inputs = call.first_inputs or operands
                uniform = bool(operands) and all(a.size < 2 or bool((a == a.flat[0]).all()) for a in operands)
                call.numbers.append(Numbers("known", inputs, self._save(outs), uniform=uniform))
            return outs

    def prove_more(self, call: Call, trace: Callable[[bool, dict[str, object]], Any]) -> None:
        """Run a call once more on its own inputs, to see whether two runs agree bit for bit, and on one more draw; then
        under other rules, each of which ``trace`` makes a trace for, see :mod:`mgpu_fix.observe.doubts`."""
        if call.first_inputs is None or not call.numbers or call.numbers[0].state != "known":
            return
        first = call.numbers[0]
        again = self._execute(call, call.first_inputs)
        if again is None:
            call.numbers[0] = replace(first, stable=False, why=call.unknown)
            return
        drawing = draw_like(call.first_inputs)
        drawn = self._execute(call, drawing) if drawing is not None else None
        if call.given and drawing is not None and drawn is not None:
            call.given[0] = replace(call.given[0], draw=self._save(drawing))
        stable = digest_arrays(again) == digest_arrays(call.results[first.inputs])
        inputs = call.first_inputs

        # As much time again as for the numbers themselves, which may have used up theirs.
        end = time.monotonic() + self.budget

        def run_again(private: bool, options: dict[str, object]) -> list[np.ndarray] | None:
            return self._once(inputs, lambda: trace(private, options), private, end)

        why = doubts.doubt(call, call.results[first.inputs], run_again)
        call.numbers[0] = replace(first, stable=stable, draw=self._save(drawn) if drawn else (), doubt=why)

    def _once(
        self, operands: Sequence[np.ndarray], trace: Callable[[], Any], private: bool, end: float
    ) -> list[np.ndarray] | None:
        """Outputs of another trace, None where it cannot be run until ``end``."""
        own = jaxseam.private_scopes() if private else contextlib.nullcontext()
        try:
            with jaxseam.time_limit(max(0.1, end - time.monotonic())), jaxseam.quiet(), own:
                return [np.asarray(o) for o in jax.tree.leaves(trace().lower().compile()(*operands))]
        except Exception:
            jaxseam.reset_interpreter()
            return None

    def _over_budget(self, call: Call) -> str:
        label = call.label
        if label in self.skip or self._spent[label] > self.budget:
            return TOO_LARGE
        many = self._runs[label] >= KEPT_CALLS and self._spent[label] > EXTRA_SHARE * self.budget
        return "called too often to interpret" if many else ""

    def _execute(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        started = time.monotonic()
        label = call.label
        allowed = max(0.1, self.budget - self._spent[label])
        limit: jaxseam.TimeLimit | None = None
        try:
            with jaxseam.time_limit(allowed) as limit:
                if call.compiled is None:
                    call.compiled = call.closed(call.intended).lower().compile()
                return [np.asarray(o) for o in jax.tree.leaves(call.compiled(*operands))]
        except Exception as e:
            jaxseam.reset_interpreter()
            call.unknown = f"the interpreter cannot run it: {type(e).__name__}: {first_line(e)}"
            if limit is not None and limit.waits:
                call.unknown = WAITS
            elif _OUTSIDE.search(str(e)):
                call.unknown = OUTSIDE
            elif time.monotonic() - started >= allowed:
                call.unknown = TOO_LARGE
            return None
        finally:
            seconds = time.monotonic() - started
            call.spent += seconds
            self._spent[label] += seconds
            self._runs[label] += 1

    def _save(self, arrays: Sequence[np.ndarray]) -> tuple[str, ...]:
        names = []
        for array in arrays:
            self._saved += 1
            name = f"{self._saved:05d}.{array.dtype.name}.npy"
            with self._open(self.folder / name, "wb") as file:
                np.save(file, np.ascontiguousarray(stored(array)).reshape(array.shape), allow_pickle=False)
            names.append(name)
        return tuple(names)


def _other(array: np.ndarray) -> np.ndarray:
    """Numbers of the same shape and dtype that nobody takes for these."""
    if array.dtype.kind in "biu":
        return ~array
    wide = array if array.dtype.kind == "c" else array.astype(np.float64)
    return (wide * 1.5 + 1).astype(array.dtype)
