"""The intent shims: bodies that store what they return, so that a broken kernel computes what its author meant."""

import contextlib
import functools
import itertools
import re
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from mgpu_fix.model import Misfit, Returned, Span
from mgpu_fix.observe import jaxseam, locate
from mgpu_fix.observe.kernels import Kernel, Trace
from mgpu_fix.observe.values import Params, binds, leaves_of, params_of, tree_of
from mgpu_fix.source.names import bare_name


class Unclear(Exception):
    """What the author meant cannot be told, so there are no numbers to compare with."""


def kernel_body(kernel: Kernel, trace: Trace) -> Any:
    """The kernel's body as ``trace`` wants it: untouched in the real trace, but for ``plgpu.kernel``, which drops what
    the body returns and has to be watched."""
    if trace.mode == "real" and kernel.entry != "plgpu.kernel":
        return kernel.body

    def body(*refs: Any, **named: Any) -> None:
        _run(kernel, trace, refs, named)

    if hasattr(kernel.body, "__name__"):
        return functools.wraps(kernel.body)(body)
    # JAX calls a partial "anonymous"; another partial keeps it so.
    return functools.partial(body)


def _run(kernel: Kernel, trace: Trace, refs: tuple[Any, ...], named: dict[str, Any]) -> None:
    first, last = trace.operands, trace.operands + kernel.output_count
    given = refs
    if trace.mode != "real" and not binds(kernel.body, refs, named):
        # The body takes no output parameter: it means to return.
        given = refs[:first] + refs[last:]
    roles = ["input"] * first + ["output"] * kernel.output_count + ["scratch"] * (len(refs) - last)
    params = trace.params = params_of(kernel.body, refs, named, roles)
    value = kernel.body(*given, **named)
    function = locate.user_function(kernel.body)
    if function is None or not leaves_of(value):
        return
    outputs = params[first:last]
    written = _written(refs[first:last], trace.stored)
    silent = kernel.entry == "plgpu.kernel"
    names = tuple(p.name for p, is_written in zip(outputs, written, strict=True) if is_written and p.name)
    _note(trace, kernel.entry, function, params, value, names, silent)
    if trace.mode == "intended":
        free = [not is_written for is_written in written] if trace.stored is not None else None
        _store(trace, value, list(refs[first:last]), [p.name or "" for p in outputs], free)


def _written(outputs: Sequence[Any], stored: set[int] | None) -> list[bool]:
    """Which output parameters the body writes by itself, if only in part; ``stored`` counts leaves."""
    ends = list(itertools.accumulate(len(leaves_of(output)) for output in outputs))
    starts = [0, *ends[:-1]] if ends else []
    return [bool(stored and not stored.isdisjoint(range(a, b))) for a, b in zip(starts, ends, strict=True)]


def warp_body(body: Any, entry: str, trace: Trace | None) -> Any:
    """A warp-level body whose returned value is dropped, but for the real trace."""
    function = locate.user_function(body)
    if trace is None or trace.mode == "real" or function is None:
        return body
    code = getattr(body, "__code__", None)
    if code is not None and not locate.is_user(code.co_filename):
        # JAX's own lambda around the function that was given to warp_map.
        entry = "plgpu.warp_map"

    @functools.wraps(body)
    def drop(*args: Any, **kwargs: Any) -> None:
        before, trace.in_warp = trace.in_warp, True
        try:
            with _inside(trace):
                value = body(*args, **kwargs)
        finally:
            trace.in_warp = before
        _note(trace, entry, function, Params(), value, ())

    return drop


def for_each_warp(function: Callable[[Any], object]) -> None:
    """A warp-level region in another, which JAX refuses: each warp that gets there does what all four do."""
    for warp in range(jaxseam.WARPS):
        function(jnp.int32(warp))


def conditional_body(body: Callable[..., Any], trace: Trace) -> Callable[..., Any]:
    """A body of ``pl.when``, whose value the real trace refuses as one of ``cond``."""
    function = locate.user_function(body)
    if function is None:
        return body

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        value = body(*args, **kwargs)
        if not leaves_of(value):
            return value
        trace.callee = "pl.when"
        kernel = locate.user_function(trace.kernel.body)
        inside = kernel is not None and function.__qualname__.startswith(f"{kernel.__qualname__}.<locals>.")
        params = trace.params if trace.params is not None and inside else Params()
        given = zip(params, getattr(params, "values", ()), strict=True)
        outputs = [(p.name, ref) for p, (_, ref) in given if p.role == "output"]
        written = _written([ref for _, ref in outputs], trace.stored)
        kept = tuple(name for (name, _), is_written in zip(outputs, written, strict=True) if is_written and name)
        _note(trace, "pl.when", function, params, value, kept)
        if trace.mode == "intended" and trace.stored is not None and written == [False]:
            _store(trace, value, [ref for _, ref in outputs], free=[True])
        return value if trace.mode == "real" else None

    return run


@contextlib.contextmanager
def _inside(trace: Trace) -> Iterator[None]:
    """While a body is traced whose outputs are not those of the kernel."""
    before, trace.params = trace.params, None
    try:
        yield
    finally:
        trace.params = before


def pipeline_body(body: Callable[..., Any], entry: str, trace: Trace, inputs: int, outputs: int) -> Callable[..., Any]:
    """A body of a pipeline without a carry. JAX drops what it returns, or, where the pipeline is warp-specialized,
    refuses it in the real trace."""
    function = locate.user_function(body)
    silent = entry == "plgpu.emit_pipeline"

    @functools.wraps(body)
    def stored(indices: Any, *refs: Any) -> Any:
        if not binds(body, (indices, *refs), {}):
            trace.callee = entry
        with _inside(trace):
            value = body(indices, *refs)
        if function is None or not leaves_of(value):
            return None
        roles = ["scratch"] + ["input"] * inputs + ["output"] * (len(refs) - inputs)
        params = params_of(body, (indices, *refs), {}, roles)
        _note(trace, entry, function, params[1:], value, (), silent, refs=params)
        if not silent:
            trace.callee = entry
        if trace.mode == "intended":
            _store(trace, value, list(refs[len(refs) - outputs :]))
        return value if trace.mode == "real" and not silent else None

    return stored


def store_anyway(original: Callable[..., Any], trace: Trace, ref: Any, index: Any, value: Any) -> Any:
    """``ref[index] = value``, where a number fills its whole place and dtypes are converted."""
    try:
        return original(ref, index, value)
    except ValueError as e:
        shape = re.match(r"Invalid shape for `swap`.*Expected shape: \(([\d, ]*)\)", str(e))
        if shape is None and not str(e).startswith("Invalid dtype for `swap`"):
            raise
        array, span = jnp.asarray(value), locate.call_site()
        if span is None or (shape is not None and array.shape):
            raise
        wanted = tuple(int(n) for n in re.findall(r"\d+", shape[1])) if shape else array.shape
        given = jnp.result_type(value) if hasattr(value, "dtype") else type(value).__name__
        fills = shape is not None and jaxseam.is_tracer(value)
        trace.misfits.append(Misfit(span, wanted, str(ref.dtype), array.shape, str(given), fills))
        return original(ref, index, jnp.full(wanted, array, ref.dtype) if shape else array.astype(ref.dtype))


def settled_misfits(met: Sequence[Misfit], traced: Any, several: bool) -> tuple[Misfit, ...]:
    """The misfits of a trace, whose numbers that fill a place do vary if what was ``traced`` stores there more than
    once, which is not known unless it was traced to its end."""
    if traced is None:
        return tuple(dict.fromkeys(met))
    places = Counter(misfit.span for misfit in met)
    # Python's own loops are none any more.
    again: set[Span | None] = {span for span, times in places.items() if times > 1}
    again.update(_stored_again(traced.jaxpr.jaxpr, several))
    return tuple(dict.fromkeys(replace(m, varies=m.varies and m.span in again) for m in met))


def _stored_again(jaxpr: Any, again: bool) -> Iterator[Span | None]:
    """Stores that a loop makes, or all if ``again``, but for those whose place is computed, too."""
    for equation in jaxpr.eqns:
        if again and jaxseam.operation_name(equation) == "swap" and jaxseam.is_fixed(equation):
            yield locate.user_place(jaxseam.frames_of(equation))
        for inner, _ in jaxseam.inner_jaxprs(equation):
            yield from _stored_again(inner, again or jaxseam.is_loop(equation))


def _note(
    trace: Trace,
    entry: str,
    function: types.FunctionType,
    params: Sequence[Any],
    value: Any,
    written: tuple[str, ...],
    silent: bool = False,
    refs: Params | None = None,
) -> None:
    if leaves_of(value):
        known = refs if refs is not None else params
        names = {id(v): p for p, v in getattr(known, "values", ())}
        described = locate.describe(function)
        trace.returned.append(Returned(entry, described, tuple(params), tree_of(value, names), written, silent))


def _store(
    trace: Trace, value: Any, outputs: list[Any], names: Sequence[str] = (), free: Sequence[bool] | None = None
) -> None:
    """Write what a body returned into the outputs it was meant for, or say in ``trace`` that they cannot be told.

    ``free`` are outputs that the body does not write by itself. Where it writes them all, what it returns comes last.
    """
    try:
        pairs = _targets(value, outputs, names, free)
        arrays = [(ref, _fitted(leaf, ref, len(pairs), free)) for leaf, ref in pairs if not jaxseam.is_ref(leaf)]
    except Unclear as e:
        trace.unclear = str(e)
        return
    for ref, array in arrays:
        ref[...] = array


def _targets(
    value: Any, outputs: list[Any], names: Sequence[str], free: Sequence[bool] | None
) -> list[tuple[Any, Any]]:
    leaves = leaves_of(value)
    if all(jaxseam.is_ref(leaf) for leaf in leaves):
        return []
    targets = [ref for output in outputs for ref in leaves_of(output)]
    if isinstance(value, dict) and not any(isinstance(o, dict) for o in outputs):
        bare = {bare_name(name): ref for name, ref in zip(names, outputs, strict=False)}
        if set(map(str, value)) != set(bare):
            raise Unclear("it returns a dict, and which output each key is for is not known")
        return [(leaf, bare[str(key)]) for key, leaf in value.items()]
    rest = [ref for output, is_free in zip(outputs, free or (), strict=False) if is_free for ref in leaves_of(output)]
    if rest and len(rest) == len(leaves) < len(targets):
        targets = rest
    if len(leaves) != len(targets):
        raise Unclear(f"it returns {_count(leaves, 'value')} for {_count(targets, 'output')}")
    return list(zip(leaves, targets, strict=True))


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _fitted(leaf: Any, ref: Any, count: int, free: Sequence[bool] | None) -> Any:
    array = jnp.asarray(leaf)
    if array.shape != ref.shape and _without_ones(array.shape) == _without_ones(ref.shape):
        # Where sizes are 1 there is one place only for each element.
        array = array.reshape(ref.shape)
    if array.shape != ref.shape:
        # Only a number that is written out says that all of the output is meant, and only where nothing else is in it.
        fills = type(leaf) in (int, float) and count == 1 and (free is None or all(free))
        if not fills:
            raise Unclear(f"it returns shape {array.shape}, the output has {ref.shape}")
        array = jnp.full(ref.shape, array)
    return array.astype(ref.dtype)


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]
