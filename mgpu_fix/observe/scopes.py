"""The intent shim for ``pl.run_scoped``: scopes with the axes that their allocations need, and what was asked for."""

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mgpu_fix.model import Allocation, Axis, Scope, Span
from mgpu_fix.observe import jaxseam, locate
from mgpu_fix.observe.kernels import Kernel, Trace
from mgpu_fix.observe.survey import Survey, Use

#: Only these can be each warpgroup's own: a barrier that is not shared synchronises nothing.
_MEMORY = frozenset({"smem", "tmem"})


@dataclass(frozen=True)
class Request:
    """One call of ``pl.run_scoped``. Calling ``original`` makes the scope."""

    original: Callable[..., Any]
    body: Callable[..., Any]
    types: tuple[Any, ...]
    named: Mapping[str, Any]
    axes: Any

    def run(self, trace: Trace) -> Any:
        """Make the scope as ``trace`` wants it: untouched in the real trace, else with the axes that it needs."""
        scope = None
        # What cannot be allocated at all is JAX's to complain about.
        with contextlib.suppress(Exception):
            scope = described(self, trace.kernel)
        if scope is not None:
            trace.scopes.append(scope)
        if trace.mode == "real" or scope is None or scope.accepted:
            return self.original(self.body, *self.types, collective_axes=self.axes, **self.named)
        thread = trace.kernel.thread_name
        private = trace.private and scope.thread not in scope.axes
        return self._nested(() if thread is None else (thread,), private)

    def _nested(self, shared: tuple[Hashable, ...], private: bool) -> Any:
        """One scope for what is shared, with these axes, in it one for memory that is each warpgroup's own, if it is
        ``private``, and in it one for accumulators; scopes without anything are left out."""
        tiers: list[tuple[tuple[Hashable, ...], list[int | str]]] = [(shared, []), ((), []), ((), [])]
        types: dict[int | str, Any] = dict([*enumerate(self.types), *self.named.items()])
        for key, type_ in types.items():
            kinds = _kinds(type_)
            tiers[2 if kinds == {"acc"} else 1 if private and kinds <= _MEMORY else 0][1].append(key)

        def enter(depth: int, refs: dict[int | str, Any]) -> Any:
            if depth == len(tiers):
                named = {name: refs[name] for name in self.named}
                return self.body(*(refs[i] for i in range(len(self.types))), **named)
            axes, keys = tiers[depth]
            places, names = [k for k in keys if isinstance(k, int)], [k for k in keys if isinstance(k, str)]

            def body(*mine: Any, **named: Any) -> Any:
                return enter(depth + 1, dict([*refs.items(), *zip(places, mine, strict=True), *named.items()]))

            if not keys:
                return body()
            named_types = {name: types[name] for name in names}
            return self.original(body, *(types[i] for i in places), collective_axes=axes, **named_types)

        return enter(0, {})


def described(request: Request, kernel: Kernel) -> Scope | None:
    """The scope as a fact; None where it is not the user's own."""
    span = locate.call_site()
    if span is None:
        return None
    named = [("", t) for t in request.types] + [*request.named.items()]
    allocations = [Allocation(name, "+".join(sorted(_kinds(t)))) for name, t in named]
    kinds = {kind for a in allocations for kind in a.kind.split("+") if kind}
    thread = None if kernel.thread_name is None else _axis(kernel.thread_name, kernel)
    given = request.axes if isinstance(request.axes, tuple) else (request.axes,)
    shared = () if kernel.thread_name is None else (kernel.thread_name,)
    needed = [shared] if kinds - {"acc"} else [()] if kinds else [(), shared]
    mixed = "acc" in kinds and len(kinds) > 1 and bool(shared)
    axes = tuple(_axis(name, kernel) for name in _flat(given))
    return Scope(span, axes, tuple(allocations), thread, accepted=given in needed and not mixed)


def _kinds(type_: Any) -> set[str]:
    return set(jaxseam.allocation_kinds(type_))


def _axis(name: Any, kernel: Kernel) -> Axis:
    return Axis(name if isinstance(name, str) else f"<{name!r}>", kernel.axes.get(name, 0))


def _flat(axes: Any) -> list[Any]:
    """Names of axes, out of lists and tuples that should not be there, too."""
    if isinstance(axes, (tuple, list, set, frozenset)):
        return [name for part in axes for name in _flat(part)]
    return [axes]


def surveyed(scopes: Sequence[Scope], found: Survey) -> tuple[Scope, ...]:
    """The scopes, each place once, with what a survey of the kernel found out about them."""
    uses: dict[Span, list[Use]] = {}
    for frames, use in found.scopes:
        span = locate.user_place(frames)
        if span is not None and set(use.kinds) != {"acc"}:
            uses.setdefault(span, []).append(use)
    merged: dict[Span, Scope] = {}
    for scope in scopes:
        if scope.span not in merged or not scope.accepted:
            merged[scope.span] = _with_uses(scope, uses.get(scope.span, []))
    return tuple(merged.values())


def _with_uses(scope: Scope, uses: Sequence[Use]) -> Scope:
    diverges = any(use.diverges for use in uses) if uses else None
    shared = sorted((a for a in scope.allocations if a.kind not in ("", "acc")), key=lambda a: a.name)
    # Which Refs belong to a pytree of them is not looked up.
    if not uses or any(len(use.users) != len(shared) for use in uses):
        return replace(scope, diverges=diverges)
    threads = scope.thread.size if scope.thread else 1
    allocations = list(scope.allocations)
    for i, allocation in enumerate(shared):
        at = next(n for n, a in enumerate(allocations) if a is allocation)
        confined = all(_by_one(use.users[i]) for use in uses)
        own = any(i in use.common and use.arrivals[i] % threads for use in uses)
        allocations[at] = replace(allocation, confined=confined, own=own)
    return replace(scope, diverges=diverges, allocations=tuple(allocations))


def _by_one(users: set[int | None]) -> bool:
    return len(users) < 2 and None not in users
