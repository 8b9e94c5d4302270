"""The only module that touches private names of JAX. Seen on 0.10.2, 0.11.0, 0.11.2 and 0.12.0.1 unless said otherwise.

Everything else in mgpu-fix speaks to JAX through what is here, so that a new release is followed in one place.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import itertools
import logging
import sys
import threading
import time
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax._src import core as jax_core
from jax._src import source_info_util, xla_bridge
from jax._src.pallas import core as pallas_core
from jax._src.pallas import helpers as pallas_helpers
from jax._src.pallas import mpmd, pallas_call
from jax._src.pallas import primitives as pallas_primitives
from jax._src.pallas.mosaic.interpret import race_detection_state
from jax._src.pallas.mosaic_gpu import core as gpu_core
from jax._src.pallas.mosaic_gpu import helpers as gpu_helpers
from jax._src.pallas.mosaic_gpu import pipeline as gpu_pipeline
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call, jaxpr_interpret
from jax._src.pallas.mosaic_gpu.interpret import params as interpret_params
from jax._src.pallas.mosaic_gpu.interpret import shared_memory as interpret_memory
from jax._src.state import primitives as state_primitives
from jax._src.state import types as state_types
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir

JAX_FOLDER = jax.__file__.removesuffix("__init__.py")

#: mesh of a Mosaic GPU kernel, and of a warp-level region
Mesh = gpu_core.Mesh
WarpMesh = gpu_core.WarpMesh
CompilerParams = plgpu.CompilerParams
#: warps in a warpgroup
WARPS = 4

#: name of the body that JAX makes when it batches a kernel of ``plgpu.kernel`` (``mosaic_gpu/core.py``)
BATCHED_BODY = "batched_body"

#: where each entry point can be reached from user code; all of them are patched
ENTRIES: dict[str, list[tuple[types.ModuleType, str]]] = {
    "plgpu.kernel": [(gpu_core, "kernel"), (plgpu, "kernel")],
    "pl.kernel": [(pallas_helpers, "kernel"), (pl, "kernel")],
    "pl.pallas_call": [(pallas_call, "pallas_call"), (pl, "pallas_call")],
    "plgpu.emit_pipeline": [(gpu_pipeline, "emit_pipeline"), (plgpu, "emit_pipeline")],
    "plgpu.emit_pipeline_warp_specialized": [
        (gpu_pipeline, "emit_pipeline_warp_specialized"),
        (plgpu, "emit_pipeline_warp_specialized"),
    ],
    "pl.program_id": [(pallas_primitives, "program_id"), (pl, "program_id")],
    "pl.num_programs": [(pallas_primitives, "num_programs"), (pl, "num_programs")],
    "pl.when": [(pallas_helpers, "when"), (pl, "when")],
    "plgpu.warp_map": [(gpu_helpers, "warp_map"), (plgpu, "warp_map")],
    "pl.core_map": [(pallas_core, "core_map"), (pl, "core_map")],
    # What pl.with_scoped makes looks it up in the first module, at each call.
    "pl.run_scoped": [(pallas_primitives, "run_scoped"), (pl, "run_scoped")],
    # What ``ref[...] = value`` calls, which looks it up for each store.
    "ref_set": [(state_primitives, "ref_set")],
    # Every kernel over a mesh passes through this one; core_map and warp_map do from 0.11.2 on.
    "mpmd_map": [(mpmd, "_mpmd_map")],
}


def patch(entry: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace an entry point by ``wrap(original)`` wherever it is bound."""
    module, name = ENTRIES[entry][0]
    original = getattr(module, name, None)
    if original is None:
        return
    replacement = functools.wraps(original)(wrap(original))
    for module, name in ENTRIES[entry]:
        if getattr(module, name, None) is original:
            setattr(module, name, replacement)


def interpreter(**kwargs: Any) -> Any:
    """Parameters that ask for Pallas' GPU interpreter; keywords that this JAX does not know are left out."""
    cls = interpret_params.InterpretGPUParams
    known = inspect.signature(cls).parameters
    return cls(**{k: v for k, v in kwargs.items() if k in known})


def import_the_rest() -> None:
    """Import what JAX itself imports only once a kernel is lowered or interpreted, which takes it 0.1 s."""
    for module in ("jax._src.pallas.mosaic.interpret.interpret_pallas_call", "jaxlib.mlir.dialects.mhlo"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def lowered_modules(lowered: Any) -> Iterator[tuple[bytes, bytes]]:
    """The Mosaic GPU kernels in a ``jax.jit(f).trace(...).lower(...)``: each as JAX hands it to its compiler, and as a
    text without its places in the source, by which to know it again."""
    root = lowered.compiler_ir("stablehlo").operation
    for operation in _operations(root):
        attributes = operation.attributes
        if operation.name != "stablehlo.custom_call" or "mosaic_gpu" not in str(attributes["call_target_name"]):
            continue
        config = ir.DictAttr(attributes["mhlo.backend_config"])
        module = ir.StringAttr(config["module"]).value_bytes
        text = module
        with contextlib.suppress(Exception), root.context as context:
            context.allow_unregistered_dialects = True
            parsed = ir.Module.parse(module).operation
            text = parsed.get_asm(enable_debug_info=False, print_generic_op_form=True).encode()
        yield module, text


#: what XLA calls a Mosaic GPU kernel; JAX promises nothing about either
_KERNEL_CALLS = ("mosaic_gpu", "mosaic_gpu_v2")


def exported(traced: Any) -> bytes:
    """A ``jax.jit(f).trace(...)`` for CUDA as ``jax.export`` serializes it, for this version of JAX."""
    from jax import export

    def run(*operands: Any) -> list[Any]:
        return evaluate(traced, constants_of(traced), operands)

    unchecked = [export.DisabledSafetyCheck.custom_call(name) for name in _KERNEL_CALLS]
    made = export.export(jax.jit(run), platforms=("cuda",), disabled_checks=unchecked)(*traced.jaxpr.in_avals)
    return bytes(made.serialize())


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def interprets_warps() -> bool:
    """Whether the interpreter runs warp-level regions (seen: from 0.11.2 on)."""
    return any(f.name == "warp_mesh" for f in dataclasses.fields(jaxpr_interpret.JaxprInterpreter))


def reset_interpreter() -> None:
    """Forget the interpreter's state after an exception in it, as JAX asks for (``interpret/params.py``)."""
    interpret_pallas_call.reset_gpu_interpret_mode_state()


@contextlib.contextmanager
def private_scopes() -> Iterator[None]:
    """Let the interpreter give each thread an allocation of its own, which the GPU does not do and it refuses."""
    name = "_raise_if_unsupported_collective_axes"
    check = getattr(jaxpr_interpret, name, None)
    setattr(jaxpr_interpret, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        setattr(jaxpr_interpret, name, check)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the interpreter says of each race: logged from 0.11.2 on, printed before."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(None):
            yield
    finally:
        logging.disable(before)


@dataclasses.dataclass(frozen=True)
class Race:
    """Two accesses of one buffer that nothing orders; ``places`` are as :func:`place` gives them."""

    places: tuple[str, str]
    both_write: bool
    in_gmem: bool


#: pairs of accesses that are looked at to tell which of them race
MOST_PAIRS = 20_000_000


def races() -> list[Race] | None:
    """Races between accesses of the user's own in the run just made with ``detect_races``; None if there are too many
    accesses to tell them apart.

    Those of JAX's pipelines, which have no place, are left out: the interpreter does not see their copies ordered
    (0.10.2 and 0.12.0.1), and reports races in sound kernels.
    """
    state = interpret_pallas_call.get_races()
    if not state.races_found:
        return []
    if getattr(state, "union_accesses", None):
        # What it found between the members of a union is not known better.
        return None
    found: set[Race] = set()
    looked_at = 0
    for key in [*state.writes]:
        writes, reads = _alike(state.writes[key], True), _alike(state.reads.get(key, ()), False)
        pairs = itertools.chain(itertools.combinations_with_replacement(writes, 2), itertools.product(writes, reads))
        for mine, other in pairs:
            first, second = sorted((mine.place, other.place))
            race = Race((first, second), other.writes, _is_gmem(key))
            if race in found or not race_detection_state._ranges_overlap(mine.range, other.range):
                continue
            looked_at += len(mine.clocks) * len(other.clocks)
            if looked_at > MOST_PAIRS:
                return None
            if not _all_ordered(mine, other):
                found.add(race)
    return [*found]


@dataclasses.dataclass
class _Accesses:
    """All accesses of one kind that an operation of the user's makes to the same part of a buffer."""

    place: str
    range: Any
    writes: bool
    clocks: list[Any]


def _alike(accesses: Sequence[Any], writes: bool) -> list[_Accesses]:
    found: dict[tuple[str, str], _Accesses] = {}
    for *_, clock, access, frame in accesses:
        if place := str(frame):
            part = getattr(access, "range", access)
            same = found.setdefault((place, str(part)), _Accesses(place, part, writes, []))
            same.clocks.append(getattr(clock, "clock", clock))
    return [*found.values()]


def _all_ordered(mine: _Accesses, other: _Accesses) -> bool:
    """Whether each access of ``mine`` comes before or after each of ``other`` by their vector clocks."""
    theirs = np.array(other.clocks)
    for i, clock in enumerate(mine.clocks):
        rest = theirs[i + 1 :] if mine is other else theirs
        before, after = (clock <= rest).all(axis=1), (clock >= rest).all(axis=1)
        # Both hold where the clocks are the same, which orders nothing.
        if (before == after).any():
            return False
    return True


def _is_gmem(key: Any) -> bool:
    # Moved from one module to the other in between.
    homes = (gpu_callbacks, interpret_memory)
    index = next((h.get_memory_space_idx for h in homes if hasattr(h, "get_memory_space_idx")), None)
    return index is not None and bool(key.memory_space_id == index(gpu_core.MemorySpace.GMEM))


class OutOfTime(Exception):
    """The interpreter spent its budget on a kernel."""


#: seconds without a step of any thread's after which those that wait wait for ever; half of the time if that is less
_STILL = 10.0


class TimeLimit:
    """How long the interpreter may run. ``waits`` says that it was stopped since its threads did nothing but wait."""

    def __init__(self, seconds: float) -> None:
        self._moved = time.monotonic()
        self._end = self._moved + seconds
        self._still = min(_STILL, seconds / 2)
        self.waits = False

    def step(self) -> None:
        """A thread takes a step. Raises OutOfTime."""
        self._moved = time.monotonic()
        if self._moved > self._end:
            raise OutOfTime

    def wait(self) -> None:
        """A thread goes on waiting. Raises OutOfTime."""
        now = time.monotonic()
        self.waits = self.waits or now > self._moved + self._still
        if self.waits or now > self._end:
            raise OutOfTime


_limits: list[TimeLimit] = []


class _ConditionInTime(threading.Condition):
    """A condition that is not waited for past the deadline. Who waits looks again each time it wakes up."""

    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(min(timeout or 0.5, 0.5))
        if _limits:
            _limits[-1].wait()
        return woken


def fill_interpreter_gaps() -> None:
    """Mend what keeps the interpreter from running kernels that the GPU runs, and let it be stopped.

    ``copy_smem_to_gmem`` refuses a predicate (0.10.2 to 0.12.0.1), which every ``emit_pipeline`` with an output has.
    Allocation keys are JAX arrays (0.10.2), and XLA compiles what makes and reads them, in every run anew.
    A ``jax.new_ref`` operand names no memory space, and is not taken for one in global memory (0.10.2). An array that a
    kernel closes over is given to it as a Ref (0.10.2 to 0.12.0.1), since JAX lets no kernel come so far.
    """
    for name in ("HostAllocationRequest", "HostAllocationKey"):
        if hasattr(cls := getattr(gpu_callbacks, name, None), "as_jax_array"):
            _keep_in_numpy(cls)
    is_gmem = gpu_callbacks.is_gmem_memory_space
    gpu_callbacks.is_gmem_memory_space = lambda space: (
        space is None or getattr(space, "name", "") == "Device" or is_gmem(space)
    )
    allocate = interpret_pallas_call._allocate_buffers_for_inputs

    @functools.wraps(allocate)
    def allocate_for_refs(token: Any, device: Any, variables: Sequence[Any], inputs: Sequence[Any]) -> Any:
        token, keys = allocate(token, device, variables, inputs)
        given = zip(variables, keys, inputs, strict=True)
        return token, [key if is_ref_type(variable.aval) else value for variable, key, value in given]

    interpret_pallas_call._allocate_buffers_for_inputs = allocate_for_refs
    copy = gpu_callbacks.copy_smem_to_gmem

    @functools.wraps(copy)
    def copy_if(**kwargs: Any) -> Any:
        if kwargs.get("predicate") is not None:
            if not bool(kwargs["predicate"]):
                return kwargs["token"]
            kwargs["predicate"] = None
        return copy(**kwargs)

    gpu_callbacks.copy_smem_to_gmem = copy_if
    for name in ("AsyncCopySmemToGmemTask", "AsyncCopyGmemToSmemTask"):
        if hasattr(task := getattr(gpu_callbacks, name, None), "pre_read"):
            _commit_first(task)

    # Every step of the interpreter asks for its memory first, so this is the place to stop it.
    memory = gpu_callbacks._get_shared_memory

    @functools.wraps(memory)
    def memory_in_time(*args: Any, **kwargs: Any) -> Any:
        if _limits:
            _limits[-1].step()
        return memory(*args, **kwargs)

    gpu_callbacks._get_shared_memory = memory_in_time
    # A thread that waits at a barrier takes no step; some wait for one that never comes.
    interpret_memory.threading = types.SimpleNamespace(**vars(threading) | {"Condition": _ConditionInTime})


def _commit_first(task: Any) -> None:
    """Let a copy's accesses come after all that its thread did before, as if SMEM had been committed: where that is
    missing no warpgroups share memory by mistake, and it has a rule of its own."""
    original = task.pre_read

    @functools.wraps(original)
    def pre_read(self: Any, *args: Any) -> Any:
        if hasattr(self.clock, "commit_smem"):
            self.clock.commit_smem()
        return original(self, *args)

    task.pre_read = pre_read


def _keep_in_numpy(cls: Any) -> None:
    from_array = cls.from_array.__func__
    cls.as_jax_array = property(lambda self: np.asarray(tuple(self), np.int32))
    cls.from_array = classmethod(lambda cls, request: from_array(cls, np.asarray(request)))


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[TimeLimit]:
    """Stop the interpreter, with an exception of its own, once it ran for ``seconds``, or only waits."""
    limit = TimeLimit(seconds)
    _limits.append(limit)
    try:
        yield limit
    finally:
        _limits.remove(limit)


def backend_started() -> bool:
    """Whether JAX has made a backend, with its threads, in this process."""
    return bool(xla_bridge._backends)


def is_tracing(values: Sequence[Any]) -> bool:
    """Whether a call with ``values`` is being traced, by ``jit`` or anything else, rather than run."""
    return not jax_core.trace_state_clean() or any(isinstance(v, jax_core.Tracer) for v in values)


def is_tracer(value: object) -> bool:
    """Whether a value is only known once what is being traced runs."""
    return isinstance(value, jax_core.Tracer)


def is_ref(value: Any) -> bool:
    """Whether a value is a mutable ``Ref``, traced or not."""
    return is_ref_type(jax_core.typeof(value))


def is_ref_type(aval: Any) -> bool:
    """Whether a type is that of a mutable ``Ref``."""
    return isinstance(aval, state_types.AbstractRef)


def aval_of(value: Any) -> Any:
    """Shape and dtype of an operand; of what it refers to, for a Ref."""
    aval = jax_core.typeof(value)
    aval = getattr(aval, "inner_aval", aval)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def type_of(value: Any) -> str:
    """JAX's short text for a value's type, e.g. ``f32[128]`` or ``Ref<gmem>{f32[128]}``."""
    return str(jax_core.typeof(value))


def allocation_kinds(value: Any) -> list[str]:
    """What a type, or a pytree of them, given to ``pl.run_scoped`` allocates, leaf by leaf: acc, barrier, semaphore,
    or the memory space."""
    return [kind_of(leaf.get_ref_aval()) for leaf in jax.tree.leaves(value)]


def kind_of(aval: Any) -> str:
    """What kind of allocation a Ref's type stands for, see :func:`allocation_kinds`."""
    aval = getattr(aval, "ref", aval) if isinstance(aval, state_types.TransformedRef) else aval
    if isinstance(aval, gpu_core.WGMMAAbstractAccumulatorRef):
        return "acc"
    dtype = getattr(aval, "dtype", None)
    if isinstance(dtype, (gpu_core.BarrierType, gpu_core.ClusterBarrierType)):
        return "barrier"
    if dtype is not None and jax.numpy.issubdtype(dtype, pallas_core.semaphore_dtype):
        return "semaphore"
    space = getattr(aval, "memory_space", None)
    return str(getattr(space, "value", space))


def arrivals_of(aval: Any) -> int:
    """How many arrivals a barrier in a block waits for, given its Ref's type; 0 for anything else."""
    dtype = getattr(aval, "dtype", None)
    return int(dtype.num_arrivals) if isinstance(dtype, gpu_core.BarrierType) else 0


def is_with_scoped(frame: types.FrameType) -> bool:
    """Whether a frame is that of a function which ``pl.with_scoped`` made."""
    return frame.f_code.co_filename == pallas_helpers.__file__ and frame.f_code.co_qualname.startswith("with_scoped.")


def memory_space(ref: Any) -> str:
    """Memory space of a Ref as JAX names it (gmem, smem, tmem, …), empty where it does not say."""
    return space_of(jax_core.typeof(ref))


def space_of(aval: Any) -> str:
    """Memory space of a Ref's type, see :func:`memory_space`."""
    space = getattr(aval, "memory_space", None)
    return "" if space is None else str(getattr(space, "value", space))


def constants_of(traced: Any) -> list[Any]:
    """What a ``jax.jit(f).trace(...)`` closed over; values of an outer trace are kept apart from the jaxpr."""
    return [*traced.jaxpr.consts, *getattr(traced, "_consts", ())]


def evaluate(traced: Any, constants: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """Outputs, flat, of what was traced under other constants, see :func:`constants_of`."""
    own = len(traced.jaxpr.consts)
    return list(jax_core.eval_jaxpr(traced.jaxpr.jaxpr, constants[:own], *constants[own:], *operands))


def written_outputs(closed: Any, operands: int, outputs: int) -> set[int] | None:
    """Which output leaves (by index) the kernel in a traced call writes to; None where that cannot be told.

    Read off the effects of the kernel's jaxpr, whose arguments are operands, captured values (``mpmd_map`` only),
    outputs, and scratch (``pallas_call`` only).
    """
    for eqn in _equations(closed.jaxpr):
        bodies = eqn.params.get("jaxprs") or ([eqn.params["jaxpr"]] if eqn.primitive.name == "pallas_call" else [])
        if eqn.primitive.name in ("mpmd_map", "pallas_call") and bodies:
            first = operands if eqn.primitive.name == "pallas_call" else len(bodies[0].invars) - outputs
            stores = [e for e in bodies[0].effects if isinstance(e, (state_types.WriteEffect, state_types.AccumEffect))]
            return {_input_index(e, bodies[0].invars) - first for e in stores} & set(range(outputs))
    return None


def mesh_axes(mesh: Callable[[str], Any]) -> dict[Any, int]:
    """Names and sizes of a Mosaic GPU mesh's axes; ``mesh`` looks up a field of it."""
    axes = dict(zip(mesh("grid_names") or (), mesh("grid") or (), strict=False))
    axes |= dict(zip(mesh("cluster_names") or (), mesh("cluster") or (), strict=False))
    if mesh("thread_name") is not None:
        axes[mesh("thread_name")] = int(mesh("num_threads") or 1)
    return axes


def asks_its_place(closed: Any, axis: Hashable) -> bool:
    """Whether a traced call asks for its index along ``axis``, alone or with others, or for a program id."""
    for eqn in _all_equations(closed.jaxpr):
        asked = eqn.params.get("axis_name") if eqn.primitive.name == "axis_index" else ()
        if eqn.primitive.name == "program_id" or axis in (asked if isinstance(asked, tuple) else (asked,)):
            return True
    return False


def _all_equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _all_equations(inner)


def _input_index(effect: Any, invars: Sequence[Any]) -> int:
    # An index up to 0.9, since then the variable itself in a finished jaxpr.
    at = getattr(effect, "input", getattr(effect, "input_index", -1))
    return at if isinstance(at, int) else next((i for i, v in enumerate(invars) if v is at), -1)


def _equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn.primitive.name not in ("mpmd_map", "pallas_call"):
            for value in eqn.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


#: (file, function, line, column, end line, end column); columns are 0-based UTF-8 bytes, -1 if unknown
Frame: TypeAlias = tuple[str, str, int, int, int, int]


def failing_equation(error: BaseException) -> list[Frame]:
    """Frames, innermost first, of the operation whose lowering raised ``error``; empty if there is none."""
    equation, tb = None, error.__traceback__
    while tb is not None:
        frame = tb.tb_frame
        if frame.f_code.co_name == "lower_jaxpr_to_mosaic_gpu" and "eqn" in frame.f_locals:
            equation = frame.f_locals["eqn"]
        tb = tb.tb_next
    return frames_of(equation)


def place(eqn: Any) -> str:
    """Where an equation comes from, as the interpreter writes it down with a race."""
    return str(source_info_util.summarize(eqn.source_info))


def scan_constants(params: Any) -> int:
    """How many inputs of a ``scan`` never change, 0 where that cannot be told; said in another way from 0.11.2 on."""
    if "num_consts" in params:
        return int(params["num_consts"])
    try:
        return len([*params["ft_in"].unpack()[0]])
    except (AttributeError, KeyError, TypeError):
        return 0


def frames_of(equation: Any) -> list[Frame]:
    """Frames, innermost first, in which an operation was traced; empty where JAX does not know."""
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    if traceback is None:
        return []
    frames = (source_info_util.raw_frame_to_frame(c, i) for c, i in zip(*traceback.raw_frames(), strict=True))
    return [(f.file_name, f.function_name, f.start_line, f.start_column, f.end_line, f.end_column) for f in frames]


def warp_axis(equation: Any) -> Any:
    """Name of the axis that a warp-level region makes, None for every other operation."""
    meshes = equation.params.get("meshes") or (equation.params.get("mesh"),)
    return meshes[0].axis_name if isinstance(meshes[0], WarpMesh) else None


class Constant:
    """A value that a jaxpr closes over, in the form of a literal; it may be a tracer, which has no hash."""

    def __init__(self, value: Any) -> None:
        self.val, self.aval = value, jax_core.typeof(value)


def inner_jaxprs(equation: Any) -> list[tuple[Any, dict[Any, Any]]]:
    """Every jaxpr that an operation runs, with the operand (or constant) that each of its variables stands for."""
    found: list[tuple[Any, dict[Any, Any]]] = []
    operands = list(equation.invars)
    params = equation.params
    for name, value in params.items():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            inner: Any = getattr(part, "jaxpr", part)
            if not hasattr(inner, "eqns"):
                continue
            given = operands
            if name == "branches":
                given = operands[1:]
            elif name == "cond_jaxpr":
                given = operands[: params["cond_nconsts"]] + operands[params["cond_nconsts"] + params["body_nconsts"] :]
            elif name == "body_jaxpr":
                given = operands[params["cond_nconsts"] :]
            # The scopes and regions of Pallas close over their operands.
            variables = list(inner.constvars) if len(inner.constvars) == len(given) else list(inner.invars)
            bound = dict(zip(variables, given, strict=False))
            bound |= dict(zip(inner.constvars, map(Constant, getattr(part, "consts", ())), strict=False))
            found.append((inner, bound))
    return found


def operation_name(equation: Any) -> str:
    """Name of an operation's primitive, the same on every JAX (``inline_mgpu`` was ``inline_mgpu_p`` up to 0.11)."""
    return str(equation.primitive.name).removesuffix("_p")


def part_of_ref(equation: Any) -> tuple[str, tuple[str, ...]]:
    """A name for the part of its first Ref that a store or a copy works on, equal only for equal parts: how it is
    taken, empty for the whole, and by which values."""
    tree = equation.params.get("tree", equation.params.get("src_transforms_treedef"))
    leaves = equation.invars[2 : 2 + tree.num_leaves]
    whole = tree == jax.tree.structure(())
    return "" if whole else str(tree), tuple(str(getattr(leaf, "val", id(leaf))) for leaf in leaves)


def is_fixed(store: Any) -> bool:
    """Whether the part of a Ref that a store works on is known before the kernel runs."""
    return all(hasattr(v, "val") for v in store.invars[2:])


def is_loop(equation: Any) -> bool:
    """Whether what an operation runs may run again on its own results."""
    return equation.primitive.name in ("scan", "while")


def runs_again(equation: Any) -> bool:
    """Whether it surely does: a loop of a known number of steps, two of them at least."""
    length = equation.params.get("length")
    return equation.primitive.name == "scan" and isinstance(length, int) and length > 1


def allow_captures(allowed: Callable[[], bool]) -> None:
    """Let kernels close over arrays while ``allowed()``; JAX refuses it when it traces them (since 0.11.2 also where a
    warp-level region closes over an array of its kernel)."""
    check = mpmd._error_if_non_ref_consts

    @functools.wraps(check)
    def check_if(*args: Any, **kwargs: Any) -> None:
        if not allowed():
            check(*args, **kwargs)

    mpmd._error_if_non_ref_consts = check_if


def default_semantics() -> str:
    """Lowering semantics that a kernel gets when it asks for none."""
    return str(getattr(CompilerParams(), "lowering_semantics", "")).rpartition(".")[2]


def is_mosaic_gpu(compiler_params: Any) -> bool:
    """Whether ``pallas_call`` with these parameters is meant for Mosaic GPU."""
    return isinstance(compiler_params, CompilerParams)


def runs_over_blocks(arguments: Mapping[str, Any]) -> bool:
    """Whether ``pallas_call`` with these arguments has a grid, or blocks of its operands."""
    specs = [arguments.get("in_specs"), arguments.get("out_specs")]
    leaves = jax.tree.leaves(specs, is_leaf=lambda value: isinstance(value, pallas_core.BlockSpec))
    return bool(
        arguments.get("grid")
        or arguments.get("grid_spec")
        or any(getattr(leaf, "block_shape", None) is not None for leaf in leaves)
    )


def hide(folder: str) -> None:
    """Keep the files of a folder out of the places that JAX names in its messages."""
    source_info_util.register_exclusion(folder)


def own_platform() -> None:
    """Keep the program from choosing a platform that this machine does not have; the probe chose one."""
    # Those of other platforms, which JAX would load all the same: a large library, with words about a missing GPU.
    xla_bridge.discover_pjrt_plugins = lambda: None
    update = jax.config.update

    @functools.wraps(update)
    def update_other(name: str, value: Any) -> None:
        if name not in ("jax_platforms", "jax_platform_name"):
            update(name, value)

    jax.config.update = update_other


def describe_device(capability: str, kind: str, cores: int) -> None:
    """Let user code see a GPU that is not there: compute capability, name, core count and platform.

    Only code outside JAX sees it: inside, the platform decides how things are lowered. Starts the backend.
    """
    device = jax.devices()[0]
    cls = type(device)

    def outside(real: Any, value: Any) -> property:
        def get(self: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            return real.__get__(self) if caller in ("jax", "jaxlib", "mgpu_fix") else value

        return property(get)

    cls.platform = outside(cls.platform, "gpu")
    client = type(device.client)
    client.platform = outside(client.platform, "gpu")
    cls.device_kind = outside(cls.device_kind, kind)
    # JAX asks for the capability too, when it picks the target of a lowering.
    cls.compute_capability = property(lambda self: capability)
    cls.core_count = property(lambda self: cores)

    def without_platform(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(backend: Any = None) -> Any:
            return function(None if backend in ("gpu", "cuda") else backend)

        return call

    for name in ("devices", "device_count"):
        setattr(jax, name, without_platform(getattr(jax, name)))
    local_devices = jax.local_devices

    @functools.wraps(local_devices)
    def local(process_index: int | None = None, backend: Any = None, **kwargs: Any) -> Any:
        return local_devices(process_index, None if backend in ("gpu", "cuda") else backend, **kwargs)

    jax.local_devices = local
    jax.default_backend = functools.wraps(jax.default_backend)(lambda: "gpu")
