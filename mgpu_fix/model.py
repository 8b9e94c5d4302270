"""What the parts of mgpu-fix say to each other: frozen dataclasses that go to JSON and back.

Lines and columns are 1-based, columns count characters, and ends are exclusive, everywhere in this package.
"""

import dataclasses
import enum
import hashlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mgpu_fix.levels import Applicability, Oracle, VerifiedBy

T = TypeVar("T")

#: Calls of one kernel with the same shapes whose numbers are kept.
KEPT_CALLS = 3
#: How far a program, or a kernel in it, came. Later is better.
STAGES = ("parse", "import", "trace", "lower", "compile", "run", "compare")


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of a user's file; ``end_line``/``end_column`` are exclusive and may equal the start."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0


@dataclass(frozen=True)
class Function:
    """A function of the user's, as its code object names it (``line`` is that of its first decorator)."""

    path: str
    line: int
    name: str
    qualname: str
    column: int = 1


@dataclass(frozen=True)
class Param:
    """One Ref that a kernel's entry point passes to its body.

    ``role`` is ``input``, ``output`` or ``scratch``. ``name`` is the parameter that receives it, or None where the
    body takes no such parameter. ``shape`` is in elements. ``tree`` is set where it is a pytree of Refs.
    """

    role: str
    name: str | None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    space: str = ""
    tree: "Tree | None" = None


@dataclass(frozen=True)
class Tree:
    """A pytree of a value that a body returned, or of an output: ``kind`` is leaf, none, tuple, list, dict or other.

    A leaf has ``shape`` (elements), ``dtype`` and, where it is a Ref, the parameter it came in by as ``ref``.
    """

    kind: str
    children: tuple["Tree", ...] = ()
    keys: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    ref: str | None = None

    def leaves(self) -> "list[Tree]":
        """Leaves in pytree order."""
        if self.kind == "leaf":
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]


@dataclass(frozen=True)
class Returned:
    """A body that returned something where Pallas wants None.

    ``entry`` is the call the body was given to: ``plgpu.kernel``, ``pl.kernel``, ``pl.core_map``, ``plgpu.warp_map``,
    ``pl.pallas_call``, ``plgpu.emit_pipeline`` or ``plgpu.emit_pipeline_warp_specialized``. ``params`` are the Refs
    passed, in order, after what ``functools.partial`` bound. ``written`` names the outputs that the body stores to by
    itself. ``silent`` says that JAX drops the value without an error, ``varies`` that several programs (blocks or
    warpgroups) run the body and it asks which one it is, ``along`` these axes.
    """

    entry: str
    body: Function
    params: tuple[Param, ...]
    value: Tree
    written: tuple[str, ...] = ()
    silent: bool = False
    varies: bool = False
    along: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One operation of a warp-level region, as it was traced.

    ``spans`` are the user's expressions that it belongs to, from the innermost out to one of the region's own body.
    ``shape`` (elements) is that of its result, or of what it stores. ``ref`` numbers the Ref that it works on
    (``space`` is its memory), ``reads`` the Refs that its result was computed from. ``warp`` says that it depends on
    which warp runs it, ``place`` that the place it works on does, ``outer`` that it takes an array from outside of the
    region. ``elsewhere`` says that what it loads is stored as a number in another part of the kernel, or that what it
    stores is loaded in one.
    """

    name: str
    spans: tuple[Span, ...]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    ref: int | None = None
    space: str = ""
    reads: tuple[int, ...] = ()
    warp: bool = False
    place: bool = False
    outer: bool = False
    elsewhere: bool = False


@dataclass(frozen=True)
class Region:
    """A warp-level region: the call or decorator that opens it, and what it does, in order."""

    span: Span
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Allocation:
    """One argument of a ``pl.run_scoped``. ``name`` is its keyword, empty for a positional one.

    ``kind`` is acc, barrier, semaphore, smem, tmem or gmem; several of them, joined by ``+``, for a pytree; empty for
    nothing. ``confined`` says that one and the same warpgroup makes every use of it, ``own`` that it is a barrier at
    which each warpgroup arrives and that does not wait for all of them, so that it cannot be shared.
    """

    name: str
    kind: str
    confined: bool = False
    own: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis of a kernel's mesh and its size, 0 where the mesh has no axis of that name. A name that is no text is its
    ``repr`` in angle brackets."""

    name: str
    size: int


@dataclass(frozen=True)
class Scope:
    """A ``pl.run_scoped``, or a call of a function made by ``pl.with_scoped``, in a kernel: ``span`` is the call's.

    ``axes`` are the author's ``collective_axes``, ``thread`` is the axis of the kernel's warpgroups. ``accepted`` says
    that JAX takes the axes for these allocations, ``diverges`` that not all warpgroups reach the call, or not equally
    often, None where that is not known. ``others`` are the thread axes of other kernels that come by the same call, an
    empty name for none.
    """

    span: Span
    axes: tuple[Axis, ...]
    allocations: tuple[Allocation, ...]
    thread: Axis | None = None
    accepted: bool = True
    diverges: bool | None = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Misfit:
    """A store ``ref[...] = value`` at ``span`` whose value has another shape (elements) or dtype than its place.

    ``varies`` says that the value is computed anew each time that the same place is stored to, in a loop or by several
    programs.
    """

    span: Span
    shape: tuple[int, ...]
    dtype: str
    value_shape: tuple[int, ...]
    value_dtype: str
    varies: bool = False


@dataclass(frozen=True)
class Uncommitted:
    """A copy out of SMEM, and the store before it, which nothing commits."""

    copy: Span
    store: Span


@dataclass(frozen=True)
class TensorMemoryUse:
    """A load or store of TMEM at ``span`` that is written as if it were SMEM. ``reused`` says that what is loaded may
    be written to later on."""

    span: Span
    stores: bool
    reused: bool = False


@dataclass(frozen=True)
class Captures:
    """What a kernel reads from outside of itself without being given it: ``names`` are those by which its ``body``
    reads arrays, and numbers only known at run time, as Python writes them (``w``, ``self.w``, ``ws['a']``); empty for
    what has none, as an array that is made in the body. ``operands`` is how many the kernel is called with."""

    body: Function
    operands: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What the tracer knew when a failure happened; rules read it instead of guessing over text.

    ``semantics`` are those that the kernel is lowered with (Lane or Warpgroup); ``barriers`` says that JAX adds the
    barriers between the threads of a warpgroup by itself. ``scopes`` are all of the kernel's, in the order they were
    met, where JAX does not accept one of them; ``regions`` all its warp-level ones, ``misfits`` all stores of what does
    not fit, ``uncommitted`` all copies that may run ahead of what they copy, ``tensor_memory`` all uses of TMEM that
    are none of its own, ``captures`` what a kernel that fails closes over, if it has a name for any of it.
    """

    returned: tuple[Returned, ...] = ()
    scopes: tuple[Scope, ...] = ()
    regions: tuple[Region, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    uncommitted: tuple[Uncommitted, ...] = ()
    tensor_memory: tuple[TensorMemoryUse, ...] = ()
    captures: Captures | None = None
    callee: str = ""
    keyword: str = ""
    semantics: str = ""
    thread_name: str | None = None
    barriers: bool = True


@dataclass(frozen=True)
class Failure:
    """One error of the user's program, as JAX raised it, or as mgpu-fix saw it where JAX says nothing.

    ``chain`` holds (type, message) over the whole cause chain, outermost first. ``raised_at`` names JAX's own line,
    e.g. ``pallas/mpmd.py:986 in wrapper``. ``caught`` says that the program expects the error (``try``,
    ``pytest.raises``). ``jax`` is the version that raised it, empty where that is not known.
    """

    type: str
    message: str
    stage: str
    span: Span | None = None
    kernel: str = ""
    chain: tuple[tuple[str, str], ...] = ()
    raised_at: str = ""
    facts: Facts = Facts()
    caught: bool = False
    jax: str = ""


#: why a kernel has no numbers whose threads all wait for each other, or for nobody
WAITS = "it waits for ever in the interpreter, at a barrier or semaphore that nothing more comes to"
#: the same of one that uses places which its arrays do not have
OUTSIDE = "it reads or writes outside of its arrays in the interpreter"


@dataclass(frozen=True)
class Numbers:
    """The numbers of one kernel call: where its arrays lie, or why there are none.

    ``inputs`` is a digest over every operand's bytes. ``outputs`` are ``.npy`` files in the run's folder. ``state`` is
    ``known``, ``tainted`` (placeholder values flowed on) or ``unknown``; ``why`` explains the last two. ``stable`` is
    False where two runs of the same trace differed, ``uniform`` is True where every operand holds one value only.
    ``doubt`` is why the numbers, though known, do not settle what was meant: a race, say. ``on_gpu`` and
    ``draw_on_gpu`` are what a GPU gives, where the kernel ran on one.
    """

    state: str
    inputs: str = ""
    outputs: tuple[str, ...] = ()
    draw: tuple[str, ...] = ()
    why: str = ""
    stable: bool = True
    uniform: bool = False
    doubt: str = ""
    on_gpu: tuple[str, ...] = ()
    draw_on_gpu: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resources:
    """What a kernel compiled for ``arch`` takes: registers of each thread, bytes that these store to memory for want of
    more of them, bytes of shared memory of each block. ``warnings`` are the assembler's words about lost speed."""

    arch: str
    registers: int
    spill_bytes: int = 0
    shared_bytes: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelCall:
    """One (kernel, avals) that the program called. ``stage`` is where its real trace stops, ``run`` where nothing stops
    it; ``unwritten`` are outputs (by index) that nothing in it writes to. ``number`` tells apart calls that differ in
    what the kernel closes over. ``resources`` is None where it was not compiled, or ``uncompiled`` says why.
    ``gpu_fault`` is how it ends on the GPU, empty where it does not fail there, ``gpu_seconds`` what it takes there,
    where it was timed. ``batched`` says that ``vmap`` made it of another, which has the numbers.
    """

    name: str
    entry: str
    span: Span | None
    avals: tuple[str, ...]
    outputs: tuple[str, ...]
    stage: str
    numbers: tuple[Numbers, ...] = ()
    failures: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()
    seconds: float = 0.0
    number: int = 0
    resources: Resources | None = None
    uncompiled: str = ""
    gpu_fault: str = ""
    gpu_seconds: float | None = None
    batched: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """What stays when a fix moves or renames the kernel: the shapes that go in and come out."""
        return (*self.avals, "->", *self.outputs)

    @property
    def label(self) -> str:
        """Name and shapes, as one text."""
        return " ".join((self.name, *self.key))


@dataclass(frozen=True)
class Check:
    """A test of the program's that fails.

    ``reason`` is empty where all there is to it is a kernel's failure, which is told already. ``kernels`` names those
    whose values it may have seen, ``unproven`` says that some of these were placeholders.
    """

    name: str
    reason: str = ""
    span: Span | None = None
    kernels: tuple[str, ...] = ()
    unproven: bool = False


@dataclass(frozen=True)
class Referred:
    """A function of the program's held against its ``reference``, on its own arguments and on one more draw of them.

    ``calls`` are the labels of the kernel calls that it makes. ``agrees`` is None where that could not be found out;
    then, and where they differ, ``why`` says why. ``given`` says that the user named the reference. ``drawn`` says that
    there was one more draw, and where they differ that they do on that alone, ``uniform`` that the arguments hold one
    value each only.
    """

    function: str
    reference: str
    calls: tuple[str, ...] = ()
    agrees: bool | None = None
    why: str = ""
    given: bool = False
    drawn: bool = False
    uniform: bool = False


@dataclass(frozen=True)
class Observation:
    """One run of a program.

    ``status`` is ``ok`` (ran to its end), ``stopped`` (an exception or an exit; see ``reason``), ``timeout``,
    ``crashed`` (a signal) or ``blocked`` (cannot be run or seen). ``output`` is the program's own, tail only.
    ``callables`` names module variables that hold kernels, ``others`` counts Pallas kernels not for Mosaic GPU.
    ``checks`` are the tests that failed, ``loaded`` the files that its modules came from, and ``children`` says that it
    started processes that run Python, in which nothing is seen. ``referred`` are functions that have a reference.
    """

    status: str
    calls: tuple[KernelCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    reason: str = ""
    span: Span | None = None
    exit_code: int | None = 0
    output: str = ""
    folder: str = ""
    jax: str = ""
    device: str = ""
    declared: tuple[Function, ...] = ()
    callables: tuple[str, ...] = ()
    others: int = 0
    checks: tuple[Check, ...] = ()
    loaded: tuple[str, ...] = ()
    children: bool = False
    referred: tuple[Referred, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Edit:
    """Replace ``text[start:end]`` (character offsets into :attr:`SourceFile.text`) by ``new``."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Candidate:
    """One way to fix a failure. ``needs_oracle`` says that it could change a value, so that it is only safe where
    numbers can be compared; ``orders`` that it only adds order between uses of memory, so that a race before is no
    reason against it. ``cost`` tells a kernel author what it costs at run time, or is empty."""

    title: str
    edits: tuple[Edit, ...]
    applicability: Applicability = Applicability.SAFE
    name: str = ""
    needs_oracle: bool = False
    orders: bool = False
    cost: str = ""


@dataclass(frozen=True)
class Upgrade:
    """A symbol that newer JAX spells or means differently: its ``places`` in a file, and what changes them all at once.

    ``due`` says that JAX no longer takes the old spelling, ``words`` are what an error message calls it, ``gone`` is
    the release that first refused it or warned of it, so that the code is older. ``candidate`` is None where nothing
    can or should be changed; then ``reason`` says why.
    """

    symbol: str
    places: tuple[Span, ...]
    candidate: Candidate | None
    due: bool
    words: tuple[str, ...] = ()
    gone: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Tried:
    """A candidate and what became of it."""

    title: str
    outcome: str


@dataclass(frozen=True)
class Fix:
    """A fix that was applied, with its proof, None where no run was asked for.

    ``line``/``column`` are of the file as it lies on disk before the fix, None for a line that an earlier step made.
    """

    code: str
    name: str
    title: str
    applicability: Applicability
    verified_by: VerifiedBy | None
    path: str
    kernel: str
    line: int | None
    column: int | None
    diff: str = ""
    cost: str = ""
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Remaining:
    """A failure that is still there, and why."""

    code: str | None
    stage: str
    type: str
    message: str
    path: str
    line: int | None
    column: int | None
    reason: str
    kernel: str = ""
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class ProvenKernel:
    """A kernel call in the final text and what proves it; ``inputs`` tells which inputs the proof used, ``oracle`` what
    its numbers are equal to, None where they were held against nothing, ``resources`` what it takes where it was
    compiled, ``uncompiled`` why it was not where that was tried, ``gpu_seconds`` what it takes on the GPU where it was
    timed there."""

    name: str
    line: int | None
    stage: str
    verified_by: VerifiedBy | None
    inputs: str
    note: str = ""
    path: str = ""
    oracle: Oracle | None = None
    resources: Resources | None = None
    uncompiled: str = ""
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class FileReport:
    """What happened to one file. ``status`` is clean, fixed, partial, unfixed or blocked; ``stopped`` says that its
    program ends with an error of its own. ``notes`` are places to look at, at which nothing fails."""

    path: str
    status: str
    kernels: tuple[ProvenKernel, ...] = ()
    fixes: tuple[Fix, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    diff: str = ""
    reason: str = ""
    output: str = ""
    exit_code: int | None = None
    stopped: bool = False
    notes: tuple[Remaining, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything one invocation has to say; the JSON format is this, see ``report/schema.json``."""

    files: tuple[FileReport, ...]
    python: str = ""
    jax: str = ""
    device: str = ""
    runs: int = 0
    version: int = 1
    tool: dict[str, str] = field(default_factory=dict)


def duration(seconds: float) -> str:
    """A short time as people write it."""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "µs"))
    return f"{seconds / scale:.3g} {unit}"


def digest(data: bytes) -> str:
    """A short name for a text."""
    return hashlib.sha256(data).hexdigest()[:16]


def to_json(value: Any) -> Any:
    """Dataclasses to plain JSON values; enums to their text, tuples to lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    return value


def from_json(kind: type[T], data: Any) -> T:
    """The inverse of :func:`to_json` for a dataclass of this module. Unknown keys are ignored, missing ones default.

    Raises TypeError where a required field is missing.
    """
    return typing.cast(T, _revive(kind, data))


def _revive(kind: Any, data: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else _revive(next(a for a in args if a is not type(None)), data)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_revive(args[0], v) for v in data)
        return tuple(_revive(a, v) for a, v in zip(args, data, strict=True))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = {f.name for f in dataclasses.fields(kind)}
        return typing.cast(type, kind)(**{k: _revive(hints[k], v) for k, v in data.items() if k in known})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    return data
