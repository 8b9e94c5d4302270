"""MGF901: arguments that newer JAX calls by another name, or takes by name only."""

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import libcst as cst

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Candidate, Edit, Upgrade
from mgpu_fix.source import Names, SourceError, SourceFile, Splice
from mgpu_fix.versions import Window, parse

from ..arguments import Run, in_order, runs, without
from ..callees import Callees, starred
from .rules import Change, DriftRule, guarded, table

#: What stands between two arguments, or between a callee and its first one.
_LEAD = re.compile(r"(?:[\s\\)]|#.*)*[,(](?:[\s\\]|#.*)*")


def _callees(kind: str) -> str:
    """What Python calls the functions of the table in its messages, as alternatives of a pattern."""
    own = {change.symbol.rpartition(".")[2] for change in table() if change.kind == kind and change.is_pallas}
    # plgpu.SMEM and its like are members of one class.
    return "|".join(sorted(own - {"SMEM", "GMEM", "TMEM", "kernel"}))


class RenamedArgument(DriftRule):
    """An argument is given by a name, or at a place, that newer JAX no longer accepts.

    ## What it means

    Most often it is `out_shape=` or `scratch_shapes=`: `plgpu.kernel` and `pl.kernel` call them `out_type` and
    `scratch_types` now. JAX's message names neither: `plgpu.kernel` passes every keyword that it does not know on to
    `plgpu.Mesh`, so it is `Mesh.__init__() got an unexpected keyword argument 'out_shape'` that you see.

    ## Why it happens

    JAX renames arguments, and stops taking the old names after a time of warnings, or at once:

    | | old | new |
    |---|---|---|
    | `plgpu.kernel` | `out_shape=`, `scratch_shapes=`, the type by place | 0.11.2: `out_type=`, `scratch_types=` only |
    | `pl.kernel` | `out_shape=`, `scratch_shapes=` | 0.10.1: `out_type=`, `scratch_types=` only |
    | `plgpu.Barrier` | `num_arrivals` and `num_barriers` by place | 0.6.2: by name only |
    | `plgpu.Barrier` | `for_tensor_core=` | 0.7.0: `orders_tensor_core=` |
    | `plgpu.tcgen05_mma` | `accumulate`, `collective_axis` by place | 0.7.0: by name only |

    `pl.pallas_call` is not concerned: there the name is still `out_shape`.

    ## Example

    ```python
    @functools.partial(plgpu.kernel, out_shape=jax.ShapeDtypeStruct((128,), jnp.float32))
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    ## Use instead

    ```python
    @functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    The new names of kernels' arguments work from JAX 0.10.2 on.

    ## Fix safety

    Safe: a name changes, no value does. All calls in the file are renamed in one step, also through
    `functools.partial`, through functions in the same file that pass their keyword arguments on, and in dictionaries
    that are only spread into such calls. Only calls that can be traced to the function are touched. Where the old and
    the new name are both given, the old one is dropped if the two are written alike; otherwise nothing is changed, as
    only you can tell which one is meant.
    """

    code = "MGF901"
    name = "renamed-argument"
    jax = "plgpu.kernel: 0.11.2 and newer; pl.kernel: 0.10.1 and newer"
    signatures = (
        Signature("TypeError", r"^Mesh\.__init__\(\) got an unexpected keyword argument '(out_shape|scratch_shapes)'"),
        Signature("TypeError", r"^kernel\(\) got an unexpected keyword argument '(out_shape|scratch_shapes)'"),
        Signature(
            "TypeError",
            r"^kernel\(\) takes from 0 to 1 positional arguments but \d+ (were given|positional arguments \(and)",
        ),
        Signature(
            "TypeError",
            rf"^({_callees('keyword')})(\.__init__)?\(\) got an unexpected keyword argument "
            rf"'({'|'.join(sorted(c.argument for c in table() if c.kind == 'keyword' and c.is_pallas))})'",
        ),
        Signature(
            "TypeError",
            rf"^({_callees('positional')}|MemorySpace\.__call__)(\.__init__)?\(\) takes (from \d+ to )?\d+ "
            r"positional arguments? but \d+ (were given|positional arguments \(and)",
        ),
        Signature("ValueError", r"^Cannot specify both (out_shape and out_type|scratch_shapes and scratch_types)"),
    )
    kinds = ("keyword", "positional")
    nothing = "no call here that passes the argument so was traced to JAX's function"

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each argument that a call in the file, or a dictionary for one, gives by an old name."""
        for group in _groups(known):
            if any(symbol.rpartition(".")[2] in names.source.text for symbol in group.callees):
                yield from _Uses(names, group).upgrades(window)


RULES = (RenamedArgument(),)


@dataclass(frozen=True)
class _Group:
    """Functions whose arguments were renamed alike. ``places`` are indices of those that now go by keyword only."""

    changes: Mapping[tuple[str, str], Change]
    renamed: Mapping[str, str]
    places: Mapping[str, Mapping[int, str]]

    @property
    def callees(self) -> set[str]:
        """Dotted names of the functions."""
        return {symbol for symbol, _ in self.changes}


def _groups(known: Sequence[Change]) -> list[_Group]:
    keywords: dict[str, dict[str, Change]] = {}
    places: dict[str, dict[int, Change]] = {}
    for change in known:
        if change.kind == "keyword":
            keywords.setdefault(change.symbol, {})[change.argument] = change
        elif change.index is not None:
            places.setdefault(change.symbol, {})[change.index] = change
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for symbol in dict.fromkeys((*keywords, *places)):
        renamed = {old: change.new for old, change in keywords.get(symbol, {}).items()}
        alike.setdefault(tuple(sorted(renamed.items())), []).append(symbol)
    return [_group(symbols, dict(renamed), keywords, places) for renamed, symbols in alike.items()]


def _group(
    symbols: Sequence[str],
    renamed: Mapping[str, str],
    keywords: Mapping[str, Mapping[str, Change]],
    places: Mapping[str, Mapping[int, Change]],
) -> _Group:
    changes = {(s, c.argument): c for s in symbols for c in places.get(s, {}).values()}
    changes |= {(s, old): keywords[s][old] for s in symbols for old in renamed}
    by_place = {s: {i: c.argument for i, c in places[s].items()} for s in symbols if s in places}
    return _Group(changes, renamed, by_place)


@dataclass(frozen=True)
class _Rename:
    """The new name for ``old``; or ``old`` is dropped, as the new name is given too."""

    old: str
    new: str
    drop: bool = False


#: What becomes of a call's arguments, by their place in the source, or of a key (place 0).
Plan: TypeAlias = Mapping[int, _Rename]


class _Uses:
    """What is to be renamed in one file, for one group of functions."""

    def __init__(self, names: Names, group: _Group) -> None:
        self.names, self.group = names, group
        self.callees = Callees(names, group.callees, {*group.renamed, *group.renamed.values()})

    def upgrades(self, window: Window) -> Iterator[Upgrade]:
        """One for each argument, or one for them all where one call gives an old and the new name of one."""
        reason = ""
        try:
            plans = self._plans()
        except NoFix as e:
            plans, reason = {}, str(e)
            yield self._upgrade({}, window, reason)
        if any(change.drop for plan in plans.values() for change in plan.values()):
            yield self._upgrade(plans, window)
            return
        for change in self.group.changes.values():
            mine = {
                node: {i: r for i, r in plan.items() if self._change(node, r) is change} for node, plan in plans.items()
            }
            if any(mine.values()):
                yield self._upgrade({node: plan for node, plan in mine.items() if plan}, window)

    def _change(self, node: ast.expr, rename: _Rename) -> Change:
        """The line of the table that a rename follows."""
        callee = self.callees.of(node) if isinstance(node, ast.Call) else None
        by_name = {c.argument: c for c in self.group.changes.values() if c.argument == rename.old}
        return self.group.changes.get((callee[0].dotted if callee else "", rename.old)) or by_name[rename.old]

    def _upgrade(self, plans: Mapping[ast.expr, Plan], window: Window, reason: str = "") -> Upgrade:
        followed = {self._change(node, r) for node, plan in plans.items() for r in plan.values()}
        followed = followed or set(self.group.changes.values())
        candidate = None
        if not reason:
            try:
                edits = tuple(_edits(self.names.source, self.names, plans))
                candidate = Candidate(_title(plans), edits)
            except SourceError as e:
                reason = str(e)
        return Upgrade(
            symbol=", ".join(sorted(change.shown for change in followed)),
            places=tuple(self.names.source.span(node) for node in plans),
            candidate=candidate,
            due=any(change.fails(window) for change in followed),
            words=tuple(sorted(change.argument for change in followed)),
            gone=min((change.gone for change in followed), key=parse),
            reason=reason,
        )

    def _plans(self) -> dict[ast.expr, Plan]:
        """What to change in each call or key. Raises NoFix where an old and a new name contradict each other."""
        found: dict[ast.expr, Plan] = {}
        for call in self.names.nodes(ast.Call):
            by_place = self.group.places and call.args
            if by_place or any(keyword.arg in self.group.renamed for keyword in call.keywords):
                found[call] = _plan(self._named(call), self._new_names)
        for text in self.names.nodes(ast.Constant):
            if isinstance(text.value, str) and text.value in self.group.renamed and self.callees.is_key(text):
                new = self.group.renamed[text.value]
                parent = self.names.parents[text]
                keys = parent.keys if isinstance(parent, ast.Dict) else []
                if any(isinstance(key, ast.Constant) and key.value == new for key in keys):
                    raise NoFix(f"{text.value} and {new} are both given in one dictionary; remove one of them")
                found[text] = {0: _Rename(text.value, new)}
        return {node: plan for node, plan in found.items() if plan and not guarded(self.names, node)}

    @property
    def _new_names(self) -> dict[str, str]:
        """The name under which each argument goes on; what only lost its place keeps its own."""
        placed = {name: name for names in self.group.places.values() for name in names.values()}
        return {**placed, **self.group.renamed}

    def _named(self, call: ast.Call) -> list[tuple[str | None, ast.expr]]:
        """JAX's old name for each argument of ``call`` (None for what does not concern us), in source order."""
        arguments = self.callees.arguments(call)
        callee, _ = self.callees.of(call) or (None, 0)
        places = self.group.places.get(callee.dotted, {}) if callee else {}
        given = sorted(a.index for a in arguments if a.index >= 0)
        # What follows it could not stay positional, and behind a star nobody knows the place.
        moving = {i for i in given if all(j in places for j in given if j >= i)} if not starred(call) else set()
        changing = {*self.group.renamed, *self.group.renamed.values()}
        named: list[tuple[str | None, ast.expr]] = []
        for argument in arguments:
            name = places[argument.index] if argument.index in moving else argument.parameter
            # What is given by its name, and only lost its place, is right as it is.
            stays = argument.index not in moving and name not in changing
            named.append((None if stays else name, argument.value))
        return named


def _plan(arguments: Sequence[tuple[str | None, ast.expr]], renamed: Mapping[str, str]) -> Plan:
    plan: dict[int, _Rename] = {}
    for old, new in renamed.items():
        given = [i for i, (name, _) in enumerate(arguments) if name in (old, new)]
        if len(given) > 1 and len({ast.dump(arguments[i][1]) for i in given}) > 1:
            raise NoFix(f"{old} and {new} are both given and differ; only you can tell which one is meant")
        kept = next((i for i in given if arguments[i][0] == new), given[0] if given else None)
        plan |= {i: _Rename(old, new, drop=i != kept) for i in given if arguments[i][0] == old}
    return plan


def _title(plans: Mapping[ast.expr, Plan]) -> str:
    phrases = ", ".join(sorted({_phrase(node, i, c) for node, plan in plans.items() for i, c in plan.items()}))
    count = len(plans)
    return f"{phrases[0].upper()}{phrases[1:]} ({count} call site{'s' if count > 1 else ''})"


def _phrase(node: ast.expr, place: int, change: _Rename) -> str:
    if change.drop:
        return f"drop {change.old}, which repeats {change.new}"
    if isinstance(node, ast.Call) and not isinstance(in_order(node)[place], ast.keyword):
        return f"pass {change.new} by keyword"
    return f"rename {change.old} to {change.new}"


def _edits(source: SourceFile, names: Names, plans: Mapping[ast.expr, Plan]) -> Iterator[Edit]:
    for run in runs(source, names, plans):
        if any(change.drop for node in run.nodes for change in plans[node].values()):
            yield _spliced(source, run, plans)
        else:
            yield from (_token(source, node, place, c) for node in run.nodes for place, c in plans[node].items())


def _token(source: SourceFile, node: ast.expr, place: int, change: _Rename) -> Edit:
    """A new name in place: LibCST would take a hundred times as long to change no more than this."""
    if not isinstance(node, ast.Call):
        start, end = source.bounds(node)
        return Edit(start, end, source.text[start:end].replace(change.old, change.new))
    arguments = in_order(node)
    start, _ = source.bounds(arguments[place])
    if isinstance(arguments[place], ast.keyword):
        return Edit(start, start + len(change.old), change.new)
    # A value in parentheses starts after them for ``ast``, so look from what stands before.
    _, before = source.bounds(arguments[place - 1] if place else node.func)
    lead = cast(re.Match[str], _LEAD.match(source.text, before))
    return Edit(lead.end(), lead.end(), f"{change.new}=")


def _spliced(source: SourceFile, run: Run, plans: Mapping[ast.expr, Plan]) -> Edit:
    splice = Splice(source, run.first, run.last)
    for node in run.nodes:
        if isinstance(node, ast.Call):
            splice.on(node, functools.partial(_with_arguments, plans[node]), cst.Call)
        else:
            splice.on(node, functools.partial(_with_text, plans[node]), cst.SimpleString)
    return splice.edit()


def _with_text(plan: Plan, text: cst.SimpleString) -> cst.SimpleString:
    return text.with_changes(value=text.value.replace(plan[0].old, plan[0].new))


def _with_arguments(plan: Plan, call: cst.Call) -> cst.Call:
    args = [_renamed(arg, plan[i].new) if i in plan else arg for i, arg in enumerate(call.args)]
    call = call.with_changes(args=args)
    for i in sorted((i for i, change in plan.items() if change.drop), reverse=True):
        call = without(call, i)
    return call


def _renamed(arg: cst.Arg, new: str) -> cst.Arg:
    if arg.keyword:
        return arg.with_changes(keyword=arg.keyword.with_changes(value=new))
    tight = cst.SimpleWhitespace("")
    return arg.with_changes(keyword=cst.Name(new), equal=cst.AssignEqual(tight, tight))
