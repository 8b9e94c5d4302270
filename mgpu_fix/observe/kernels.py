"""A kernel as the program declared it, a trace that is being made of it, and a call of it with all that is known."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from mgpu_fix.model import Function, KernelCall, Misfit, Numbers, Returned, Scope, Span
from mgpu_fix.observe import jaxseam
from mgpu_fix.observe.device import Given
from mgpu_fix.observe.values import Params, name_of, short_type


@dataclass(eq=False)
class Kernel:
    """A declared kernel. ``build(body, interpret)`` makes the callable that runs ``body``; ``outputs`` is the pytree of
    output types; ``identity`` is equal for kernels of the same code, closures and parameters."""

    entry: str
    body: Any
    build: Callable[[Any, Any], Callable[..., Any]]
    outputs: Any
    identity: str
    function: Function | None
    semantics: str = ""
    #: whether JAX adds barriers between the threads of a warpgroup by itself
    barriers: bool = True
    thread_name: str | None = None
    #: names and sizes of the mesh's axes: blocks, clusters and warpgroups that each run the body
    axes: dict[Any, int] = field(default_factory=dict)
    #: made by JAX's rule for ``vmap``, whose numbers are those of the kernel that it batches
    batched: bool = False

    @property
    def name(self) -> str:
        """The body's name, as the user knows it."""
        return self.function.name if self.function else str(getattr(self.body, "__name__", "kernel"))

    @property
    def output_count(self) -> int:
        """How many output parameters the body is given."""
        return len(self.outputs) if isinstance(self.outputs, (tuple, list)) else 1

    @functools.cached_property
    def output_avals(self) -> list[Any]:
        """Shape and dtype of every output leaf that has them."""
        leaves = jax.tree.leaves(self.outputs)
        return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves if hasattr(leaf, "shape")]

    @property
    def has_outputs(self) -> bool:
        """Whether every output is an array, so that there are values to go on with where the kernel fails."""
        return len(self.output_avals) == len(jax.tree.leaves(self.outputs))


@dataclass(eq=False)
class Trace:
    """One trace of one kernel. ``mode`` is real, dropped (returned values thrown away) or intended.

    ``operands`` is how many operands the call has; ``stored`` are the outputs (by index) that the body writes itself,
    None where that is not known. ``private`` gives each warpgroup its own of what the intended trace would share.
    The rest is found out while tracing.
    """

    mode: str
    kernel: Kernel
    operands: int
    stored: set[int] | None = None
    private: bool = False
    scopes: list[Scope] = field(default_factory=list)
    returned: list[Returned] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)
    unclear: str = ""
    grid_position: tuple[str, Span | None] | None = None
    callee: str = ""
    #: whether a warp-level region is being traced
    in_warp: bool = False
    #: what the body got that is being traced, while that is not one of a pipeline or at warp level
    params: Params | None = None


class Tracing(threading.local):
    """The trace that this thread is making, if any."""

    trace: Trace | None = None

    @contextlib.contextmanager
    def of(self, trace: Trace) -> Iterator[None]:
        """Make ``trace``."""
        before, self.trace = self.trace, trace
        try:
            yield
        finally:
            self.trace = before


@dataclass(eq=False)
class Call:
    """A (kernel, avals). ``refs`` says which operands are Refs; ``constants`` are values that the intended trace closes
    over and takes as operands instead, behind the others; ``unknown`` is why there are no numbers; ``spent`` is
    interpreter seconds."""

    kernel: Kernel
    avals: list[Any]
    refs: list[bool]
    tree: Any
    span: Span | None
    number: int = 0
    stage: str = "trace"
    error: Exception | None = None
    failures: list[int] = field(default_factory=list)
    real: Any = None
    intended: Any = None
    constants: list[Any] = field(default_factory=list)
    #: names and values that the body reads from outside of itself, where the kernel fails
    outside: dict[str, Any] = field(default_factory=dict)
    unwritten: list[int] = field(default_factory=list)
    compiled: Any = None
    unknown: str = ""
    spent: float = 0.0
    numbers: list[Numbers] = field(default_factory=list)
    results: dict[str, list[np.ndarray]] = field(default_factory=dict)
    first_inputs: list[np.ndarray] | None = None
    #: what its body stores, as the intended trace was told; scopes in it that the intended trace changes
    stored: set[int] | None = None
    changed: list[Scope] = field(default_factory=list)
    #: whether the intended trace drops what a body without outputs returns
    drops: bool = False
    #: names of what it was lowered to; whether wherever it is called the program expects that this does not compile
    modules: list[str] = field(default_factory=list)
    expected: bool | None = None
    #: the file in which it can be run elsewhere, and operands that are kept for that
    exported: str = ""
    given: list[Given] = field(default_factory=list)

    @property
    def width(self) -> int:
        """How many operands the call has, pytrees counting as one."""
        return len(self.tree.children())

    @functools.cached_property
    def label(self) -> str:
        """The kernel's name and shapes, as one text; read at every call."""
        return self.summary().label

    @functools.cached_property
    def key(self) -> tuple[str, ...]:
        """The shapes that go in and come out."""
        return self.summary().key

    def flat(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run`` over flat arrays: Refs are made inside, and their final values come after the outputs."""

        def flat(*values: Any) -> list[Any]:
            operands = [jax.new_ref(v) if ref else v for v, ref in zip(values, self.refs, strict=True)]
            outs = run(*jax.tree.unflatten(self.tree, operands))
            return [*jax.tree.leaves(outs), *(r[...] for r, ref in zip(operands, self.refs, strict=True) if ref)]

        return flat

    def closed(self, traced: Any) -> Any:
        """``traced`` so that it can be lowered alone: what it closes over of the program's own trace is an operand, and
        so is what a fix will make one."""
        constants = jaxseam.constants_of(traced)
        moved = [i for i, c in enumerate(constants) if self.is_moved(c)]
        if not moved:
            return traced
        n = len(self.avals)

        def run(*operands: Any) -> list[Any]:
            given = dict(zip(moved, operands[n:], strict=True))
            return jaxseam.evaluate(traced, [given.get(i, c) for i, c in enumerate(constants)], operands[:n])

        return jax.jit(run).trace(*self.avals, *(jaxseam.aval_of(constants[i]) for i in moved))

    def is_moved(self, constant: Any) -> bool:
        """Whether a value that a trace closes over becomes an operand."""
        return jaxseam.is_tracer(constant) or bool(name_of(constant, self.outside))

    def summary(self) -> KernelCall:
        """What the engine is told."""
        function = self.kernel.function
        return KernelCall(
            name=self.kernel.name,
            entry=self.kernel.entry,
            span=Span(function.path, function.line, 1, function.line, 1) if function else self.span,
            avals=tuple(map(short_type, [*self.avals, *(c for c in self.constants if name_of(c, self.outside))])),
            outputs=tuple(map(short_type, self.kernel.output_avals)),
            stage=self.stage,
            numbers=() if self.kernel.batched else tuple(self.numbers),
            failures=tuple(self.failures),
            unwritten=tuple(self.unwritten),
            seconds=round(self.spent, 3),
            number=self.number,
            batched=self.kernel.batched,
        )
