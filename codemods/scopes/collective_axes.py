"""MGF301: a ``pl.run_scoped`` whose ``collective_axes`` its allocations cannot have."""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Axis, Candidate, Edit, Failure, Scope, Span, Upgrade
from mgpu_fix.source import Names, SourceError, SourceFile, Splice
from mgpu_fix.versions import Window

from ..arguments import exploded, keyword, runs, with_argument, without
from . import thread_scopes
from .accumulators import Split, split
from .scope_calls import AXES, Layer, layers_of
from .thread_axis import ThreadAxis

#: the width that a line may have anyway
_WIDTH = 88


class CollectiveAxes(Rule):
    """The `collective_axes` of a `pl.run_scoped` are not what its allocations need.

    ## What it means

    `collective_axes` says which programs share one allocation. SMEM, TMEM, barriers and semaphores can be shared by all
    warpgroups of a block and by nothing else, so the only axis allowed is the kernel's `thread_name`; a kernel with
    several warpgroups needs it, one without `thread_name` must not give any. WGMMA accumulators are registers and are
    never shared.

    ## Why it happens

    A grid or cluster axis is named, or two axes, or a list (which is not hashable), or none in a kernel with
    `num_threads`; or accumulators and SMEM are allocated by the same `run_scoped`.

    ## Example

    ```python
    @functools.partial(plgpu.kernel, out_type=out, grid=(4,), grid_names=("g",), num_threads=2, thread_name="wg")
    def kernel(x_ref, o_ref):
        pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes="g")
    ```

    ## Use instead

    ```python
    @functools.partial(plgpu.kernel, out_type=out, grid=(4,), grid_names=("g",), num_threads=2, thread_name="wg")
    def kernel(x_ref, o_ref):
        pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes="wg")
    ```

    The axis is written as the kernel declares it: by its variable where that is seen, else as a text. Without
    `thread_name` the argument goes. `plgpu.ACC` gets a scope of its own, without axes, in the other one. A semaphore
    for several blocks is `pl.get_global`'s.

    ## Fix safety

    Safe where no other programs share memory than before: the thread axis is among the axes already and the others have
    size 1; only accumulators are concerned; or each allocation that comes to be shared is used by one and the same
    warpgroup. Else sharing may not have been meant, and the fix is safe only if the interpreter says so:

    - warpgroups that now share memory do not race for it,
    - the result does not depend on memory that nothing wrote, as it would if an axis that goes was there to share over,
    - if each warpgroup had memory of its own, the kernel would compute the same, or would read what nothing wrote.

    Where one of these does not hold, or there are no numbers, it is unsafe. Stores of the same value by all warpgroups
    do not count as a race.

    Nothing is changed where not all warpgroups reach the call, since they wait for each other there; where each
    arrives at a barrier that comes to be shared and does not wait for as many; where kernels with different thread
    axes come by the same call; where a semaphore is meant for several blocks; and where the axes or the allocations
    are not written out in this file.
    """

    code = "MGF301"
    name = "collective-axes"
    jax = "0.10.2 to 0.12.0"
    signatures = (
        Signature("ValueError", r"^Only thread-collective allocations are supported in run_scoped"),
        Signature("NotImplementedError", r"^Only thread-collective allocations are supported in multithr"),
        Signature("ValueError", r"^WGMMA accumulators can only be allocated non-collectively"),
        Signature("TypeError", r"primitive run_scoped, the value of parameter collective_axes was not hashable"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate that gives every scope of the kernel the axes that it needs."""
        refused = [scope for scope in failure.facts.scopes if not scope.accepted]
        if not refused:
            raise NoFix("which scope it is, and what it allocates, is not known")
        for scope in refused:
            _check(scope, source)
        try:
            names = Names(source)
            accepted = [scope for scope in failure.facts.scopes if scope.accepted and scope.span.path == source.path]
            plan = _Plan(names, failure.kernel, frozenset(scope.span for scope in refused), accepted)
            for scope in refused:
                plan.add(scope)
            edits = tuple(plan.edits())
        except SourceError as e:
            raise NoFix(str(e)) from e
        sure = all(scope.diverges is not None or not _waits(scope) for scope in refused)
        return [
            Candidate(
                title="; ".join(dict.fromkeys(plan.titles)),
                edits=edits,
                applicability=Applicability.SAFE if sure else Applicability.UNSAFE,
                needs_oracle=any(_shares_otherwise(scope) for scope in refused),
            )
        ]

    def upgrades(self, names: Names, window: Window) -> Iterable[Upgrade]:
        """Scopes that old code opens for all threads of a kernel without saying so."""
        return thread_scopes.upgrades(names, window)


RULES = (CollectiveAxes(),)


def _check(scope: Scope, source: SourceFile) -> None:
    """Raises NoFix where no axes are right for a scope."""
    line = scope.span.line
    if scope.span.path != source.path:
        raise NoFix(f"the kernel also makes a scope in {scope.span.path}, line {line}")
    if scope.diverges and _waits(scope):
        raise NoFix(
            f"not all warpgroups reach the run_scoped at line {line}, as they must; move it out of what keeps some away"
        )
    if any(a.kind == "semaphore" for a in scope.allocations) and any(axis.size > 1 for axis in _dropped(scope)):
        raise NoFix(f"the semaphore at line {line} is meant for several blocks; pl.get_global gives one")
    if scope.thread not in scope.axes and any(a.own for a in scope.allocations):
        raise NoFix(
            f"each warpgroup arrives at a barrier of the run_scoped at line {line}, which cannot be shared with its"
            " num_arrivals"
        )
    if any("acc" in a.kind and a.kind != "acc" for a in scope.allocations):
        raise NoFix(f"a pytree of the run_scoped at line {line} holds an accumulator and something else")


def _shared(scope: Scope) -> list[str]:
    """Kinds of what a scope allocates beside accumulators, which nobody shares."""
    return [a.kind for a in scope.allocations if a.kind not in ("", "acc")]


def _waits(scope: Scope) -> bool:
    """Whether warpgroups wait for each other where a scope begins."""
    return scope.thread is not None and scope.thread.size > 1 and bool(_shared(scope))


def _dropped(scope: Scope) -> list[Axis]:
    return [axis for axis in scope.axes if axis != scope.thread]


def _shares_otherwise(scope: Scope) -> bool:
    """Whether other programs share a scope's memory than the author's axes say, so that only numbers tell whether that
    was meant."""
    if not _shared(scope):
        return False
    if any(axis.size > 1 for axis in _dropped(scope)):
        return True
    several = scope.thread is not None and scope.thread.size > 1 and scope.thread not in scope.axes
    return several and not all(a.confined or a.kind in ("", "acc") for a in scope.allocations)


Change = Callable[[cst.Call], Any]


@dataclass
class _Plan:
    """What changes in which call, for the scopes at ``refused``; ``accepted`` are those that must stay as they are."""

    names: Names
    kernel: str
    refused: frozenset[Span]
    accepted: Sequence[Scope]
    titles: list[str] = field(default_factory=list)
    changes: dict[ast.expr, dict[str, Change]] = field(default_factory=dict)
    functions: dict[ast.FunctionDef, Callable[[cst.FunctionDef], Any]] = field(default_factory=dict)
    #: values that callers pass, and what to pass instead
    sites: dict[ast.expr, str] = field(default_factory=dict)

    def add(self, scope: Scope) -> None:
        """Plan what a scope needs. Raises NoFix."""
        layers = layers_of(self.names, scope)
        needs_thread = bool(scope.thread and _shared(scope))
        thread = ThreadAxis(self.names, scope.thread.name, self.kernel) if scope.thread and needs_thread else None
        if scope.others and not (thread and "" not in scope.others and thread.follows(layers[-1].call)):
            mine = scope.thread.name if scope.thread else ""
            axes = " and ".join(f"`{name}`" if name else "none" for name in (mine, *scope.others))
            raise NoFix(f"the call at line {scope.span.line} serves kernels with different thread axes: {axes}")
        mixed = needs_thread and any(a.kind == "acc" for a in scope.allocations)
        if mixed:
            made = split(self.names, layers, scope)
            self._change(made.call, "split", functools.partial(_fitted, self.names.source, made))
            if made.function and made.decorate:
                self.functions.setdefault(made.function, made.decorate)
            self.titles.append("Allocate the accumulators in a scope of their own")
        if thread and scope.axes == (scope.thread,) and self._is_written(layers, thread):
            return
        self._give(layers, scope, thread)

    def _is_written(self, layers: Sequence[Layer], thread: ThreadAxis) -> bool:
        """Whether the axes are the right ones already, as where only the accumulators were wrong."""
        value = next((v for layer in layers if (v := layer.axes()) is not None), None)
        return not isinstance(value, ast.List | ast.Set)

    def _give(self, layers: Sequence[Layer], scope: Scope, thread: ThreadAxis | None) -> None:
        line = scope.span.line
        giving = next((layer for layer in layers if layer.axes() is not None), None)
        if giving is None:
            if any(layer.is_splat for layer in layers) and (scope.axes or thread is None):
                raise NoFix(f"the run_scoped at line {line} gets its axes out of a dictionary or a sequence")
            target = next((layer for layer in layers if layer.kind == "with_scoped" or layer is layers[0]), layers[0])
            if thread:
                text = thread.at(target.call)
                self._change(target.call, f"axes {text}", lambda call: with_argument(call, keyword(AXES, text)))
                self.titles.append(f"Add {AXES}={text}, the kernel's thread axis")
            return
        value = giving.axes()
        assert value is not None
        if giving.call is not layers[0].call and self._serves_others(giving.call):
            # Another scope needs what they share; this one gets its own.
            text = thread.at(layers[0].call) if thread else "()"
            self._change(layers[0].call, f"axes {text}", lambda call: with_argument(call, keyword(AXES, text)))
            self.titles.append(f"Give {AXES}={text} where it is called")
            return
        is_parameter = isinstance(value, ast.Name) and isinstance(self.names.binding(value.id, value), ast.arg)
        if isinstance(value, ast.Name) and is_parameter and not scope.others:
            self._at_callers(value, line, thread)
        elif thread is None:
            self._change(giving.call, "axes", _without_axes)
            why = "which accumulators cannot have" if scope.thread else "which needs a kernel with warpgroups"
            self.titles.append(f"Drop {AXES}, {why}")
        else:
            text = _form(value, thread, bool(scope.others))
            self._change(giving.call, f"axes {text}", functools.partial(_with_axes, text=text))
            self.titles.append(f"Give {AXES}={text}, the kernel's thread axis")

    def _serves_others(self, call: ast.Call) -> bool:
        """Whether what a call binds is used for more than the scopes that are to be changed."""
        if any(layer.call is call for scope in self.accepted for layer in layers_of(self.names, scope)):
            return True
        statement = self.names.statement(call)
        names = [t.id for t in getattr(statement, "targets", ()) if isinstance(t, ast.Name)]
        uses = [use for name in names for use in self.names.uses(name, self.names.scope(statement))]
        return any(not self.refused & {self.names.source.span(n) for n in self._calls(use)} for use in uses)

    def _calls(self, use: ast.AST) -> Iterator[ast.Call]:
        parent = self.names.parents[use]
        if isinstance(parent, ast.Call):
            yield parent
            yield from self._calls(parent)

    def _change(self, call: ast.Call, key: str, change: Change) -> None:
        """Raises NoFix where two scopes need different axes of one call."""
        mine = self.changes.setdefault(call, {})
        if key.startswith("axes") and any(k.startswith("axes") and k != key for k in mine):
            raise NoFix(f"scopes that need different axes share the call at line {call.lineno}")
        mine.setdefault(key, change)

    def _at_callers(self, parameter: ast.Name, line: int, thread: ThreadAxis | None) -> None:
        """Change what is passed for a parameter that gives the axes, where that is all that it is for."""
        function = self.names.home(parameter.id, parameter)
        values = _passed(self.names, function, parameter.id) if isinstance(function, ast.FunctionDef) else []
        alone = function is not None and len(self.names.uses(parameter.id, function)) == 1
        if not values or not alone or any(not isinstance(v, ast.Constant | ast.Tuple | ast.List) for v in values):
            raise NoFix(f"the run_scoped at line {line} gets its axes by the parameter `{parameter.id}`")
        for value in values:
            text = _form(value, thread) if thread else "()"
            if self.sites.setdefault(value, text) != text:
                raise NoFix(f"scopes that need different axes share the value at line {value.lineno}")
        passed = ", ".join(dict.fromkeys(self.sites[value] for value in values))
        self.titles.append(f"Pass {passed} as `{parameter.id}`")

    def edits(self) -> Iterator[Edit]:
        """The edits of all that was planned."""
        source = self.names.source
        for value, text in self.sites.items():
            yield Edit(*source.bounds(value), text)
        for run in runs(source, self.names, self.changes):
            splice = Splice(source, run.first, run.last)
            for call in run.nodes:
                # The axes first: a split may put the call into another one.
                for _, change in sorted(self.changes[call].items()):
                    splice.on(call, change, cst.Call)
            for function, decorate in self.functions.items():
                if any(call in function.decorator_list for call in run.nodes):
                    splice.on(function, decorate, cst.FunctionDef)
            yield splice.edit()


def _fitted(source: SourceFile, made: Split, old: cst.Call) -> cst.Call:
    """The call split, over several lines where one would be longer than any in the file."""
    new = made.change(old)
    code = cst.Module([]).code_for_node(new)
    widest = max([_WIDTH, *(len(line) for line in source.text.splitlines())])
    added = len(code) - len(source.segment(made.call))
    line = source.line(made.call.lineno).rstrip()
    if "\n" in code or "\r" in code or len(line) + added <= widest:
        return new
    return exploded(new, source.indent)


def _passed(names: Names, function: ast.FunctionDef, parameter: str) -> list[ast.expr]:
    """What every call of a function gives for a parameter, or its default; nothing where that is not all known."""
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    defaults: dict[str, ast.expr | None] = dict(
        zip(positional[len(positional) - len(function.args.defaults) :], function.args.defaults, strict=True)
    )
    defaults |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)}
    found: list[ast.expr] = []
    for use in names.uses(function.name, names.scope(function)):
        call = names.parents[use]
        if not isinstance(call, ast.Call) or call.func is not use or any(isinstance(a, ast.Starred) for a in call.args):
            return []
        given = {k.arg: k.value for k in call.keywords}
        given |= dict(zip(positional, call.args, strict=False))
        value = given.get(parameter, defaults.get(parameter))
        if value is None or None in given:
            return []
        found.append(value)
    return list(dict.fromkeys(found))


def _form(value: ast.expr, thread: ThreadAxis, varies: bool = False) -> str:
    """The thread axis in the author's form: by the element of a tuple that names it, unless the axis ``varies`` from
    kernel to kernel; in a tuple where the author gives one of one."""
    elements = value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]
    named = [thread.names.source.segment(e) for e in elements if thread.stands_for(e)]
    text = named[0] if named and not varies else thread.at(value)
    return f"({text},)" if isinstance(value, ast.Tuple) and len(elements) == 1 else text


def _axes_place(call: cst.Call) -> int:
    return next(i for i, arg in enumerate(call.args) if arg.keyword and arg.keyword.value == AXES)


def _with_axes(call: cst.Call, text: str) -> cst.Call:
    at = _axes_place(call)
    args = list(call.args)
    args[at] = args[at].with_changes(value=cst.parse_expression(text))
    return call.with_changes(args=args)


def _without_axes(call: cst.Call) -> cst.Call:
    return without(call, _axes_place(call))
