"""Functions of the program's that are called by name, with arguments of their own, and held against a reference."""

import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from mgpu_fix import verify
from mgpu_fix.model import Referred
from mgpu_fix.observe.kernels import Call
from mgpu_fix.observe.launch import Unusable
from mgpu_fix.observe.probe import Probe
from mgpu_fix.observe.values import draw_like, first_line

#: the largest array that --arg makes
MOST_ELEMENTS = 1 << 28
#: what a module calls the function that it is about, what makes arguments for it, and what computes the same otherwise
FUNCTION, ARGUMENTS, REFERENCE = "kernel", "example_args", "reference"


@dataclass(frozen=True)
class Example:
    """A function of the program's and arguments for it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def find(name: str, types: Sequence[str], namespace: Mapping[str, Any]) -> Example | None:
    """The function called ``name``, else the module's ``kernel``, with arguments of ``types`` or from the module's
    ``example_args()``; None where it names none. Raises Unusable."""
    function = namespace.get(name or FUNCTION)
    if name and not callable(function):
        raise Unusable(f"it defines no function {name!r}; --call names one at module level")
    examples = namespace.get(ARGUMENTS)
    if not callable(function) or not (name or callable(examples)):
        return None
    args = tuple(map(_argument, types))
    if not types and callable(examples):
        args = examples()
        if not isinstance(args, (tuple, list)):
            raise Unusable("example_args() must return a tuple with one array for each operand")
    example = Example(name or FUNCTION, function, tuple(args))
    try:
        inspect.signature(function).bind(*args)
    except (TypeError, ValueError) as e:
        what = f"{example.name} cannot be called with {len(args)} arguments ({e})"
        raise Unusable(f"{what}; give each one with --arg") from None
    return example


def _argument(spec: str) -> Any:
    """An array from JAX's short text for its type, e.g. ``f32[128,128]``: counting up, so that no two rows agree."""
    import jax.numpy as jnp

    kinds = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint", "bool": "bool"}
    parts = re.fullmatch(r"(bf|f|s|i|u|bool)(\d*)\[((?:\d+(?:,\d+)*)?)\]", spec)
    try:
        if parts is None:
            raise ValueError
        dtype = jnp.dtype(kinds[parts[1]] + parts[2])
    except (TypeError, ValueError):
        raise Unusable(f"--arg {spec!r} is no type; write it like f32[128,128] or bf16[64]") from None
    dims = tuple(int(n) for n in parts[3].split(",") if n)
    if math.prod(dims) > MOST_ELEMENTS:
        raise Unusable(f"--arg {spec} is too large to make here; call the kernel at a smaller shape")
    return jnp.asarray((np.arange(int(np.prod(dims))) % 251).reshape(dims)).astype(dtype)


def reference(spec: str, namespace: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The function that ``spec`` names, as ``name`` in the program, ``module:name`` or ``file.py:name``; without one
    the module's own ``reference``, None where it has none. Raises Unusable."""
    if not spec:
        own = namespace.get(REFERENCE)
        return own if callable(own) else None
    module, _, name = spec.rpartition(":")
    if module:
        try:
            namespace = _module(module).__dict__
        except Exception as e:
            raise Unusable(f"--reference {spec}: {module} does not load: {type(e).__name__}: {first_line(e)}") from None
    found: Callable[..., Any] | None = namespace.get(name)
    if not callable(found):
        raise Unusable(f"--reference {spec}: {module or 'the program'} defines no function {name!r}")
    return found


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        sys.path.append(os.getcwd())
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location("_mgpu_fix_reference", name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Trial:
    """Holds what a program computes against a reference. ``given`` says that the user named it, ``rtol`` and ``atol``
    replace the tolerances."""

    def __init__(
        self, probe: Probe, function: Callable[..., Any], given: bool, rtol: float | None, atol: float | None
    ) -> None:
        self.probe, self.function, self.given = probe, function, given
        self.rtol, self.atol = rtol, atol
        self.name = str(getattr(function, "__name__", REFERENCE))

    def of_example(self, example: Example) -> Referred:
        """Call the example and its reference. Only kernels that the program called already are run for it."""
        with self.probe.no_more_kernels():
            return self._told(example.name, example.args, lambda args: example.function(*args))

    def of_call(self, call: Call) -> Referred:
        """Hold the numbers of one kernel call against what the reference makes of its operands."""
        inputs, count = call.first_inputs, len(call.avals)
        if inputs is None or any(call.refs):
            why = call.unknown or "it has no numbers"
            return Referred(call.kernel.name, self.name, (call.label,), why=why, given=self.given)

        def run(args: tuple[Any, ...]) -> Any:
            values = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
            return self.probe.interpreter.run(call, values, inputs[count:])

        return self._told(call.kernel.name, jax.tree.unflatten(call.tree, inputs[:count]), run)

    def _told(self, name: str, args: tuple[Any, ...], run: Callable[[tuple[Any, ...]], Any]) -> Referred:
        touched = self.probe.interpreter.touched
        touched.clear()
        told = Referred(name, self.name, given=self.given)
        try:
            told = self._compared(told, args, run)
            labels = sorted(touched)
            # Whether it comes out or not, what differs is somebody's fault.
            labels = self._seen(labels, args, run) if told.agrees else labels
        except (Exception, SystemExit) as e:
            told, labels = replace(told, agrees=None, why=f"{type(e).__name__}: {first_line(e)}"), sorted(touched)
        return replace(told, calls=tuple(labels))

    def _compared(self, told: Referred, args: tuple[Any, ...], run: Callable[[tuple[Any, ...]], Any]) -> Referred:
        leaves, tree = jax.tree.flatten(args)
        values = [np.asarray(leaf) for leaf in leaves]
        uniform = bool(values) and all(v.size < 2 or bool((v == v.flat[0]).all()) for v in values)
        drawn = draw_like(values)
        draws = [] if drawn is None else [jax.tree.unflatten(tree, [jax.numpy.asarray(v) for v in drawn])]
        for given, drawn_now in ((args, False), *((draw, True) for draw in draws)):
            got = run(given)
            if self.probe.interpreter.touched & self.probe.interpreter.placeholders:
                return replace(told, why="a kernel in it has no numbers")
            expected = self._truth(given)
            if expected is None:
                return replace(told, why=f"{self.name} runs a kernel itself")
            why = self._difference(expected[0], got)
            if why:
                why = f"on random inputs, {why}" if drawn_now else why
                return replace(told, agrees=False, why=why, drawn=drawn_now, uniform=uniform)
        return replace(told, agrees=True, drawn=bool(draws), uniform=uniform and not draws)

    def _truth(self, args: tuple[Any, ...]) -> tuple[Any] | None:
        """What the reference gives; None where it is a kernel that gives it."""
        touched = self.probe.interpreter.touched
        before = {*touched}
        touched.clear()
        try:
            expected = self.function(*args)
            return None if touched else (expected,)
        finally:
            touched.clear()
            touched |= before

    def _seen(self, labels: Iterable[str], args: tuple[Any, ...], run: Callable[[tuple[Any, ...]], Any]) -> list[str]:
        """Those calls whose numbers come out of the function: other ones change its result."""
        right, seen = run(args), []
        for label in labels:
            with self.probe.interpreter.spoiling(label):
                if self._difference(right, run(args)):
                    seen.append(label)
        return seen

    def _difference(self, expected: Any, got: Any) -> str | None:
        """How two pytrees of arrays differ. A reference may compute in another precision than the kernel."""
        wanted, given = jax.tree.leaves(expected), jax.tree.leaves(got)
        if len(wanted) != len(given):
            return f"{len(given)} outputs, {len(wanted)} expected"
        for w, g in zip(map(np.asarray, wanted), map(np.asarray, given), strict=True):
            size = np.abs(w.astype(np.complex128 if w.dtype.kind == "c" else np.float64))
            scale = float(np.max(size, initial=0.0, where=np.isfinite(size)))
            # Whole numbers stay what they are where the other dtype does not hold them.
            same = w.astype(g.dtype)
            truth = same if g.dtype.kind not in "biu" or bool((same == w).all()) else w
            difference = verify.compare_arrays(truth, g, verify.tolerance(self.rtol, self.atol, verify.loose(scale)))
            if difference:
                return difference
        return None
