"""What the warp-level regions of a traced kernel do, and what each value in them was computed from."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mgpu_fix.model import Operation, Region, Span
from mgpu_fix.observe import jaxseam, locate

#: operations that give nothing, but put their second operand into the Ref that is the first
_STORES = ("swap", "addupdate", "store", "wgmma_accumulator_store")


@dataclass(frozen=True)
class _Flow:
    """What a value is (``ref``) or was computed from; the names are those of :class:`Operation`."""

    ref: int | None = None
    reads: frozenset[int] = frozenset()
    warp: bool = False
    outer: bool = False

    def join(self, other: "_Flow") -> "_Flow":
        """What a value is that comes from both."""
        ref = self.ref if self.ref == other.ref else None
        return _Flow(ref, self.reads | other.reads, self.warp or other.warp, self.outer or other.outer)


@dataclass
class _Open:
    """The region that is being walked through. ``at`` is its first frame outside, where it is called."""

    axis: Any
    at: jaxseam.Frame
    span: Span
    operations: list[Operation] = field(default_factory=list)


def warp_regions(closed: Any) -> tuple[Region, ...]:
    """The warp-level regions in a traced kernel call, in order."""
    walk = _Walk()
    walk.run(closed.jaxpr, {}, None, ())
    return tuple(
        replace(r, operations=tuple(replace(o, elsewhere=walk.is_elsewhere(o, r.span)) for o in r.operations))
        for r in walk.found
    )


class _Walk:
    def __init__(self) -> None:
        self.found: list[Region] = []
        self._refs: dict[Any, int] = {}
        #: every use of a Ref: its number, whether it is stored, whether as a number, and the region, if any
        self._uses: set[tuple[int, bool, bool, Span | None]] = set()

    def is_elsewhere(self, operation: Operation, region: Span) -> bool:
        """See :class:`Operation`."""
        stores = operation.name in _STORES
        return any(
            ref == operation.ref and at != region and (not stored if stores else stored and is_number)
            for ref, stored, is_number, at in self._uses
        )

    def run(self, jaxpr: Any, known: dict[Any, _Flow], region: _Open | None, spans: tuple[Span, ...]) -> list[_Flow]:
        """Flows of the results of ``jaxpr``; ``known`` holds those of its variables, ``spans`` is where it is run."""
        flows = dict(known)
        for variable in (*jaxpr.constvars, *jaxpr.invars):
            if jaxseam.is_ref_type(variable.aval) and flows.get(variable, _Flow()).ref is None:
                # A loop's body comes by several times.
                flows[variable] = _Flow(ref=self._refs.setdefault(variable, len(self._refs)))

        def flow(atom: Any) -> _Flow:
            literal = hasattr(atom, "val")
            return _Flow(outer=bool(getattr(atom.aval, "shape", ()))) if literal else flows.get(atom, _Flow())

        for equation in jaxpr.eqns:
            flows |= zip(equation.outvars, self._step(equation, flow, region, spans), strict=True)
        return [flow(v) for v in jaxpr.outvars]

    def _step(self, equation: Any, flow: Any, region: _Open | None, spans: tuple[Span, ...]) -> list[_Flow]:
        here = self._spans(equation, region) or spans
        axis = jaxseam.warp_axis(equation)
        inner = jaxseam.inner_jaxprs(equation)
        if axis is not None and region is None:
            frame = next((f for f in jaxseam.frames_of(equation) if locate.is_user(f[0])), None)
            if frame is None:
                return [_Flow() for _ in equation.outvars]
            opened = _Open(axis, frame, locate.place_of(frame))
            for jaxpr, bound in inner:
                known = {v: self._entering(flow(a), a) for v, a in bound.items()}
                self.run(jaxpr, known, opened, ())
            self.found.append(Region(opened.span, tuple(opened.operations)))
            return [_Flow() for _ in equation.outvars]
        if inner:
            return self._nested(equation, inner, flow, region, here)
        made = self._made(equation, flow, region)
        self._use(equation, flow, region)
        if region is not None:
            region.operations.append(self._operation(equation, flow, made, here))
        return [made for _ in equation.outvars]

    def _entering(self, flow: _Flow, operand: Any) -> _Flow:
        """What a value is inside of a region that it comes into."""
        is_array = not jaxseam.is_ref_type(operand.aval) and bool(getattr(operand.aval, "shape", ()))
        return _Flow(ref=flow.ref, outer=is_array)

    def _nested(
        self, equation: Any, inner: Any, flow: Any, region: _Open | None, spans: tuple[Span, ...]
    ) -> list[_Flow]:
        outs = [_Flow() for _ in equation.outvars]
        carried = _Flow()
        while True:
            mark = len(region.operations) if region else 0
            found = len(self.found)
            for jaxpr, bound in inner:
                # What a loop carries may come from any of its results.
                known = {v: flow(a) for v, a in bound.items()}
                known = {v: f if f.ref is not None else f.join(carried) for v, f in known.items()}
                results = self.run(jaxpr, known, region, spans)
                outs = [a.join(b) for a, b in zip(outs, results, strict=False)] or outs
            outs += [_Flow() for _ in range(len(equation.outvars) - len(outs))]
            together = functools.reduce(_Flow.join, outs, carried)
            if not jaxseam.is_loop(equation) or together == carried:
                return outs[: len(equation.outvars)]
            carried = replace(together, ref=None)
            if region:
                del region.operations[mark:]
            del self.found[found:]

    def _made(self, equation: Any, flow: Any, region: _Open | None) -> _Flow:
        """What the results of a plain operation come from."""
        flows = [flow(atom) for atom in equation.invars]
        made = replace(functools.reduce(_Flow.join, flows, _Flow()), ref=None)
        if flows and flows[0].ref is not None and jaxseam.operation_name(equation) not in _STORES:
            made = replace(made, reads=made.reads | {flows[0].ref})
        if region is not None and equation.params.get("axis_name") is region.axis:
            made = replace(made, warp=True)
        return made

    def _use(self, equation: Any, flow: Any, region: _Open | None) -> None:
        ref = flow(equation.invars[0]).ref if equation.invars else None
        if ref is not None:
            stored = jaxseam.operation_name(equation) in _STORES
            value = equation.invars[1] if stored else next(iter(equation.outvars), None)
            is_number = not getattr(getattr(value, "aval", None), "shape", ())
            self._uses.add((ref, stored, is_number, region.span if region else None))

    def _operation(self, equation: Any, flow: Any, made: _Flow, spans: tuple[Span, ...]) -> Operation:
        name = jaxseam.operation_name(equation)
        result = equation.invars[1] if name in _STORES else next(iter(equation.outvars), None)
        ref = flow(equation.invars[0]).ref if equation.invars else None
        return Operation(
            name=name,
            spans=spans,
            shape=tuple(n for n in getattr(getattr(result, "aval", None), "shape", ()) if isinstance(n, int)),
            dtype=str(getattr(getattr(result, "aval", None), "dtype", "")),
            ref=ref,
            space=jaxseam.space_of(equation.invars[0].aval) if ref is not None else "",
            reads=tuple(sorted(made.reads)),
            warp=made.warp,
            place=ref is not None and any(flow(v).warp for v in equation.invars[1 + (name in _STORES) :]),
            outer=made.outer,
        )

    def _spans(self, equation: Any, region: _Open | None) -> tuple[Span, ...]:
        """The user's frames of an operation, out to the region that it stands in."""
        if region is None:
            return ()
        return tuple(locate.place_of(f) for f in _within(jaxseam.frames_of(equation), region.at))


def _within(frames: Iterable[jaxseam.Frame], outside: jaxseam.Frame) -> Iterator[jaxseam.Frame]:
    for frame in frames:
        if frame == outside:
            return
        if locate.is_user(frame[0]):
            yield frame
