"""Arguments in a form that JAX does not take, or left out: MGF202, MGF512 to MGF514, and MGF710."""

import ast
import re
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .callees import public
from .meshes import asked_axes
from .places import callee, made_at, standing_at

_ALL = "0.10.2 to 0.12.0.1"
_PALLAS = "jax.experimental.pallas."
_PLGPU = f"{_PALLAS}mosaic_gpu."
_MEMORIES = frozenset({f"{_PLGPU}SMEM", f"{_PLGPU}GMEM", f"{_PLGPU}TMEM"})
_DECLARES = frozenset({f"{_PLGPU}kernel", f"{_PALLAS}kernel", f"{_PLGPU}Mesh"})
_SCRATCH = ("scratch_types", "scratch_shapes")
#: threads of a warpgroup, and the most warpgroups of a block
_WARPGROUP, _MOST = 128, 16


class WaitWithoutCount(Rule):
    """A wait is not told how much may still be under way.

    ## What it means

    `plgpu.wait_smem_to_gmem(n)` and `plgpu.wgmma_wait(n)` wait until at most the last n copies, or multiplications, are
    still under way.

    ## Why it happens

    It is taken for a wait for everything, which `0` says.

    ## Example

    ```python
    plgpu.copy_smem_to_gmem(smem, o_ref)
    plgpu.wait_smem_to_gmem()
    ```

    ## Use instead

    ```python
    plgpu.copy_smem_to_gmem(smem, o_ref)
    plgpu.wait_smem_to_gmem(0)
    ```

    ## Fix safety

    Safe: with `0` it waits for all of them.
    """

    code = "MGF512"
    name = "wait-without-count"
    jax = _ALL
    signatures = (
        Signature("TypeError", r"^(wait_smem_to_gmem|wgmma_wait)\(\) missing 1 required positional argument: 'n'"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: wait for all. Raises NoFix."""
        for call in standing_at(Names(source), failure.span, ast.Call):
            if not call.args and source.text[source.bounds(call)[1] - 1] == ")":
                named = ", " if call.keywords else ""
                at = source.bounds(call.func)[1] + 1
                yield Candidate("Wait for all of them", (Edit(at, at, f"0{named}"),))
                return
        raise NoFix("by hand: give the wait a number, 0 to wait for all")


class DebugPrintArguments(Rule):
    """A kernel prints values that it gives by name.

    ## What it means

    On a GPU, `jax.debug.print` and `pl.debug_print` fill `{}` with what follows, in that order.

    ## Why it happens

    Elsewhere `jax.debug.print("{x}", x=x)` works.

    ## Example

    ```python
    jax.debug.print("block {i}: {x}", i=i, x=x_ref[0])
    ```

    ## Use instead

    ```python
    jax.debug.print("block {}: {}", i, x_ref[0])
    ```

    ## Fix safety

    Safe: the same is printed. A text that is no literal, or that says how a value is to be written, is left.
    """

    code = "MGF513"
    name = "debug-print-arguments"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^Only positional arguments are supported by debug_print on Pallas"),
        Signature("TypeError", r"^debug_print\(\) got an unexpected keyword argument"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the values in the order of their names in the text. Raises NoFix."""
        by_hand = NoFix("by hand: put `{}` into the text, and give the values in that order")
        for call in standing_at(Names(source), failure.span, ast.Call):
            match call:
                case ast.Call(args=[ast.Constant(value=str()) as text], keywords=[first, *_] as given):
                    written = source.segment(text)
                    values = {k.arg: k.value for k in given if k.arg}
                    asked = re.findall(r"\{(\w*)\}", written)
                    plain = written.count("{") == len(asked) and "{{" not in written
                    if not plain or sorted(asked) != sorted(values) or len(values) != len(given):
                        raise by_hand
                    between = source.text[source.bounds(text)[1] : source.bounds(first)[0]]
                    last = source.bounds(given[-1])[1]
                    inside = source.text[source.bounds(first)[0] : last]
                    if "#" in between or "#" in inside:
                        raise by_hand
                    parts = [re.sub(r"\{\w+\}", "{}", written), *(source.segment(values[name]) for name in asked)]
                    edit = Edit(
                        source.bounds(text)[0], last, between.join(parts[:2]) + "".join(f", {p}" for p in parts[2:])
                    )
                    yield Candidate("Give the values in their order", (edit,))
                    return
        raise by_hand


class SingleForSequence(Rule):
    """One value is given where JAX takes several.

    ## What it means

    `grid`, `grid_names`, `scratch_types`, `transforms`, the shape of `plgpu.SMEM` and that of a `plgpu.TilingTransform`
    are tuples or lists, also where they hold one thing. A lone scratch declaration is taken apart into its own fields,
    of which it has none: the body then gets no scratch.

    ## Why it happens

    `(plgpu.SMEM(...))` is no tuple: it takes a comma, `(plgpu.SMEM(...),)`.

    ## Example

    ```python
    plgpu.kernel(body, out_type=out, grid=4, grid_names="rows", scratch_types=(plgpu.SMEM(128, jnp.float32)))
    ```

    ## Use instead

    ```python
    plgpu.kernel(body, out_type=out, grid=(4,), grid_names=("rows",), scratch_types=(plgpu.SMEM((128,), jnp.float32),))
    ```

    ## Fix safety

    Safe: it means the same. A body that lacks an argument for another reason is left.
    """

    code = "MGF514"
    name = "single-for-sequence"
    jax = _ALL
    signatures = (
        Signature("TypeError", r"^object of type 'int' has no len\(\)"),
        Signature("TypeError", r"^'(int|\w+Transform)' object is not iterable"),
        Signature("TypeError", r"^TilingTransform\.__init__\(\) takes 2 positional arguments but \d+ were given"),
        Signature("TypeError", r"missing \d+ required positional"),
        Signature(
            "ValueError", r"^grid_names must have the same length as grid, got Mesh\(grid=\([^)]*\), grid_names='"
        ),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: all of them as tuples. Raises NoFix."""
        names = Names(source)
        if failure.message.startswith("TilingTransform"):
            for call in standing_at(names, failure.span, ast.Call):
                first, last = source.bounds(call.args[0])[0], source.bounds(call.args[-1])[1]
                yield Candidate("Make a tuple of the shape", (Edit(first, first, "("), Edit(last, last, ")")))
                return
        missing = "missing" in failure.message
        singles: dict[ast.expr, str] = {}
        for call in _declarations(names, failure):
            singles |= _singles(names, call, missing)
        if not singles:
            raise NoFix(
                "by hand: declare all that the body takes, or give the call what it lacks"
                if missing
                else "by hand: make a tuple of it"
            )
        edits = []
        for value in singles:
            start, end = source.bounds(value)
            # Parentheses that are there already only lack the comma.
            inner = re.compile(r"\(\s*$").search(source.text, 0, start), re.compile(r"\s*\)").match(source.text, end)
            wrapped = inner[0] and inner[1] and not _is_argument_list(names, value)
            edits += [Edit(end, end, ",")] if wrapped else [Edit(start, start, "("), Edit(end, end, ",)")]
        what = ", ".join(dict.fromkeys(singles.values()))
        yield Candidate(f"Make a tuple of {what}", tuple(edits))


class TooManyThreads(Rule):
    """A block is to have more warpgroups than fit.

    ## What it means

    `num_threads` counts Mosaic's threads, which are warpgroups of 128 threads of the GPU each. A block has at most
    2,048 threads, so 16 warpgroups.

    ## Why it happens

    It is taken for CUDA's number of threads.

    ## Example

    ```python
    plgpu.kernel(body, out_type=out, num_threads=256, thread_name="wg")
    ```

    ## Use instead

    ```python
    plgpu.kernel(body, out_type=out, num_threads=2, thread_name="wg")
    ```

    ## Fix safety

    Safe where the number is a multiple of 128 that only this uses, and the file does not ask which thread it is: it is
    then divided. Others are left.
    """

    code = "MGF710"
    name = "too-many-threads"
    jax = _ALL
    signatures = (Signature("ValueError", r"^Requested too many CUDA threads per block"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the number of warpgroups. Raises NoFix."""
        names = Names(source)
        for call in _declarations(names, failure):
            value = next((k.value for k in call.keywords if k.arg == "num_threads"), None)
            bound = names.binding(value.id, value) if isinstance(value, ast.Name) else value
            if not isinstance(bound, ast.Constant) or not isinstance(bound.value, int):
                continue
            home = names.home(value.id, value) if isinstance(value, ast.Name) else None
            if _asks_thread(names, call):
                raise NoFix(
                    "by hand: a warpgroup has one place, so that code which asks for a thread's is to be rewritten"
                )
            alone = home is None or names.uses(getattr(value, "id", ""), home) == [value]
            groups, rest = divmod(bound.value, _WARPGROUP)
            if alone and not rest and 0 < groups <= _MOST:
                yield Candidate(
                    f"{groups} warpgroup{'s' if groups > 1 else ''}", (Edit(*source.bounds(bound), str(groups)),)
                )
                return
        raise NoFix("by hand: num_threads counts warpgroups of 128 threads: at most 16")


class InlineMgpuTypes(Rule):
    """The arguments of an `inline_mgpu` function are described by a class, not by one of its instances.

    ## What it means

    `arg_types` says what each argument is: `plgpu.RefType()` a Ref, a layout an array in it.

    ## Why it happens

    `RefType` looks like a constant, and takes `()`.

    ## Example

    ```python
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType,))
    def fill(ctx, ref): ...
    ```

    ## Use instead

    ```python
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),))
    def fill(ctx, ref): ...
    ```

    ## Fix safety

    Safe: it means the same.
    """

    code = "MGF202"
    name = "inline-mgpu-types"
    jax = _ALL
    signatures = (Signature("ValueError", r"^inline_mgpu_p only supports only SomeLayout and RefType arg types"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: instances of all that are none. Raises NoFix."""
        names = Names(source)
        edits = []
        for call in standing_at(names, failure.span, ast.Call):
            for value in (k.value for k in call.keywords if k.arg == "arg_types"):
                for node in ast.walk(value):
                    bare = isinstance(node, ast.Name | ast.Attribute) and names.resolve(node) == f"{_PLGPU}RefType"
                    if bare and not isinstance(names.parents[node], ast.Call | ast.Attribute):
                        end = source.bounds(node)[1]
                        edits.append(Edit(end, end, "()"))
        if not edits:
            raise NoFix("by hand: describe each argument by plgpu.RefType(), or by the layout of an array")
        yield Candidate("Describe Refs by RefType()", tuple(edits))


RULES = (InlineMgpuTypes(), WaitWithoutCount(), DebugPrintArguments(), SingleForSequence(), TooManyThreads())


def _asks_thread(names: Names, call: ast.Call) -> bool:
    """Whether the file asks which thread it is, or may."""
    thread = next((k.value for k in call.keywords if k.arg == "thread_name"), None)
    name = thread.value if isinstance(thread, ast.Constant) else None
    places = [c for c in names.nodes(ast.Call) if names.resolve(c.func) in ("jax.lax.axis_index", "jax.lax.axis_size")]
    unknown = any(not c.args or not isinstance(c.args[0], ast.Constant) for c in places)
    return name in asked_axes(names) or (unknown and bool(places)) or (name is None and bool(places))


def _declarations(names: Names, failure: Failure) -> Iterator[ast.Call]:
    """The declarations at the failing place."""
    for call in made_at(names, failure.span):
        if public(names.resolve(callee(names, call))) in _DECLARES | _MEMORIES:
            yield call


def _singles(names: Names, call: ast.Call, missing: bool) -> dict[ast.expr, str]:
    """Values of a declaration's that are no sequence and have to be one, with what they are."""
    found: dict[ast.expr, str] = {}
    for given in call.keywords:
        value = given.value
        if given.arg in _SCRATCH and isinstance(value, ast.Call) and missing:
            # What a function of the file makes may be a list.
            if public(names.resolve(value.func)).startswith(_PLGPU):
                found[value] = "the scratch"
        elif given.arg == "grid_names" and isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[value] = "the names"
        elif given.arg in ("grid", "cluster") and isinstance(value, ast.Constant) and isinstance(value.value, int):
            found[value] = f"the {given.arg}"
        elif given.arg == "transforms" and isinstance(value, ast.Call):
            found[value] = "the transforms"
        if given.arg in _SCRATCH and not missing:
            inner = [c for c in ast.walk(value) if isinstance(c, ast.Call)]
            for memory in (c for c in inner if public(names.resolve(c.func)) in _MEMORIES):
                found |= _singles(names, memory, missing)
    shape = call.args[0] if call.args and public(names.resolve(call.func)) in _MEMORIES else None
    if isinstance(shape, ast.Constant | ast.Name) and not missing and not _is_tuple(names, shape):
        found[shape] = "the shape"
    return found


def _is_tuple(names: Names, value: ast.expr) -> bool:
    """Whether a name may stand for a tuple."""
    bound = names.binding(value.id, value) if isinstance(value, ast.Name) else value
    return not isinstance(bound, ast.Constant)


def _is_argument_list(names: Names, value: ast.expr) -> bool:
    """Whether the parentheses around a value are those of a call."""
    parent = names.parents[value]
    return isinstance(parent, ast.Call) and len(parent.args) + len(parent.keywords) == 1
