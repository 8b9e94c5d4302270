"""What each warpgroup of a traced kernel does of its own: which scopes it enters, which memory it uses, what it stores.

An abstract run of the kernel's jaxpr that follows where values depend on a program's place in the mesh. What is not
known counts against the kernel: it varies, or is used by everyone.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgpu_fix.observe import jaxseam

#: Bits of what a value varies along.
THREAD, OTHERS = 1, 2

#: Loads by the names of their primitives; every other operation on a Ref counts as a store, too.
_LOADS = ("get", "load", "masked_load")
#: Operations whose code is not seen.
_OPAQUE = ("inline_mgpu", "inline_mgpu_p")


@dataclass(frozen=True)
class _Value:
    """``varies`` along which axes; ``index`` is the warpgroup's own; ``equals`` says that it is a test whether that
    index has this value; ``ref`` numbers the memory that a Ref stands for."""

    varies: int = 0
    index: bool = False
    equals: int | None = None
    ref: int | None = None


_ANY = _Value(THREAD | OTHERS)


@dataclass(frozen=True)
class _Control:
    """Who gets somewhere: all programs, or those that differ along ``varies``; only warpgroup ``only`` if not None."""

    varies: int = 0
    only: int | None = None

    def under(self, varies: int, only: int | None = None) -> "_Control":
        """Where a test leads that varies so, and that only warpgroup ``only`` passes."""
        return _Control(self.varies | varies, self.only if self.only is not None else only)


@dataclass
class Use:
    """A scope as it was entered, all times that it was: ``users`` are, for each Ref, the warpgroups that use it, None
    among them where that may be any."""

    kinds: tuple[str, ...]
    #: how many arrivals each barrier among them waits for, 0 for the rest
    arrivals: tuple[int, ...] = ()
    diverges: bool = False
    users: list[set[int | None]] = field(default_factory=list)
    #: which Refs all warpgroups use alike, but for waiting
    common: set[int] = field(default_factory=set)


@dataclass
class Survey:
    """What was found: scopes by their equations' frames, and the places of stores that all programs make alike."""

    scopes: list[tuple[Sequence[tuple[str, str, int, int, int, int]], Use]] = field(default_factory=list)
    alike: set[str] = field(default_factory=set)
    unlike: set[str] = field(default_factory=set)


def survey(closed: Any, thread: Hashable, axes: Iterable[Hashable]) -> Survey:
    """Follow a traced call of a kernel whose mesh has these ``axes``, that of its warpgroups being ``thread``."""
    walk = _Walk(thread, frozenset(axes))
    jaxpr = getattr(closed, "jaxpr", closed)
    walk.follow(jaxpr, [_Value() for _ in jaxpr.invars], _Control())
    walk.found.scopes = [*walk.scopes.values()]
    return walk.found


class _Walk:
    def __init__(self, thread: Hashable, axes: frozenset[Hashable]) -> None:
        self.thread, self.axes = thread, axes
        self.found = Survey()
        self.scopes: dict[int, tuple[Any, Use]] = {}
        #: along which axes the contents of each piece of memory vary
        self.contents: list[int] = []
        #: where the users of a piece of memory are written down: the scope and the number of the Ref in it
        self.users: dict[int, tuple[Use, int]] = {}

    def _memory(self, user: tuple[Use, int] | None = None) -> _Value:
        self.contents.append(0)
        if user is not None:
            self.users[len(self.contents) - 1] = user
        return _Value(ref=len(self.contents) - 1)

    def follow(self, jaxpr: Any, inputs: Sequence[_Value], control: _Control) -> list[_Value]:
        """Values of the outputs of a jaxpr, given those of its constants and inputs."""
        env: dict[Any, _Value] = {}
        variables = [*getattr(jaxpr, "constvars", ()), *jaxpr.invars]
        if len(inputs) < len(variables) and not len(inputs) < len(jaxpr.invars):
            variables = [*jaxpr.invars]
        for i, variable in enumerate(variables):
            value = inputs[i] if i < len(inputs) else _Value()
            is_ref = "Ref" in str(variable.aval)
            env[variable] = self._memory() if is_ref and value.ref is None else value
        for eqn in jaxpr.eqns:
            given = [_Value() if hasattr(v, "val") else env.get(v, _ANY) for v in eqn.invars]
            outs = self._step(eqn, given, control)
            for variable, value in zip(eqn.outvars, outs, strict=True):
                env[variable] = value
        return [_Value() if hasattr(v, "val") else env.get(v, _ANY) for v in jaxpr.outvars]

    def _step(self, eqn: Any, given: list[_Value], control: _Control) -> list[_Value]:
        name, params = eqn.primitive.name, eqn.params
        varies = 0
        for value in given:
            varies |= value.varies
        match name:
            case "axis_index":
                asked = params["axis_name"]
                asked = set(asked) if isinstance(asked, tuple) else {asked}
                bits = (THREAD if self.thread in asked else 0) | (OTHERS if asked & self.axes - {self.thread} else 0)
                return [_Value(bits, index=asked == {self.thread})]
            case "program_id":
                return [_ANY]
            case "eq" | "convert_element_type" | "copy" | "reshape" | "squeeze":
                return [_test(eqn, given, varies)]
            case "cond":
                return self._cond(eqn, given, control)
            case "scan":
                return self._scan(params, given, control, len(eqn.outvars))
            case "while":
                return self._while(params, given, control)
            case "run_scoped":
                return self._scope(eqn, given, control)
        inner = _inner(params)
        if len(inner) == 1:
            outs = self.follow(inner[0], given, control)
            return (outs + [_ANY] * len(eqn.outvars))[: len(eqn.outvars)]
        if inner or name in _OPAQUE:
            varies = THREAD | OTHERS
            control = control if not inner else control.under(varies)
        return self._access(eqn, given, varies, control)

    def _access(self, eqn: Any, given: list[_Value], varies: int, control: _Control) -> list[_Value]:
        """An operation that has no other ones in it."""
        refs = [v.ref for v in given if v.ref is not None]
        for ref in refs:
            varies |= self.contents[ref]
            if ref in self.users:
                use, i = self.users[ref]
                use.users[i].add(control.only)
                if eqn.primitive.name != "barrier_wait" and not control.varies & THREAD:
                    use.common.add(i)
        if refs and eqn.primitive.name not in _LOADS:
            (self.found.unlike if varies | control.varies else self.found.alike).add(jaxseam.place(eqn))
            for ref in refs:
                self.contents[ref] |= varies | control.varies
        return [_Value(varies) for _ in eqn.outvars]

    def _cond(self, eqn: Any, given: list[_Value], control: _Control) -> list[_Value]:
        test, *rest = given
        branches = [getattr(b, "jaxpr", b) for b in eqn.params["branches"]]
        joined: list[_Value] | None = None
        for i, branch in enumerate(branches):
            # ``pl.when`` makes two branches, the second of which is taken where the test holds.
            only = test.equals if len(branches) == 2 and i == 1 else None
            outs = self.follow(branch, rest, control.under(test.varies, only))
            outs = [_Value(o.varies | test.varies, ref=o.ref) for o in outs]
            joined = (
                outs
                if joined is None
                else [
                    _Value(a.varies | b.varies, ref=a.ref if a.ref == b.ref else None)
                    for a, b in zip(joined, outs, strict=True)
                ]
            )
        return joined or []

    def _scan(self, params: Any, given: list[_Value], control: _Control, count: int) -> list[_Value]:
        body = getattr(params["jaxpr"], "jaxpr", params["jaxpr"])
        constants = jaxseam.scan_constants(params)
        outs = _settled(lambda values: self.follow(body, values, control), given, range(constants, len(given)))
        return (outs + [_ANY] * count)[:count]

    def _while(self, params: Any, given: list[_Value], control: _Control) -> list[_Value]:
        test, body = (getattr(params[k], "jaxpr", params[k]) for k in ("cond_jaxpr", "body_jaxpr"))
        carried = len(body.outvars)
        first, tested = len(given) - carried, len(test.invars) - carried

        def once(values: list[_Value]) -> list[_Value]:
            goes_on = self.follow(test, [*values[:tested], *values[first:]], control)
            return self.follow(body, values[tested:], control.under(goes_on[0].varies))

        return _settled(once, given, range(first, len(given)))

    def _scope(self, eqn: Any, given: list[_Value], control: _Control) -> list[_Value]:
        jaxpr = eqn.params["jaxpr"]
        avals = [v.aval for v in jaxpr.invars]
        new = Use(
            tuple(map(jaxseam.kind_of, avals)), tuple(map(jaxseam.arrivals_of, avals)), users=[set() for _ in avals]
        )
        _, use = self.scopes.setdefault(id(eqn), (jaxseam.frames_of(eqn), new))
        use.diverges |= bool(control.varies & THREAD)
        return self.follow(jaxpr, [*given, *(self._memory((use, i)) for i in range(len(avals)))], control)


def _settled(once: Callable[[list[_Value]], list[_Value]], given: list[_Value], carried: range) -> list[_Value]:
    """Outputs of a loop's body when going round changes nothing any more."""
    values = [_Value(v.varies, ref=v.ref) if i in carried else v for i, v in enumerate(given)]
    while True:
        # Twice, since what is stored late in the body is loaded early the next time round.
        once(values)
        outs = once(values)
        varies = 0
        for out in outs:
            varies |= out.varies
        # Which input carries which output is not looked up: all of them then vary as any does.
        wider = [_Value(v.varies | varies) if i in carried and v.ref is None else v for i, v in enumerate(values)]
        if wider == values:
            return outs
        values = wider


def _test(eqn: Any, given: list[_Value], varies: int) -> _Value:
    """The value of a comparison with a number, or of what only passes one on."""
    if eqn.primitive.name != "eq":
        return _Value(varies, given[0].index, given[0].equals)
    for value, other in (given, given[::-1]):
        literal = next((v.val for v in eqn.invars if hasattr(v, "val")), None)
        if value.index and not other.varies and literal is not None:
            return _Value(varies, equals=int(literal))
    return _Value(varies)


def _inner(params: Any) -> list[Any]:
    """Jaxprs among an equation's parameters."""
    found = []
    for value in params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(part, "jaxpr", part)
            if hasattr(jaxpr, "eqns"):
                found.append(jaxpr)
    return found
