"""Options of pipelines, loops and kernels that do not go together: MGF508 to MGF511, MGF515."""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Mapping

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import Names, SourceError, SourceFile

from .arguments import keyword, replaced, spliced, with_argument, without_keyword
from .callees import public
from .places import made_at, standing_at

_ALL = "0.10.2 to 0.12.0.1"
_PALLAS = "jax.experimental.pallas."
_PLGPU = f"{_PALLAS}mosaic_gpu."
_PIPELINES = frozenset({f"{_PLGPU}emit_pipeline", f"{_PLGPU}emit_pipeline_warp_specialized"})
_SPECS = frozenset({f"{_PALLAS}BlockSpec", f"{_PLGPU}BlockSpec"})
_STEPS = "max_concurrent_steps"


class PipelineSteps(Rule):
    """A pipeline holds back more steps than it keeps at once.

    ## What it means

    `delay_release=n` keeps the memory of a block for n more steps. So `max_concurrent_steps`, the number of steps that
    have memory, must be larger; it is 1 where it is not given.

    ## Why it happens

    A block is delayed for a `wgmma` that still reads it, and the pipeline is left as it was.

    ## Example

    ```python
    plgpu.emit_pipeline(
        body, grid=(4,), in_specs=[plgpu.BlockSpec((64, 64), lambda i: (i, 0), delay_release=1)],
        max_concurrent_steps=1,
    )
    ```

    ## Use instead

    ```python
    plgpu.emit_pipeline(
        body, grid=(4,), in_specs=[plgpu.BlockSpec((64, 64), lambda i: (i, 0), delay_release=1)],
        max_concurrent_steps=2,
    )
    ```

    ## Fix safety

    Safe: more steps are kept at once, which takes SMEM. Holding back fewer would let memory be overwritten that
    something may still read.
    """

    code = "MGF508"
    name = "pipeline-steps"
    jax = _ALL
    signatures = (Signature("ValueError", r"^max_concurrent_steps must be greater than all delay_release values"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: as many steps as the delays need. Raises NoFix."""
        names = Names(source)
        call = _pipeline(names, failure)
        levels = re.search(r"delay_release_levels=\[([\d, ]*)\]", failure.message)
        if levels is None or any(k.arg is None for k in call.keywords):
            raise NoFix("by hand: give max_concurrent_steps a value larger than every delay_release")
        steps = max(map(int, re.findall(r"\d+", levels[1]))) + 1
        given = next((k.value for k in call.keywords if k.arg == _STEPS), None)
        if given is not None and not isinstance(given, ast.Constant):
            raise NoFix(f"by hand: `{source.segment(given)}` must be at least {steps}")
        change = functools.partial(with_argument if given is None else replaced, new=keyword(_STEPS, str(steps)))
        yield _candidate(names, f"Keep {steps} steps at once", {call: change}, cost="memory for more blocks in SMEM")


class BlockSpecOptions(Rule):
    """A `BlockSpec` has an option that the pipeline, or kernel, does not know.

    ## What it means

    `pipeline_mode` is for TPUs: in Mosaic GPU `max_concurrent_steps` of the pipeline says how many blocks are kept.
    `collective_axes` loads a block once for a whole cluster, which only `plgpu.emit_pipeline_warp_specialized` does.

    ## Why it happens

    Specs are copied from a kernel for another backend, or from another kind of pipeline.

    ## Example

    ```python
    pl.BlockSpec((64, 64), lambda i: (i, 0), pipeline_mode=pl.Buffered(2))
    ```

    ## Use instead

    ```python
    plgpu.BlockSpec((64, 64), lambda i: (i, 0))
    ```

    ## Fix safety

    Dropping `pipeline_mode` is safe. Dropping `collective_axes` is `unsafe`: every block then loads its own copy, and
    barriers that count a cluster's arrivals may not fit any more. `pl.pallas_call` takes no `collective_axes` either;
    it has to become `plgpu.kernel` with `plgpu.emit_pipeline_warp_specialized`.
    """

    code = "MGF509"
    name = "block-spec-options"
    jax = _ALL
    signatures = (
        Signature("NotImplementedError", r"^pl\.BlockSpec with (pipeline_mode|collective_axes)= is not supported"),
        Signature("NotImplementedError", r"^BlockSpecs with collective_axes are not supported in emit_pipeline"),
        Signature("ValueError", r"^collective_axes is not supported in pallas_call\. Use plgpu\.k"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: without the option, in every spec of the pipeline. Raises NoFix."""
        option = "pipeline_mode" if "pipeline_mode" in failure.message else "collective_axes"
        if "pallas_call" in failure.message:
            raise NoFix("by hand: use plgpu.kernel with plgpu.emit_pipeline_warp_specialized")
        names = Names(source)
        pipeline = _pipeline(names, failure)
        specs = [k.value for k in pipeline.keywords if k.arg in ("in_specs", "out_specs")]
        made = [c for value in specs for c in _specs(names, value) if any(k.arg == option for k in c.keywords)]
        if not made:
            raise NoFix(f"by hand: drop {option} where the blocks are specified")
        level = Applicability.SAFE if option == "pipeline_mode" else Applicability.UNSAFE
        drop = functools.partial(without_keyword, name=option)
        yield _candidate(names, f"Drop {option}, which the pipeline does not have", dict.fromkeys(made, drop), level)


class UnrollDoesNotDivide(Rule):
    """A loop is to be unrolled by a number that does not divide its length.

    ## What it means

    Mosaic GPU unrolls whole groups of steps only: `unroll` must divide the number of steps.

    ## Why it happens

    Elsewhere JAX runs what is left over by itself.

    ## Example

    ```python
    @pl.loop(0, 10, unroll=4)
    def _(i): ...
    ```

    ## Use instead

    ```python
    @pl.loop(0, 10, unroll=2)
    def _(i): ...
    ```

    ## Fix safety

    Safe: the loop does the same, in larger or smaller groups. It gets the largest number below that divides.
    """

    code = "MGF510"
    name = "unroll-does-not-divide"
    jax = _ALL
    signatures = (Signature("NotImplementedError", r"^``unroll`` must divide ``length``, got unroll="),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the largest number that divides. Raises NoFix."""
        names = Names(source)
        given = re.search(r"unroll=(\d+) and length=(\d+)", failure.message)
        loops = [c for c in _at(names, failure) if any(k.arg == "unroll" for k in c.keywords)]
        if given is None or not loops:
            raise NoFix("by hand: `unroll` must divide the number of steps")
        unroll, length = map(int, given.groups())
        fits = next(n for n in range(unroll, 0, -1) if length % n == 0)
        change = (
            functools.partial(without_keyword, name="unroll")
            if fits == 1
            else functools.partial(replaced, new=keyword("unroll", str(fits)))
        )
        title = "Do not unroll the loop" if fits == 1 else f"Unroll the loop by {fits}"
        yield _candidate(names, title, {loops[0]: change})


class ProfileOptions(Rule):
    """A kernel has a place for its profile and no room, or room and no place.

    ## What it means

    `profile_space` (how many events fit) and `profile_dir` (where they are written) go together.

    ## Why it happens

    One of them is left behind when profiling is switched off.

    ## Example

    ```python
    plgpu.CompilerParams(profile_space=16)
    ```

    ## Use instead

    ```python
    plgpu.CompilerParams()
    ```

    ## Fix safety

    Safe where only the room is there: without a place nothing is kept. Where only the place is there a profile is
    wanted, and nothing is done.
    """

    code = "MGF511"
    name = "profile-options"
    jax = _ALL
    signatures = (Signature("ValueError", r"^Either both profile_space and profile_dir must be set"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: without the room that nothing uses. Raises NoFix."""
        names = Names(source)
        for call in _at(names, failure):
            given = [k.arg for k in call.keywords if k.arg in ("profile_space", "profile_dir")]
            if given == ["profile_dir"]:
                raise NoFix("by hand: say how many events fit with profile_space, or drop profile_dir")
            if given == ["profile_space"]:
                drop = functools.partial(without_keyword, name="profile_space")
                yield _candidate(names, "Drop profile_space, which is alone", {call: drop})
                return
        raise NoFix("by hand: give both profile_space and profile_dir, or neither")


class DimensionSemantics(Rule):
    """A kernel without a pipeline of its own says how the axes of its grid are run.

    ## What it means

    `dimension_semantics` tells `pl.pallas_call` which axes of its grid may run in parallel. The grid of a
    `plgpu.kernel` is one of blocks, which always do.

    ## Why it happens

    A kernel is moved from `pl.pallas_call`, with its parameters.

    ## Example

    ```python
    plgpu.kernel(body, out_type=out, compiler_params=plgpu.CompilerParams(dimension_semantics=["parallel"]))
    ```

    ## Use instead

    ```python
    plgpu.kernel(body, out_type=out)
    ```

    ## Fix safety

    Safe where all axes are `parallel`, which is how they run. `sequential` asks for an order that a grid of blocks does
    not have, and is left.
    """

    code = "MGF515"
    name = "dimension-semantics"
    jax = "0.12.0.1; 0.10.2 ignores it, or stops at a bare assert"
    signatures = (
        Signature("NotImplementedError", r"^dimension_semantics= is not supported by the unpipelined lowering"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: without it, and without the parameters if they have nothing else. Raises NoFix."""
        names = Names(source)
        for kernel in made_at(names, failure.span):
            params = next((k.value for k in kernel.keywords if k.arg == "compiler_params"), None)
            made = names.binding(params.id, params) if isinstance(params, ast.Name) else params
            given = {k.arg: k.value for k in made.keywords} if isinstance(made, ast.Call) else {}
            value = given.get("dimension_semantics")
            if value is None or not isinstance(made, ast.Call):
                continue
            words = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
            if not words or any(word != "parallel" for word in words):
                raise NoFix("by hand: blocks run in parallel; loop over what must come in an order inside the kernel")
            alone = len(given) == 1 and not made.args and made is params
            drop, at = ("compiler_params", kernel) if alone else ("dimension_semantics", made)
            change = functools.partial(without_keyword, name=drop)
            yield _candidate(names, "Drop dimension_semantics, which blocks do not have", {at: change})
            return
        raise NoFix("by hand: drop dimension_semantics from the kernel's compiler_params")


RULES = (PipelineSteps(), BlockSpecOptions(), UnrollDoesNotDivide(), ProfileOptions(), DimensionSemantics())


def _at(names: Names, failure: Failure) -> list[ast.Call]:
    """The calls at the failing place, and those that made what is called, or stands, there."""
    found = standing_at(names, failure.span, ast.Call)
    named = standing_at(names, failure.span, ast.Name)
    for made in (*(call.func for call in found), *named):
        value = names.binding(made.id, made) if isinstance(made, ast.Name) else made
        found += [value] if isinstance(value, ast.Call) else []
    return found


def _pipeline(names: Names, failure: Failure) -> ast.Call:
    for call in _at(names, failure):
        if public(names.resolve(call.func)) in _PIPELINES:
            return call
    raise NoFix("by hand: the pipeline is not made where it is run")


def _specs(names: Names, value: ast.expr) -> list[ast.Call]:
    """The specs written out in a value, or in what its names stand for."""
    found = [c for c in ast.walk(value) if isinstance(c, ast.Call)]
    for name in (n for n in ast.walk(value) if isinstance(n, ast.Name)):
        bound = names.binding(name.id, name)
        found += [c for c in ast.walk(bound) if isinstance(c, ast.Call)] if isinstance(bound, ast.expr) else []
    return list(dict.fromkeys(c for c in found if public(names.resolve(c.func)) in _SPECS))


def _candidate(
    names: Names,
    title: str,
    changes: Mapping[ast.expr, Callable[[cst.Call], cst.Call]],
    level: Applicability = Applicability.SAFE,
    cost: str = "",
) -> Candidate:
    try:
        return Candidate(title, tuple(spliced(names, changes)), level, cost=cost)
    except SourceError as e:
        raise NoFix(str(e)) from e
