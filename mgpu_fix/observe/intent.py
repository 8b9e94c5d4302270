"""The intent shims: bodies that store what they return, so that a broken kernel computes what its author meant."""

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from mgpu_fix.model import Returned
from mgpu_fix.observe import jaxseam, locate
from mgpu_fix.observe.kernels import Kernel, Trace
from mgpu_fix.observe.values import Params, binds, leaves_of, params_of, tree_of


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
    value = kernel.body(*given, **named)
    function = locate.user_function(kernel.body)
    if function is None or not leaves_of(value):
        return
    roles = ["input"] * first + ["output"] * kernel.output_count + ["scratch"] * (len(refs) - last)
    params = params_of(kernel.body, refs, named, roles)
    outputs = params[first:last]
    written = tuple(p.name for i, p in enumerate(outputs) if trace.stored and i in trace.stored and p.name)
    silent = kernel.entry == "plgpu.kernel"
    _note(trace, kernel.entry, function, params, value, written, silent)
    if trace.mode == "intended":
        names = [p.name or "" for p in outputs]
        _store(trace, value, list(refs[first:last]), names, trace.stored, silent)


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
        _note(trace, entry, function, Params(), body(*args, **kwargs), ())

    return drop


def pipeline_body(body: Callable[..., Any], trace: Trace, inputs: int, outputs: int) -> Callable[..., None]:
    """A body of ``emit_pipeline`` without a carry: JAX drops what it returns, in every trace."""
    function = locate.user_function(body)

    @functools.wraps(body)
    def stored(indices: Any, *refs: Any) -> None:
        if not binds(body, (indices, *refs), {}):
            trace.callee = "plgpu.emit_pipeline"
        value = body(indices, *refs)
        if function is None or not leaves_of(value):
            return
        roles = ["scratch"] + ["input"] * inputs + ["output"] * (len(refs) - inputs)
        params = params_of(body, (indices, *refs), {}, roles)
        _note(trace, "plgpu.emit_pipeline", function, params[1:], value, (), silent=True, refs=params)
        if trace.mode == "intended":
            _store(trace, value, list(refs[len(refs) - outputs :]))

    return stored


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
    trace: Trace,
    value: Any,
    outputs: list[Any],
    names: Sequence[str] = (),
    stored: set[int] | None = None,
    silent: bool = False,
) -> None:
    """Write what a body returned into the outputs it was meant for, or say in ``trace`` that they cannot be told."""
    try:
        pairs = _targets(value, outputs, names, stored, silent)
        arrays = [(ref, _fitted(leaf, ref)) for leaf, ref in pairs if not jaxseam.is_ref(leaf)]
    except Unclear as e:
        trace.unclear = str(e)
        return
    for ref, array in arrays:
        ref[...] = array


def _targets(
    value: Any, outputs: list[Any], names: Sequence[str], stored: set[int] | None, silent: bool
) -> list[tuple[Any, Any]]:
    leaves = leaves_of(value)
    if all(jaxseam.is_ref(leaf) for leaf in leaves):
        return []
    targets = [ref for output in outputs for ref in leaves_of(output)]
    free = [ref for i, ref in enumerate(outputs) if stored is not None and i not in stored]
    if isinstance(value, dict) and not any(isinstance(o, dict) for o in outputs):
        bare = {n.removesuffix("_ref").removesuffix("_gmem"): ref for n, ref in zip(names, outputs, strict=False)}
        if set(map(str, value)) != set(bare):
            raise Unclear("it returns a dict, and which output each key is for is not known")
        return [(leaf, bare[str(key)]) for key, leaf in value.items()]
    if stored and len(free) == len(leaves) < len(targets):
        targets = free
    elif silent and stored is not None and not free:
        # JAX drops the value and the body wrote everything: what it wrote is what the GPU computes.
        return []
    if len(leaves) != len(targets):
        raise Unclear(f"it returns {len(leaves)} values for {len(targets)} outputs")
    return list(zip(leaves, targets, strict=True))


def _fitted(leaf: Any, ref: Any) -> Any:
    array = jnp.asarray(leaf)
    if array.shape != ref.shape:
        if array.shape != ():
            raise Unclear(f"it returns shape {array.shape}, the output has {ref.shape}")
        array = jnp.full(ref.shape, array)
    return array.astype(ref.dtype)
