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
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgpu_fix.model import (
    Captures,
    Facts,
    Function,
    Region,
    Scope,
    Span,
    TensorMemoryUse,
    Uncommitted,
    digest,
)
from mgpu_fix.observe import intent, jaxseam, locate, scopes
from mgpu_fix.observe.commits import uncommitted
from mgpu_fix.observe.device import Exported
from mgpu_fix.observe.entries import Entries
from mgpu_fix.observe.interpreter import Interpreter
from mgpu_fix.observe.kernels import Call, Kernel, Trace, Tracing
from mgpu_fix.observe.records import Records
from mgpu_fix.observe.regions import warp_regions
from mgpu_fix.observe.survey import Survey, survey
from mgpu_fix.observe.tensor_memory import tensor_memory_uses
from mgpu_fix.observe.values import fingerprint, first_line, name_of, outside


class Probe:
    """Watches one program run. ``folder`` receives arrays, and with ``keep_modules`` what kernels are lowered to,
    with ``export`` what a GPU needs to run them; ``emit`` receives each new fact as (kind, value)."""

    def __init__(
        self,
        folder: Path,
        emit: Callable[[str, Any], None],
        budget: float,
        skip: frozenset[str],
        kernels: Mapping[tuple[str, ...], int],
        include_caught: bool,
        keep_modules: bool,
        export: bool,
    ) -> None:
        self.emit, self.folder, self.keep_modules, self.export = emit, folder, keep_modules, export
        self.records = Records(emit, include_caught)
        self.interpreter = Interpreter(folder, budget, skip, kernels, export)
        self.calls: dict[str, Call] = {}
        self.declared: dict[Function, None] = {}
        #: by the place of a scope, the thread axes of all kernels that come by it, an empty name for none
        self._threads: dict[Span, set[str]] = {}
        self._tracing = Tracing()
        self._entries = Entries(self._tracing, self.records, self._declare)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._made: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()

    def install(self) -> None:
        """Watch JAX's entry points in this process."""
        self._entries.install()

    @property
    def others(self) -> int:
        """How many Pallas kernels there are that are not for Mosaic GPU."""
        return self._entries.others

    # ------------------------------------------------------------------ declarations

    def _declare(
        self,
        entry: str,
        body: Any,
        build: Callable[[Any, Any], Any],
        outputs: Any,
        described: Mapping[str, Any],
        mesh: Callable[[str], Any],
    ) -> Callable[..., Any]:
        """A kernel for the program to call; ``described`` is what it was declared with, ``mesh`` looks up a field."""
        function = locate.user_function(body)
        params = described.get("compiler_params")
        semantics = str(getattr(params, "lowering_semantics", "")).rpartition(".")[2]
        kernel = Kernel(
            entry=entry,
            body=body,
            build=build,
            outputs=outputs,
            identity=fingerprint([entry, outputs, dict(described)]),
            function=locate.describe(function) if function else None,
            semantics=semantics or jaxseam.default_semantics(),
            barriers=not getattr(params, "unsafe_no_auto_barriers", False),
            thread_name=mesh("thread_name"),
            axes=jaxseam.mesh_axes(mesh),
            batched=body is not function and getattr(body, "__name__", "") == jaxseam.BATCHED_BODY,
        )
        if kernel.function and kernel.function not in self.declared:
            self.declared[kernel.function] = None
            self.emit("declared", kernel.function)

        def run(*operands: Any, **kwargs: Any) -> Any:
            return self._call(kernel, operands, kwargs)

        # Not functools.wraps: jit would read the body's signature off it, Refs and all.
        run.__name__ = kernel.name
        self._made.add(run)
        return run

    def is_kernel(self, value: object) -> bool:
        """Whether a value of the program's is a kernel that can be called."""
        return callable(value) and any(value is made for made in self._made)

    # ------------------------------------------------------------------ calls

    def _call(self, kernel: Kernel, operands: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or self._tracing.trace is not None:
            return kernel.build(kernel.body, None)(*operands, **kwargs)
        if os.getpid() != self._process:
            # What runs the numbers has threads, which a fork does not have: it would wait for them for ever.
            raise RuntimeError("mgpu-fix runs no kernel in a process that the program forked")
        flat, tree = jax.tree.flatten(operands)
        flat = [v if hasattr(v, "dtype") else jnp.asarray(v) for v in flat]
        with self._lock:
            call = self._observed(kernel, flat, tree)
            self.interpreter.touched.add(call.label)
            self.records.met_again(call)
            self._tell_modules(call)
        if call.error is not None and (self.records.caught_here(call.error) or not kernel.has_outputs):
            raise call.error
        outs = self._staged(call, flat) if jaxseam.is_tracing(flat) else self._eager(call, flat)
        return jax.tree.unflatten(jax.tree.structure(kernel.outputs), outs)

    def _observed(self, kernel: Kernel, flat: list[Any], tree: Any) -> Call:
        # JAX traces a kernel at every call, so what it reads of the program's state counts as it is now.
        key = fingerprint([kernel.identity, kernel.body, str(tree), [jaxseam.type_of(v) for v in flat]])
        call = self.calls.get(key)
        if call is None and self._closed:
            raise RuntimeError(f"the program does not call {kernel.name} so")
        if call is None:
            avals, refs = [jaxseam.aval_of(v) for v in flat], [jaxseam.is_ref(v) for v in flat]
            call = self.calls[key] = Call(kernel, avals, refs, tree, locate.call_site(), len(self.calls))
            self._trace_twice(call)
            self.emit("call", call.summary())
        return call

    def _trace_twice(self, call: Call) -> None:
        kernel = call.kernel
        real = Trace("real", kernel, call.width)
        closed = None
        try:
            traced = self._traced(call, real)
            closed, call.stage = traced.jaxpr, "lower"
            call.real = closed
            with self._tracing.of(real):
                alone = call.closed(traced)
                lowered = alone.lower(lowering_platforms=("cuda",))
            call.stage = "run"
            call.modules = self._kept_modules(lowered) if self.keep_modules else []
            if self.export:
                self._export(call, alone, real)
        except Exception as e:
            call.error = e
            function = locate.user_function(kernel.body)
            call.outside = outside(function) if function else {}
        stored = self._stores(call, closed)
        if stored is not None and call.stage == "run":
            call.unwritten = sorted(set(range(len(kernel.output_avals))) - stored)
        if stored is None and (real.returned or call.stage == "trace"):
            stored = self._stores_where_nothing_is_returned(call)
        call.stored = stored
        intended = Trace("intended", kernel, call.width, stored)
        try:
            call.intended = self._traced(call, intended)
            call.constants = [c for c in jaxseam.constants_of(call.intended) if call.is_moved(c)]
            call.unknown = intended.unclear
            call.drops = any(not r.params or r.entry == "pl.when" for r in intended.returned)
        except Exception as e:
            call.unknown = f"the interpreter's trace fails too: {type(e).__name__}: {first_line(e)}"
        self._write_down(call, real, intended)

    def _kept_modules(self, lowered: Any) -> list[str]:
        """Leave what was lowered for whoever can compile it; returns its names."""
        names = []
        # As with the facts: no program fails for it.
        with contextlib.suppress(Exception):
            for module, text in jaxseam.lowered_modules(lowered):
                names.append(digest(text))
                (self.folder / f"{names[-1]}.module").write_bytes(module)
        return names

    def _export(self, call: Call, alone: Any, real: Trace) -> None:
        """Leave a call that lowers for whoever can run it."""
        # As above.
        with contextlib.suppress(Exception), self._tracing.of(real):
            data = jaxseam.exported(alone)
            name = f"{call.number}.exported"
            (self.folder / name).write_bytes(data)
            call.exported = name

    def exported(self) -> list[Exported]:
        """What can be run elsewhere, once the program is over."""
        calls = [call for call in self.calls.values() if call.exported]
        return [Exported(c.number, c.exported, tuple(c.modules), tuple(c.given)) for c in calls]

    def _tell_modules(self, call: Call) -> None:
        """Say what there is to compile, and whether the program expects all its calls to fail at that."""
        if call.modules and call.expected is not False:
            expected = self.records.caught_here(jax.errors.JaxRuntimeError())
            if expected is not call.expected:
                call.expected = expected
                self.emit("lowered", [call.number, call.modules, expected])

    def _write_down(self, call: Call, real: Trace, intended: Trace) -> None:
        kernel = call.kernel
        varies = self._varies(call)
        facts = Facts(
            returned=tuple(replace(r, varies=bool(varies), along=varies) for r in intended.returned or real.returned),
            scopes=self._scopes(call, intended.scopes if len(intended.scopes) >= len(real.scopes) else real.scopes),
            callee=real.callee or kernel.entry,
            semantics=kernel.semantics,
            thread_name=kernel.thread_name,
            barriers=kernel.barriers,
            regions=self._regions(call) if call.error is not None else (),
            misfits=intent.settled_misfits(intended.misfits, call.intended, bool(varies)),
            uncommitted=self._uncommitted(call),
            tensor_memory=self._tensor_memory(call) if call.error is not None else (),
            captures=self._captures(call),
        )
        silent = [r for r in real.returned if r.silent]
        if silent:
            call.failures.append(self.records.dropped(call, silent[0], facts))
        if facts.uncommitted:
            call.failures.append(self.records.uncommitted(call, facts))
        if real.grid_position is not None:
            name, span = real.grid_position
            call.unknown = call.unknown or f"the interpreter gives {name} a wrong value"
            call.failures.append(self.records.misplaced(call, name, span))
        if call.error is not None:
            at = kernel.function
            place = call.span or (Span(at.path, at.line, at.column, at.line, at.column) if at else None)
            call.failures.append(self.records.raised(call.error, call.stage, kernel.name, facts, place))

    def _uncommitted(self, call: Call) -> tuple[Uncommitted, ...]:
        with contextlib.suppress(Exception):
            return uncommitted(call.real) if call.real is not None else ()
        return ()

    def _tensor_memory(self, call: Call) -> tuple[TensorMemoryUse, ...]:
        # As below.
        with contextlib.suppress(Exception):
            return tensor_memory_uses(call.real) if call.real is not None else ()
        return ()

    def _regions(self, call: Call) -> tuple[Region, ...]:
        # A program must not fail because something in its kernel cannot be followed.
        with contextlib.suppress(Exception):
            return warp_regions(call.intended.jaxpr) if call.intended is not None else ()
        return ()

    def _captures(self, call: Call) -> Captures | None:
        constants = jaxseam.constants_of(call.intended) if call.outside and call.intended is not None else []
        names = tuple(name_of(c, call.outside) for c in constants)
        return Captures(call.kernel.function, call.width, names) if call.kernel.function and any(names) else None

    def _scopes(self, call: Call, met: Sequence[Scope]) -> tuple[Scope, ...]:
        """Facts on the scopes of a kernel in which JAX does not accept all of them."""
        for scope in met:
            self._threads.setdefault(scope.span, set()).add(scope.thread.name if scope.thread else "")
        if all(scope.accepted for scope in met):
            return ()
        found = Survey()
        # As above.
        with contextlib.suppress(Exception):
            traced = call.real if call.intended is None else call.intended.jaxpr
            found = survey(traced, call.kernel.thread_name, call.kernel.axes)
        known = scopes.surveyed(met, found)
        call.changed = [scope for scope in known if not scope.accepted]
        return known

    def compare_scopes(self) -> None:
        """Once the program is over: say of each scope which other kernels come by it."""
        for i, failure in enumerate(self.records.failures):
            known = tuple(
                replace(s, others=tuple(sorted(self._threads[s.span] - {s.thread.name if s.thread else ""})))
                for s in failure.facts.scopes
            )
            if known != failure.facts.scopes:
                self.records.amend(i, replace(failure.facts, scopes=known))

    def _varies(self, call: Call) -> tuple[str, ...]:
        """Axes along which several programs run the kernel and it asks which one it is, so that each may compute its
        own."""
        several = [axis for axis, size in call.kernel.axes.items() if size > 1]
        if call.intended is not None:
            several = [axis for axis in several if jaxseam.asks_its_place(call.intended.jaxpr, axis)]
        return tuple(map(str, several))

    def _traced(self, call: Call, trace: Trace, **options: object) -> Any:
        interpret = None if trace.mode == "real" else jaxseam.interpreter(**options)
        with self._tracing.of(trace):
            run = call.kernel.build(intent.kernel_body(call.kernel, trace), interpret)
            return jax.jit(call.flat(run)).trace(*call.avals)

    def _stores(self, call: Call, closed: Any) -> set[int] | None:
        if closed is None:
            return None
        return jaxseam.written_outputs(closed, len(call.avals), len(call.kernel.output_avals))

    def _stores_where_nothing_is_returned(self, call: Call) -> set[int] | None:
        """What the body stores by itself, when its real trace got no further than what it returned."""
        try:
            return self._stores(call, self._traced(call, Trace("dropped", call.kernel, call.width)).jaxpr)
        except Exception:
            return None

    @contextlib.contextmanager
    def no_more_kernels(self) -> Iterator[None]:
        """Refuse calls that the program did not make."""
        self._closed = True
        try:
            yield
        finally:
            self._closed = False

    def settled(self) -> list[Call]:
        """All calls, once no thread of the program's is in the middle of looking at one."""
        with self._lock:
            return list(self.calls.values())

    def stopped_by(self, error: Exception) -> None:
        """Record an error of Pallas that ended the program outside of every declaration and call."""
        self.records.raised(error, "trace" if self.calls else "import")

    # ------------------------------------------------------------------ numbers

    def _eager(self, call: Call, flat: list[Any]) -> list[Any]:
        with jax.transfer_guard("allow"):
            # NumPy's arrays come in dtypes that JAX does not have.
            given = zip(flat, call.refs, call.avals, strict=True)
            values = [np.asarray(v[...] if ref else v, aval.dtype) for v, ref, aval in given]
            outs = self.interpreter.run(call, values, [np.asarray(c, jaxseam.aval_of(c).dtype) for c in call.constants])
        count = len(call.kernel.output_avals)
        self._write_back(call, flat, outs[count:])
        return [jnp.asarray(o) for o in outs[:count]]

    def _staged(self, call: Call, flat: list[Any]) -> list[Any]:
        values = [v[...] if ref else v for v, ref in zip(flat, call.refs, strict=True)]
        avals = (*call.kernel.output_avals, *(a for a, ref in zip(call.avals, call.refs, strict=True) if ref))
        constants = call.constants

        def host(*arrays: Any) -> tuple[np.ndarray, ...]:
            split = len(arrays) - len(constants)
            values = [np.asarray(a) for a in arrays]
            return tuple(self.interpreter.run(call, values[:split], values[split:]))

        def run_here(*operands: Any) -> Any:
            return jax.pure_callback(host, avals, *operands, *constants, vmap_method="sequential")

        def run_on_gpu(*operands: Any) -> Any:
            if call.error is not None:
                return tuple(jnp.zeros(a.shape, a.dtype) for a in avals)
            trace = Trace("real", call.kernel, call.width)
            with self._tracing.of(trace):
                return tuple(call.flat(call.kernel.build(intent.kernel_body(call.kernel, trace), None))(*operands))

        # Differentiating a kernel fails in JAX, and is to fail in JAX's words.
        here = jax.custom_jvp(run_here)
        here.defjvp(lambda primals, tangents: jax.jvp(run_on_gpu, primals, tangents))
        outs = jax.lax.platform_dependent(*values, cuda=run_on_gpu, default=here)
        count = len(call.kernel.output_avals)
        self._write_back(call, flat, outs[count:])
        return list(outs[:count])

    def _write_back(self, call: Call, flat: list[Any], finals: Sequence[Any]) -> None:
        for ref, final in zip((v for v, is_ref in zip(flat, call.refs, strict=True) if is_ref), finals, strict=True):
            ref[...] = jnp.asarray(final)

    def prove_more(self, keys: frozenset[tuple[str, ...]] | None) -> None:
        """After the program: more runs of the calls whose key is in ``keys`` (None: of those that failed)."""
        for call in self.calls.values():
            if call.failures if keys is None else call.summary().key in keys:
                self.interpreter.prove_more(call, functools.partial(self._again, call))
                self.emit("call", call.summary())

    def _again(self, call: Call, private: bool, options: dict[str, object]) -> Any:
        """The intended trace once more, for another run; ``private`` gives each warpgroup memory of its own."""
        trace = Trace("intended", call.kernel, call.width, call.stored, private)
        return call.closed(self._traced(call, trace, **options))
