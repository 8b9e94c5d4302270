"""In the run: every kernel call is traced twice, and what happened is recorded.

The **real** trace is the user's kernel untouched, lowered for CUDA; its exception is the failure. The **intended**
trace has the intent shims on and is run by Pallas' GPU interpreter, so that a broken kernel yields what its author
meant and the program goes on to its next failure.

Where the program itself traces (``jit``, ``vmap``, ``scan``, …), both stand behind ``lax.platform_dependent``: a
program that lowers for CUDA by itself gets the true kernel, anything that runs here calls back into the interpreter.
The callback has no effects, so it goes through ``scan``, ``cond`` and ``jax.checkpoint`` alike.
"""

import contextlib
import functools
import inspect
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgpu_fix.model import Facts, Failure, Function, KernelCall, Numbers, Param, Returned, Span
from mgpu_fix.observe import jaxseam, locate
from mgpu_fix.observe.values import (
    binds,
    digest_arrays,
    draw_like,
    fingerprint,
    leaves_of,
    params_of,
    short_type,
    tree_of,
)

#: calls of one kernel whose numbers are kept, and the share of its budget that the interpreter may spend on more
KEPT_CALLS = 3
EXTRA_SHARE = 0.1


class IntentUnclear(Exception):
    """What the author meant cannot be told, so there are no numbers to compare with."""


@dataclass(eq=False)
class Kernel:
    """A kernel as the program declared it. ``build(body, interpret)`` makes the callable that runs ``body``."""

    entry: str
    body: Any
    build: Callable[[Any, Any], Callable[..., Any]]
    outputs: Any
    identity: str
    function: Function | None
    semantics: str = ""
    thread_name: str | None = None

    @property
    def name(self) -> str:
        """The body's name, as the user knows it."""
        return self.function.name if self.function else getattr(self.body, "__name__", "kernel")

    @property
    def output_count(self) -> int:
        """How many output parameters the body is given."""
        return len(self.outputs) if isinstance(self.outputs, (tuple, list)) else 1

    @property
    def output_avals(self) -> list[Any]:
        """Shape and dtype of every output leaf."""
        return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.outputs)]


@dataclass(eq=False)
class Trace:
    """One trace of one kernel. ``mode`` is real, dropped (returned values thrown away) or intended."""

    mode: str
    kernel: Kernel
    operands: int
    stored: set[int] | None = None
    returned: list[Returned] = field(default_factory=list)
    unclear: str = ""
    grid_position: tuple[str, Span | None] | None = None
    callee: str = ""


@dataclass(eq=False)
class Call:
    """A (kernel, avals) and all that is known of it."""

    kernel: Kernel
    avals: list[Any]
    refs: list[bool]
    tree: Any
    span: Span | None
    stage: str = "trace"
    error: Exception | None = None
    failures: list[int] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    results: dict[str, list[np.ndarray]] = field(default_factory=dict)
    first_inputs: list[np.ndarray] | None = None
    intended: Any = None
    constants: list[Any] = field(default_factory=list)
    compiled: Any = None
    unknown: str = ""
    spent: float = 0.0
    batched: bool = False


class Probe:
    """Watches one program run. ``folder`` receives arrays; ``emit`` receives each new fact as (kind, value)."""

    def __init__(
        self, folder: Path, emit: Callable[[str, Any], None], budget: float, skip: frozenset[str], include_caught: bool
    ) -> None:
        self.folder, self.emit, self.budget, self.skip, self.include_caught = folder, emit, budget, skip, include_caught
        self.calls: dict[str, Call] = {}
        self.failures: list[Failure] = []
        self.errors: list[BaseException] = []
        self.declared: dict[Function, None] = {}
        self.others = 0
        self._local = threading.local()
        # Two locks: a trace may wait for a computation whose callback needs the interpreter.
        self._lock = threading.RLock()
        self._interpreting = threading.RLock()
        self._declaration_failures: set[tuple[Any, ...]] = set()
        self._arrays = 0

    # ------------------------------------------------------------------ patching

    def install(self) -> None:
        """Patch JAX's entry points in this process."""
        jaxseam.fill_interpreter_gaps()
        jaxseam.patch("plgpu.kernel", self._plgpu_kernel)
        jaxseam.patch("pl.kernel", self._pl_kernel)
        jaxseam.patch("pl.pallas_call", self._pallas_call)
        jaxseam.patch("pl.core_map", self._core_map)
        jaxseam.patch("plgpu.emit_pipeline", self._emit_pipeline)
        jaxseam.patch("mpmd_map", self._mpmd_map)
        for name in ("pl.program_id", "pl.num_programs"):
            jaxseam.patch(name, functools.partial(self._grid_position, name))

    @property
    def _trace(self) -> Trace | None:
        return getattr(self._local, "trace", None)

    @contextlib.contextmanager
    def _tracing(self, trace: Trace | None) -> Iterator[Trace | None]:
        before, self._local.trace = self._trace, trace
        try:
            yield trace
        finally:
            self._local.trace = before

    def _plgpu_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            if self._trace is not None or kwargs.get("interpret"):
                return original(*args, **kwargs)
            if not args and "body" not in kwargs:
                return lambda body: kernel(body, **kwargs)
            args, kwargs = self._accept_old_names("plgpu.kernel", original, args, kwargs)
            body, rest = (args[0], args[1:]) if args else (kwargs.pop("body"), ())
            outputs = kwargs.get("out_type", kwargs.get("out_shape", rest[0] if rest else ()))

            def build(body: Any, interpret: Any) -> Callable[..., Any]:
                return original(body, *rest, **kwargs, **({"interpret": interpret} if interpret else {}))  # type: ignore[no-any-return]

            return self._declare(
                "plgpu.kernel", body, build, outputs, kwargs, kwargs.get("compiler_params"), kwargs.get("thread_name")
            )

        return kernel

    def _pl_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            if self._trace is not None:
                return original(*args, **kwargs)
            if not args and "body" not in kwargs:
                return lambda body: kernel(body, **kwargs)
            args, kwargs = self._accept_old_names("pl.kernel", original, args, kwargs)
            return original(*args, **kwargs)

        return kernel

    def _mpmd_map(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mpmd_map(meshes_and_fns: Any, /, out_types: Any = (), **kwargs: Any) -> Any:
            meshes = [mesh for mesh, _ in meshes_and_fns]
            if any(isinstance(m, jaxseam.WarpMesh) for m in meshes):
                pairs = [(mesh, self._warp_body(fn, "pl.kernel")) for mesh, fn in meshes_and_fns]
                return original(pairs, out_types, **kwargs)
            if self._trace is not None or kwargs.get("interpret"):
                return original(meshes_and_fns, out_types, **kwargs)
            if len(meshes) != 1 or not isinstance(meshes[0], jaxseam.Mesh):
                self.others += 1
                return original(meshes_and_fns, out_types, **kwargs)
            [(mesh, body)] = meshes_and_fns

            def build(body: Any, interpret: Any) -> Callable[..., Any]:
                more = {**kwargs, "interpret": interpret} if interpret else kwargs
                return original([(mesh, body)], out_types, **more)  # type: ignore[no-any-return]

            described = {**kwargs, "mesh": mesh, "out_types": out_types}
            return self._declare(
                "pl.kernel", body, build, out_types, described, kwargs.get("compiler_params"), mesh.thread_name
            )

        return mpmd_map

    def _pallas_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def pallas_call(*args: Any, **kwargs: Any) -> Any:
            if self._trace is not None or kwargs.get("interpret"):
                return original(*args, **kwargs)
            try:
                original(*args, **kwargs)
            except Exception as e:
                self._failed(e, "import", facts=Facts(callee="pl.pallas_call"))
                raise
            if not jaxseam.is_mosaic_gpu(kwargs.get("compiler_params")):
                # Triton's and TPU's kernels are not ours; let the program go on past them.
                self.others += 1
                return original(*args, **{**kwargs, "interpret": True})
            named = inspect.signature(original).bind(*args, **kwargs).arguments
            body, outputs = named["kernel"], named["out_shape"]

            def build(body: Any, interpret: Any) -> Callable[..., Any]:
                more = {"interpret": interpret} if interpret else {}
                rest = {k: v for k, v in kwargs.items() if k not in ("kernel", "out_shape")}
                return original(body, outputs, *args[2:], **rest, **more)  # type: ignore[no-any-return]

            return self._declare("pl.pallas_call", body, build, outputs, kwargs, kwargs.get("compiler_params"), None)

        return pallas_call

    def _core_map(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def core_map(mesh: Any, **kwargs: Any) -> Any:
            run = original(mesh, **kwargs)
            if not isinstance(mesh, jaxseam.WarpMesh):
                return run
            return lambda body: run(self._warp_body(body, "pl.core_map"))

        return core_map

    def _warp_body(self, body: Any, entry: str) -> Any:
        """A warp-level body whose returned value is dropped while the intended trace is made."""
        trace = self._trace
        if trace is None or trace.mode == "real":
            return body
        function = locate.user_function(body)
        if function is None:
            return body
        if not locate.is_user(getattr(getattr(body, "__code__", None), "co_filename", "") or "<partial>"):
            entry = "plgpu.warp_map" if not isinstance(body, functools.partial) else entry

        @functools.wraps(body)
        def drop(*args: Any, **kwargs: Any) -> None:
            self._note(trace, entry, function, (), body(*args, **kwargs), ())

        return drop

    def _grid_position(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def grid_position(axis: int) -> Any:
            trace = self._trace
            if trace is not None and trace.kernel.entry in ("plgpu.kernel", "pl.kernel"):
                trace.grid_position = trace.grid_position or (name, locate.call_site())
            return original(axis)

        return grid_position

    def _emit_pipeline(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def emit_pipeline(*args: Any, **kwargs: Any) -> Any:
            trace = self._trace
            body = args[0] if args else kwargs.get("body")
            if trace is None or kwargs.get("init_carry") is not None or not callable(body):
                return original(*args, **kwargs)
            outputs = len(kwargs.get("out_specs", ()))
            inputs = len(kwargs.get("in_specs", ()))
            function = locate.user_function(body)

            @functools.wraps(body)
            def stored(indices: Any, *refs: Any) -> None:
                if not binds(body, (indices, *refs), {}):
                    trace.callee = "plgpu.emit_pipeline"
                value = body(indices, *refs)
                if function is not None and leaves_of(value):
                    roles = ["input"] * inputs + ["output"] * (len(refs) - inputs)
                    params = params_of(body, (indices, *refs), {}, ["scratch", *roles])[1:]
                    self._note(trace, "plgpu.emit_pipeline", function, params, value, (), silent=True)
                    if trace.mode == "intended":
                        self._store(value, list(refs[len(refs) - outputs :]), None)

            return original(stored, *args[1:], **{k: v for k, v in kwargs.items() if k != "body"})

        return emit_pipeline

    # ------------------------------------------------------------------ declarations

    def _accept_old_names(
        self, entry: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that this JAX takes. A declaration that it refuses is a failure; renamed keywords are translated so
        that the program goes on."""
        try:
            # Nothing is traced by declaring, so declaring once more costs nothing.
            with self._tracing(Trace("real", _NO_KERNEL, 0)):
                original(*args, **kwargs)
            return args, kwargs
        except Exception as e:
            used = [k for k in _RENAMED if k in kwargs] or (["out_shape"] if len(args) > 1 else [])
            self._failed(
                e, "import", facts=Facts(callee=entry, keyword=used[0] if used else ""), kernel=_body_name(args, kwargs)
            )
            new = {_RENAMED.get(k, k): v for k, v in sorted(kwargs.items(), key=lambda i: i[0] not in _RENAMED)}
            if len(args) > 1:
                new.setdefault("out_type", args[1])
                args = args[:1]
            if not used:
                raise
            return args, new

    def _declare(
        self,
        entry: str,
        body: Any,
        build: Callable[[Any, Any], Callable[..., Any]],
        outputs: Any,
        described: Mapping[str, Any],
        compiler_params: Any,
        thread_name: Any,
    ) -> Callable[..., Any]:
        function = locate.user_function(body)
        semantics = str(getattr(compiler_params, "lowering_semantics", "")).rpartition(".")[2]
        kernel = Kernel(
            entry=entry,
            body=body,
            build=build,
            outputs=outputs,
            identity=fingerprint([entry, body, outputs, dict(described)]),
            function=locate.describe(function) if function else None,
            semantics=semantics or jaxseam.default_semantics(),
            thread_name=thread_name if isinstance(thread_name, str) else None,
        )
        if kernel.function and kernel.function not in self.declared:
            self.declared[kernel.function] = None
            self.emit("declared", kernel.function)
        batched = function is not None and getattr(body, "__name__", "") == "batched_body" and body is not function

        try:
            build(self._body(kernel, None), None)
        except Exception as e:
            self._failed(e, "import", facts=Facts(callee=entry), kernel=kernel.name)
            raise

        def run(*operands: Any, **kwargs: Any) -> Any:
            return self._call(kernel, operands, kwargs, batched)

        # Not functools.wraps: jit would read the body's signature off it, Refs and all.
        run.__name__ = kernel.name
        return run

    def _body(self, kernel: Kernel, trace: Trace | None) -> Any:
        """The kernel's body as one trace wants it."""
        if trace is None or (trace.mode == "real" and kernel.entry != "plgpu.kernel"):
            return kernel.body

        def body(*refs: Any, **named: Any) -> None:
            self._run_body(kernel, trace, refs, named)

        if hasattr(kernel.body, "__name__"):
            return functools.wraps(kernel.body)(body)
        # JAX calls a partial "anonymous"; another partial keeps it so.
        return functools.partial(body)

    def _run_body(self, kernel: Kernel, trace: Trace, refs: tuple[Any, ...], named: dict[str, Any]) -> None:
        first, last = trace.operands, trace.operands + kernel.output_count
        roles = ["input"] * first + ["output"] * kernel.output_count + ["scratch"] * (len(refs) - last)
        given = refs
        if trace.mode != "real" and not binds(kernel.body, refs, named):
            # The body takes no output parameter: it means to return.
            given = refs[:first] + refs[last:]
        value = kernel.body(*given, **named)
        function = locate.user_function(kernel.body)
        if function is None or not leaves_of(value):
            return
        params = params_of(kernel.body, refs, named, roles)
        outputs = list(refs[first:last])
        written = tuple(
            p.name for i, p in enumerate(params[first:last]) if trace.stored and i in trace.stored and p.name
        )
        silent = kernel.entry == "plgpu.kernel"
        self._note(trace, kernel.entry, function, params, value, written, silent)
        if trace.mode == "intended":
            try:
                self._store(value, outputs, trace.stored, silent, [p.name or "" for p in params[first:last]])
            except IntentUnclear as e:
                trace.unclear = str(e)

    def _note(
        self,
        trace: Trace,
        entry: str,
        function: types.FunctionType,
        params: Sequence[Param],
        value: Any,
        written: tuple[str, ...],
        silent: bool = False,
    ) -> None:
        if leaves_of(value):
            refs = {id(v): p for p, v in getattr(params, "values", ())}
            trace.returned.append(
                Returned(entry, locate.describe(function), tuple(params), tree_of(value, refs), written, silent)
            )

    def _store(
        self,
        value: Any,
        outputs: list[Any],
        stored: set[int] | None,
        silent: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        """Write what a body returned into the outputs it was meant for. Raises IntentUnclear."""
        leaves = leaves_of(value)
        if all(jaxseam.is_ref(leaf) for leaf in leaves):
            return
        targets = [ref for output in outputs for ref in leaves_of(output)]
        free = [ref for i, ref in enumerate(outputs) if stored is not None and i not in stored]
        if isinstance(value, dict) and not any(isinstance(o, dict) for o in outputs):
            bare = {
                name.removesuffix("_ref").removesuffix("_gmem"): ref for name, ref in zip(names, outputs, strict=False)
            }
            if set(map(str, value)) != set(bare):
                raise IntentUnclear("it returns a dict, and which output each key is for is not known")
            leaves, targets = list(value.values()), [bare[str(k)] for k in value]
        elif stored and len(free) == len(leaves) and len(free) < len(targets):
            targets = free
        elif silent and stored is not None and not free:
            # JAX drops the value and the body wrote everything: what it wrote is what the GPU computes.
            return
        if len(leaves) != len(targets):
            raise IntentUnclear(f"it returns {len(leaves)} values for {len(targets)} outputs")
        for leaf, ref in zip(leaves, targets, strict=True):
            if jaxseam.is_ref(leaf):
                continue
            array = jnp.asarray(leaf)
            if array.shape != ref.shape:
                if array.shape != ():
                    raise IntentUnclear(f"it returns shape {array.shape}, the output has {ref.shape}")
                array = jnp.full(ref.shape, array)
            ref[...] = array.astype(ref.dtype)

    # ------------------------------------------------------------------ calls

    def _call(self, kernel: Kernel, operands: tuple[Any, ...], kwargs: dict[str, Any], batched: bool) -> Any:
        if kwargs or self._trace is not None:
            return kernel.build(kernel.body, None)(*operands, **kwargs)
        flat, tree = jax.tree.flatten(operands)
        flat = [v if hasattr(v, "dtype") else jnp.asarray(v) for v in flat]
        with self._lock:
            call = self._observed(kernel, flat, tree, batched)
        if call.error is not None and locate.is_caught() and not self.include_caught:
            raise call.error
        outs = self._staged(call, flat) if jaxseam.is_tracing(flat) else self._eager(call, flat)
        return jax.tree.unflatten(jax.tree.structure(kernel.outputs), outs)

    def _observed(self, kernel: Kernel, flat: list[Any], tree: Any, batched: bool) -> Call:
        key = fingerprint([kernel.identity, str(tree), [jaxseam.type_of(v) for v in flat]])
        call = self.calls.get(key)
        if call is None:
            avals, refs = [jaxseam.aval_of(v) for v in flat], [jaxseam.is_ref(v) for v in flat]
            call = Call(kernel, avals, refs, tree, locate.call_site(), batched=batched)
            self.calls[key] = call
            self._trace_twice(call)
            self.emit("call", self.summary(call))
        return call

    def _trace_twice(self, call: Call) -> None:
        kernel, operands = call.kernel, _width(call.tree)
        real = Trace("real", kernel, operands)
        closed = None
        caught = locate.is_caught() and not self.include_caught
        try:
            with self._tracing(real):
                traced = jax.jit(_flat(kernel.build(self._body(kernel, real), None), call)).trace(*call.avals)
                closed = traced.jaxpr
                call.stage = "lower"
                self._lower(traced, call)
            call.stage = "run"
        except Exception as e:
            call.error = e
        dropped = bool(real.returned) or (call.error is not None and call.stage == "trace")
        stored = (
            jaxseam.written_outputs(closed, len(call.avals), len(kernel.output_avals)) if closed is not None else None
        )
        if dropped and stored is None:
            stored = self._stores_of_its_own(call, operands)
        intended = Trace("intended", kernel, operands, stored)
        try:
            with self._tracing(intended):
                run = kernel.build(self._body(kernel, intended), jaxseam.interpreter())
                call.intended = jax.jit(_flat(run, call)).trace(*call.avals)
                if jaxseam.has_tracer_constants(call.intended):
                    call.constants = list(call.intended.jaxpr.consts)
            call.unknown = intended.unclear
        except Exception as e:
            call.unknown = f"the interpreter's trace fails too: {type(e).__name__}: {_first_line(e)}"
        returned = tuple(intended.returned or real.returned)
        facts = Facts(
            returned=returned,
            callee=real.callee or kernel.entry,
            semantics=kernel.semantics,
            thread_name=kernel.thread_name,
        )
        silent = tuple(r for r in real.returned if r.silent)
        if silent:
            self._dropped(call, silent, returned, caught)
        if real.grid_position is not None:
            self._misplaced(call, *real.grid_position, caught)
        if call.error is not None:
            function = kernel.function
            place = (
                Span(function.path, function.line, function.column, function.line, function.column)
                if function
                else None
            )
            call.failures.append(self._failed(call.error, call.stage, kernel.name, facts, caught, call.span or place))

    def _stores_of_its_own(self, call: Call, operands: int) -> set[int] | None:
        trace = Trace("dropped", call.kernel, operands)
        try:
            with self._tracing(trace):
                run = call.kernel.build(self._body(call.kernel, trace), jaxseam.interpreter())
                closed = jax.jit(_flat(run, call)).trace(*call.avals).jaxpr
            return jaxseam.written_outputs(closed, len(call.avals), len(call.kernel.output_avals))
        except Exception:
            return None

    def _lower(self, traced: Any, call: Call) -> None:
        _closed_over_operands(traced, call).lower(lowering_platforms=("cuda",))

    def _dropped(self, call: Call, silent: tuple[Returned, ...], returned: tuple[Returned, ...], caught: bool) -> None:
        first = silent[0]
        body = first.body
        message = (
            f"The kernel function in {first.entry} {body.name} at {body.path}:{body.line} should return None. JAX drops"
            " what it returns without an error."
        )
        failure = Failure(
            type="ReturnedValueDropped",
            message=message,
            stage="trace",
            span=locate.return_span(body),
            kernel=call.kernel.name,
            chain=(("ReturnedValueDropped", message),),
            facts=Facts(returned=returned, callee=first.entry, semantics=call.kernel.semantics),
            caught=caught,
        )
        call.failures.append(self._add(failure, None))

    def _misplaced(self, call: Call, name: str, span: Span | None, caught: bool) -> None:
        """``pl.program_id`` in a kernel over a mesh lowers, but the interpreter gives it a wrong index."""
        call.unknown = call.unknown or f"the interpreter gives {name} a wrong value"
        message = f"{name} in a kernel over a mesh: JAX lowers it, but its interpreter gives it a wrong value."
        chain = (("UnreliableGridPosition", message),)
        facts = Facts(callee=name)
        failure = Failure(chain[0][0], message, "trace", span, call.kernel.name, chain, facts=facts, caught=caught)
        call.failures.append(self._add(failure, None))

    def _failed(
        self,
        error: Exception,
        stage: str,
        kernel: str = "",
        facts: Facts = Facts(),
        caught: bool | None = None,
        place: Span | None = None,
    ) -> int:
        caught = (locate.is_caught() and not self.include_caught) if caught is None else caught
        failure = locate.failure(error, stage, kernel, facts, caught)
        if facts.returned and stage == "trace" and "should return None" in failure.message:
            failure = replace(failure, span=locate.return_span(facts.returned[0].body))
        return self._add(replace(failure, span=failure.span or locate.call_site() or place), error)

    def stopped_by(self, error: Exception) -> None:
        """Record an error of Pallas that ended the program outside of every declaration and call."""
        self._failed(error, "trace" if self.calls else "import", caught=False)

    def _add(self, failure: Failure, error: Exception | None) -> int:
        place = (failure.type, failure.message, failure.span, failure.stage)
        if failure.stage == "import" and place in self._declaration_failures:
            return next(i for i, f in enumerate(self.failures) if (f.type, f.message, f.span, f.stage) == place)
        self._declaration_failures.add(place)
        if error is not None:
            self.errors.append(error)
        self.failures.append(failure)
        self.emit("failure", failure)
        return len(self.failures) - 1

    # ------------------------------------------------------------------ numbers

    def _eager(self, call: Call, flat: list[Any]) -> list[Any]:
        values = [np.asarray(v[...] if ref else v) for v, ref in zip(flat, call.refs, strict=True)]
        outs = self._interpret(call, values)
        count = len(call.kernel.output_avals)
        self._write_back(call, flat, outs[count:])
        return [jnp.asarray(o) for o in outs[:count]]

    def _staged(self, call: Call, flat: list[Any]) -> list[Any]:
        values = [v[...] if ref else v for v, ref in zip(flat, call.refs, strict=True)]
        avals = [*call.kernel.output_avals, *(a for a, ref in zip(call.avals, call.refs, strict=True) if ref)]
        constants = call.constants

        def run_here(*operands: Any) -> Any:
            def host(*arrays: Any) -> Any:
                split = len(constants)
                values = [np.asarray(a) for a in arrays]
                return tuple(self._interpret(call, values[split:], values[:split]))

            return jax.pure_callback(host, tuple(avals), *constants, *operands, vmap_method="sequential")

        def run_on_gpu(*operands: Any) -> Any:
            if call.error is not None:
                return tuple(jnp.zeros(a.shape, a.dtype) for a in avals)
            with self._tracing(Trace("real", call.kernel, _width(call.tree))) as trace:
                return tuple(_flat(call.kernel.build(self._body(call.kernel, trace), None), call)(*operands))

        outs = jax.lax.platform_dependent(*values, cuda=run_on_gpu, default=run_here)
        count = len(call.kernel.output_avals)
        self._write_back(call, flat, outs[count:])
        return list(outs[:count])

    def _write_back(self, call: Call, flat: list[Any], finals: Sequence[Any]) -> None:
        for ref, final in zip((v for v, is_ref in zip(flat, call.refs, strict=True) if is_ref), finals, strict=True):
            ref[...] = jnp.asarray(final)

    def _interpret(
        self, call: Call, values: list[np.ndarray], constants: Sequence[np.ndarray] = ()
    ) -> list[np.ndarray]:
        """Outputs of the intended kernel, placeholder zeros where it cannot be run; keeps a record of it."""
        with self._interpreting:
            operands = [*constants, *values]
            inputs = digest_arrays(operands)
            if inputs in call.results:
                return call.results[inputs]
            why = call.unknown or ("too large to interpret" if self._key(call) in self.skip else "")
            many = len(call.numbers) >= KEPT_CALLS and call.spent > EXTRA_SHARE * self.budget
            if not why and (many or call.spent > self.budget):
                why = "called too often to interpret" if many else "too large to interpret"
            outs = None if why else self._timed(call, operands)
            if outs is None:
                state = "tainted" if not call.unknown or call.error is None else "unknown"
                if len(call.numbers) < KEPT_CALLS:
                    call.numbers.append(Numbers(state, inputs, why=call.unknown or why))
                outs = [np.zeros(a.shape, a.dtype) for a in call.kernel.output_avals]
                outs += [v for v, ref in zip(values, call.refs, strict=True) if ref]
                return outs
            if len(call.numbers) < KEPT_CALLS:
                call.results[inputs] = outs
                call.first_inputs = call.first_inputs or operands
                call.numbers.append(Numbers("known", inputs, self._save(outs)))
            return outs

    def _timed(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        started = time.monotonic()
        try:
            with jaxseam.time_limit(max(0.1, self.budget - call.spent)):
                return self._execute(call, operands)
        except Exception as e:
            jaxseam.reset_interpreter()
            late = time.monotonic() - started >= self.budget - call.spent
            call.unknown = (
                "too large to interpret"
                if late
                else f"the interpreter cannot run it: {type(e).__name__}: {_first_line(e)}"
            )
            return None
        finally:
            call.spent += time.monotonic() - started

    def _execute(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        if call.compiled is None:
            call.compiled = _closed_over_operands(call.intended, call).lower().compile()
        outs = call.compiled(*operands)
        return [np.asarray(o) for o in jax.tree.leaves(outs)]

    def prove_more(self, keys: frozenset[tuple[str, ...]] | None) -> None:
        """After the program: run the kernels whose key is in ``keys`` (None: those that failed) on one more draw of
        inputs, and once more on the program's own to see whether they agree bit for bit."""
        for call in self.calls.values():
            wanted = bool(call.failures) if keys is None else self.summary(call).key in keys
            if not wanted or call.first_inputs is None or not call.numbers or call.numbers[0].state != "known":
                continue
            again = self._timed(call, call.first_inputs)
            drawn = self._timed(call, draw_like(call.first_inputs))
            first = call.numbers[0]
            stable = again is not None and digest_arrays(again) == digest_arrays(call.results[first.inputs])
            call.numbers[0] = Numbers(
                first.state, first.inputs, first.outputs, self._save(drawn) if drawn else (), first.why, stable
            )
            self.emit("call", self.summary(call))

    def _save(self, arrays: Sequence[np.ndarray]) -> tuple[str, ...]:
        names = []
        for array in arrays:
            self._arrays += 1
            name = f"{self._arrays:05d}.{array.dtype.name}.npy"
            # NumPy has no name for bfloat16 and the float8s: their bytes are kept, the name tells the dtype.
            plain = array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")
            np.save(self.folder / name, np.ascontiguousarray(plain).reshape(array.shape), allow_pickle=False)
            names.append(name)
        return tuple(names)

    def _key(self, call: Call) -> str:
        return " ".join((call.kernel.name, *self.summary(call).key))

    def summary(self, call: Call) -> KernelCall:
        """What the engine is told of a call."""
        function = call.kernel.function
        return KernelCall(
            name=call.kernel.name,
            entry=call.kernel.entry,
            span=Span(function.path, function.line, 1, function.line, 1) if function else call.span,
            avals=tuple(short_type(a) for a in call.avals),
            outputs=tuple(short_type(a) for a in call.kernel.output_avals),
            stage=call.stage,
            numbers=() if call.batched else tuple(call.numbers),
            failures=tuple(call.failures),
            seconds=round(call.spent, 3),
        )


_RENAMED = {"out_shape": "out_type", "scratch_shapes": "scratch_types"}
_NO_KERNEL = Kernel("", None, lambda body, interpret: body, (), "", None)


def _body_name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    body = args[0] if args else kwargs.get("body")
    function = locate.user_function(body) if body is not None else None
    return function.__code__.co_name if function else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


def _width(tree: Any) -> int:
    return len(tree.children())


def _flat(run: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """``run`` over flat arrays: Refs are made inside, and their final values come after the outputs."""

    def flat(*values: Any) -> Any:
        operands = [jax.new_ref(v) if ref else v for v, ref in zip(values, call.refs, strict=True)]
        outs = run(*jax.tree.unflatten(call.tree, operands))
        return [*jax.tree.leaves(outs), *(r[...] for r, ref in zip(operands, call.refs, strict=True) if ref)]

    return flat


def _closed_over_operands(traced: Any, call: Call) -> Any:
    """A trace that can be lowered alone: values of the program's own trace that it closes over become operands."""
    if not jaxseam.has_tracer_constants(traced):
        return traced
    closed = traced.jaxpr
    constants = [jaxseam.aval_of(c) for c in closed.consts]
    n = len(constants)
    return jax.jit(lambda *a: jaxseam.evaluate(closed, a[:n], a[n:])).trace(*constants, *call.avals)
