"""JAX's entry points, watched: what the program declares with them, and what is meant where a kernel is traced."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mgpu_fix.model import Facts
from mgpu_fix.observe import intent, jaxseam, locate, scopes
from mgpu_fix.observe.kernels import Kernel, Trace, Tracing
from mgpu_fix.observe.records import Records

_RENAMED = {"out_shape": "out_type", "scratch_shapes": "scratch_types"}
#: stands for the kernel while a declaration is only tried
_NO_KERNEL = Kernel("", None, lambda body, interpret: body, (), "", None)


class Declare(Protocol):
    """Makes a kernel for the program to call; ``described`` is what it was declared with, ``mesh`` looks up a field."""

    def __call__(
        self,
        entry: str,
        body: Any,
        build: Callable[[Any, Any], Any],
        outputs: Any,
        described: Mapping[str, Any],
        mesh: Callable[[str], Any],
    ) -> Callable[..., Any]: ...


class Entries:
    """Stands before JAX's entry points. ``tracing`` knows the trace that is being made, ``records`` take what JAX
    refuses, ``declare`` makes the kernels."""

    def __init__(self, tracing: Tracing, records: Records, declare: Declare) -> None:
        self._tracing, self.records, self._declare = tracing, records, declare
        #: Pallas kernels that are not for Mosaic GPU
        self.others = 0

    def install(self) -> None:
        """Patch JAX's entry points in this process."""
        jaxseam.hide(locate.PACKAGE)
        jaxseam.fill_interpreter_gaps()
        jaxseam.allow_captures(lambda: self._tracing.trace is not None and self._tracing.trace.mode == "intended")
        jaxseam.patch("plgpu.kernel", self._plgpu_kernel)
        jaxseam.patch("pl.kernel", self._pl_kernel)
        jaxseam.patch("pl.pallas_call", self._pallas_call)
        jaxseam.patch("pl.core_map", self._core_map)
        jaxseam.patch("plgpu.warp_map", self._warp_map)
        for name in ("plgpu.emit_pipeline", "plgpu.emit_pipeline_warp_specialized"):
            jaxseam.patch(name, functools.partial(self._emit_pipeline, name))
        jaxseam.patch("pl.when", self._when)
        jaxseam.patch("mpmd_map", self._mpmd_map)
        jaxseam.patch("ref_set", self._ref_set)
        jaxseam.patch("pl.run_scoped", self._run_scoped)
        for name in ("pl.program_id", "pl.num_programs"):
            jaxseam.patch(name, functools.partial(self._grid_position, name))

    def _plgpu_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            if self._tracing.trace is not None or kwargs.get("interpret"):
                return original(*args, **kwargs)
            if not args and "body" not in kwargs:
                return lambda body: kernel(body, **kwargs)
            args, kwargs = self._accept_old_names("plgpu.kernel", original, args, kwargs)
            body, rest = (args[0], args[1:]) if args else (kwargs.pop("body"), ())
            outputs = kwargs.get("out_type", kwargs.get("out_shape", rest[0] if rest else ()))

            def build(body: Any, interpret: Any) -> Any:
                return original(body, *rest, **kwargs, **({"interpret": interpret} if interpret else {}))

            return self._declare("plgpu.kernel", body, build, outputs, kwargs, kwargs.get)

        return kernel

    def _pl_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            if self._tracing.trace is not None:
                return original(*args, **kwargs)
            if not args and "body" not in kwargs:
                return lambda body: kernel(body, **kwargs)
            args, kwargs = self._accept_old_names("pl.kernel", original, args, kwargs)
            return original(*args, **kwargs)

        return kernel

    def _mpmd_map(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mpmd_map(meshes_and_fns: Any, /, out_types: Any = (), **kwargs: Any) -> Any:
            meshes = [mesh for mesh, _ in meshes_and_fns]
            trace = self._tracing.trace
            if any(isinstance(m, jaxseam.WarpMesh) for m in meshes):
                pairs = [(mesh, intent.warp_body(body, "pl.kernel", trace)) for mesh, body in meshes_and_fns]
                return original(pairs, out_types, **kwargs)
            if trace is not None or kwargs.get("interpret"):
                return original(meshes_and_fns, out_types, **kwargs)
            if len(meshes) != 1 or not isinstance(meshes[0], jaxseam.Mesh):
                self.others += 1
                return original(meshes_and_fns, out_types, **kwargs)
            [(mesh, body)] = meshes_and_fns

            def build(body: Any, interpret: Any) -> Any:
                return original([(mesh, body)], out_types, **kwargs | ({"interpret": interpret} if interpret else {}))

            described = {**kwargs, "mesh": mesh}
            return self._declare("pl.kernel", body, build, out_types, described, lambda name: getattr(mesh, name, None))

        return mpmd_map

    def _pallas_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def pallas_call(*args: Any, **kwargs: Any) -> Any:
            if self._tracing.trace is not None or kwargs.get("interpret"):
                return original(*args, **kwargs)
            try:
                original(*args, **kwargs)
            except Exception as e:
                body = locate.user_function(args[0] if args else kwargs.get("kernel"))
                name = body.__code__.co_name if body else ""
                self.records.raised(e, "import", name, Facts(callee="pl.pallas_call"))
                if kwargs.get("backend") != "mosaic_gpu" or self.records.caught_here(e):
                    raise
                kwargs = {"compiler_params": jaxseam.CompilerParams(), **kwargs}
                del kwargs["backend"]
            if not jaxseam.is_mosaic_gpu(kwargs.get("compiler_params")):
                # Triton's and TPU's kernels are not ours; let the program go on past them.
                self.others += 1
                return original(*args, **{**kwargs, "interpret": True})
            named = inspect.signature(original).bind(*args, **kwargs).arguments
            body, outputs = named["kernel"], named["out_shape"]
            rest = {k: v for k, v in kwargs.items() if k not in ("kernel", "out_shape", "interpret")}
            blocks = jaxseam.runs_over_blocks(named)

            def build(body: Any, interpret: Any) -> Any:
                # The GPU interpreter takes no grid of blocks; the one that all backends share knows what it means.
                interpret = bool(interpret) if blocks else interpret
                return original(body, outputs, *args[2:], **rest, **({"interpret": interpret} if interpret else {}))

            return self._declare("pl.pallas_call", body, build, outputs, rest, lambda name: None)

        return pallas_call

    def _core_map(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def core_map(mesh: Any, **kwargs: Any) -> Any:
            run = original(mesh, **kwargs)
            if not isinstance(mesh, jaxseam.WarpMesh):
                return run
            return lambda body: run(intent.warp_body(body, "pl.core_map", self._tracing.trace))

        return core_map

    def _warp_map(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def warp_map(function: Any, /) -> Any:
            trace = self._tracing.trace
            nested = trace is not None and trace.mode == "intended" and trace.in_warp
            return intent.for_each_warp(function) if nested else original(function)

        return warp_map

    def _when(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def when(condition: Any, /) -> Any:
            decorate, trace = original(condition), self._tracing.trace
            if trace is None or isinstance(condition, bool):
                return decorate
            return lambda body: decorate(intent.conditional_body(body, trace))

        return when

    def _emit_pipeline(self, entry: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def emit_pipeline(*args: Any, **kwargs: Any) -> Any:
            trace = self._tracing.trace
            body = args[0] if args else kwargs.get("body")
            carries = kwargs.get("init_carry") is not None or kwargs.get("compute_context") is not None
            # Several warpgroups that run the body are each to do a part of it.
            shared = kwargs.get("num_compute_wgs", 1) != 1 or kwargs.get("manual_consumed_barriers")
            if trace is None or carries or shared or not callable(body):
                return original(*args, **kwargs)
            stored = intent.pipeline_body(
                body, entry, trace, len(kwargs.get("in_specs", ())), len(kwargs.get("out_specs", ()))
            )
            return original(stored, *args[1:], **{k: v for k, v in kwargs.items() if k != "body"})

        return emit_pipeline

    def _run_scoped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_scoped(f: Any, *types: Any, collective_axes: Any = (), **named: Any) -> Any:
            trace = self._tracing.trace
            # JAX allocates with it, too: scratch, pipelines.
            caller = sys._getframe(1)
            own = locate.is_user(caller.f_code.co_filename) or jaxseam.is_with_scoped(caller)
            if trace is None or not own:
                return original(f, *types, collective_axes=collective_axes, **named)
            return scopes.Request(original, f, types, named, collective_axes).run(trace)

        return run_scoped

    def _ref_set(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def ref_set(ref: Any, idx: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            trace = self._tracing.trace
            if trace is None or trace.mode != "intended" or args or kwargs:
                return original(ref, idx, value, *args, **kwargs)
            return intent.store_anyway(original, trace, ref, idx, value)

        return ref_set

    def _grid_position(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def grid_position(axis: int) -> Any:
            trace = self._tracing.trace
            if trace is not None and trace.kernel.entry in ("plgpu.kernel", "pl.kernel"):
                trace.grid_position = trace.grid_position or (name, locate.call_site())
            return original(axis)

        return grid_position

    # ------------------------------------------------------------------ declarations

    def _accept_old_names(
        self, entry: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that this JAX takes. A declaration that it refuses is a failure; renamed keywords are translated so
        that the program goes on."""
        try:
            # Nothing is traced by declaring, so declaring once more costs nothing.
            with self._tracing.of(Trace("real", _NO_KERNEL, 0)):
                original(*args, **kwargs)
            return args, kwargs
        except Exception as e:
            used = [k for k in _RENAMED if k in kwargs] or (["out_shape"] if len(args) > 1 else [])
            body = locate.user_function(args[0] if args else kwargs["body"])
            facts = Facts(callee=entry, keyword=used[0] if used else "")
            self.records.raised(e, "import", body.__code__.co_name if body else "", facts)
            if not used or self.records.caught_here(e):
                raise
            # Where both are given, the new name's value stands.
            new = {_RENAMED[k]: v for k, v in kwargs.items() if k in _RENAMED}
            new |= {k: v for k, v in kwargs.items() if k not in _RENAMED}
            if len(args) > 1:
                new.setdefault("out_type", args[1])
            return args[:1], new
