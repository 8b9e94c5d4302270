"""Values that pass through a kernel, as facts: the Refs it is given, the trees it returns, its arrays and names."""

import contextlib
import enum
import functools
import hashlib
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mgpu_fix.arrays import DRAW_SEED
from mgpu_fix.model import Param, Tree
from mgpu_fix.observe import jaxseam, locate


def binds(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        _signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _signature(function: Any) -> inspect.Signature:
    # What functools.wraps says of a wrapper are not the wrapper's own parameters.
    return inspect.signature(function, follow_wrapped=False)


class Params(list[Param]):
    """Params with the Refs that they stand for."""

    values: list[tuple[str | None, Any]]


def params_of(body: Any, refs: tuple[Any, ...], named: Mapping[str, Any], roles: Sequence[str]) -> "Params":
    """Every Ref passed to ``body`` with its role and the parameter that takes it."""
    names: list[str | None] = [None] * len(refs)
    outputs = [i for i, role in enumerate(roles) if role == "output"]
    given = list(range(len(refs)))
    if not binds(body, refs, named) and outputs:
        given = [i for i in given if i not in outputs]
    with contextlib.suppress(TypeError, ValueError):
        signature = _signature(body)
        positional = [
            p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        for i, name in zip(given, positional, strict=False):
            names[i] = name
    out = Params(_param(ref, role, name) for ref, role, name in zip(refs, roles, names, strict=False))
    out += [_param(ref, "scratch", name) for name, ref in named.items()]
    out.values = [*zip(names, refs, strict=True), *named.items()]
    return out


def _param(ref: Any, role: str, name: str | None) -> Param:
    if isinstance(ref, (tuple, list, dict)) or ref is None:
        return Param(role, name, tree=tree_of(ref, {}))
    shape, dtype = getattr(ref, "shape", ()), getattr(ref, "dtype", "")
    space = ""
    with contextlib.suppress(Exception):
        space = jaxseam.memory_space(ref)
    return Param(role, name, tuple(int(s) for s in shape if isinstance(s, int)), str(dtype), space)


def leaves_of(value: Any) -> list[Any]:
    """Leaves of plain containers; Refs are leaves, None is not."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in leaves_of(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [value]


def tree_of(value: Any, refs: Mapping[int, str | None]) -> Tree:
    if value is None:
        return Tree("none")
    if isinstance(value, dict):
        keys = sorted(value, key=str)
        return Tree("dict", tuple(tree_of(value[k], refs) for k in keys), tuple(map(str, keys)))
    if isinstance(value, (tuple, list)):
        plain = type(value) in (tuple, list)
        kind = type(value).__name__ if plain else "other"
        return Tree(kind, tuple(tree_of(v, refs) for v in value))
    shape = tuple(int(s) for s in getattr(value, "shape", ()) if isinstance(s, int))
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        dtype = {bool: "bool", int: "int", float: "float"}.get(type(value), type(value).__name__)
    return Tree("leaf", shape=shape, dtype=str(dtype), ref=refs.get(id(value)))


def first_line(error: BaseException) -> str:
    """The first line of an exception's message."""
    return (str(error).strip().splitlines() or [""])[0][:200]


def short_type(aval: Any) -> str:
    dtype = str(aval.dtype)
    short = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i"}
    name = next((dtype.replace(k, v, 1) for k, v in short.items() if dtype.startswith(k)), dtype)
    return f"{name}[{','.join(map(str, aval.shape))}]"


def digest_arrays(arrays: Sequence[np.ndarray]) -> str:
    h = hashlib.sha256()
    for array in arrays:
        h.update(f"{array.dtype}{array.shape}".encode())
        # As they lie in memory: a copy of a large array costs as much as its digest.
        h.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return h.hexdigest()[:24]


def draw_like(values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The same shapes with random floats from a fixed seed, everything else as it was given; None if no float is."""
    rng = np.random.default_rng(DRAW_SEED)
    random = [v.dtype.kind not in "biuc" and not v.dtype.name.startswith(("int", "uint")) for v in values]
    if not any(random):
        return None
    return [rng.standard_normal(v.shape).astype(v.dtype) if r else v for v, r in zip(values, random, strict=True)]


def outside(function: types.FunctionType) -> dict[str, Any]:
    """What a function, with those in it, reads from outside of itself: arrays and values of a trace, by their names or
    those of what holds them, as ``self.table`` and ``tables['sine']``."""
    names = _names(function.__code__)
    found = {n: v for n, v in function.__globals__.items() if n in names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if locate.filled(cell):
            found[name] = cell.cell_contents
    arrays: dict[str, Any] = {}
    for name, value in found.items():
        _add_arrays(arrays, name, value, names, _HELD)
    return arrays


#: how deep, and among how many others, an array is looked for in what holds it
_HELD, _MOST_HELD = 2, 64


def _add_arrays(arrays: dict[str, Any], name: str, value: Any, attributes: set[str], depth: int) -> None:
    if isinstance(value, (np.ndarray, jax.Array)):
        arrays[name] = value
        return
    held: dict[str, Any] = {}
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        held = {f"{name}[{key!r}]": item for key, item in items if isinstance(key, (str, int))}
    elif not isinstance(value, types.FunctionType):
        own = getattr(value, "__dict__", {})
        held = {f"{name}.{key}": own[key] for key in attributes if key in own}
    if depth and len(held) <= _MOST_HELD:
        for text, item in held.items():
            _add_arrays(arrays, text, item, attributes, depth - 1)


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*inner)


def name_of(constant: Any, outside: Mapping[str, Any]) -> str:
    """By which of the names ``outside`` a function reads what its trace closed over; empty if by none.

    JAX keeps its own arrays as they are, and wraps NumPy's.
    """
    for name, value in outside.items():
        if value is constant:
            return name
        if isinstance(value, np.ndarray) and not isinstance(constant, (jax.core.Tracer, jax.Array)):
            held = np.asarray(constant)
            if held.shape == value.shape and held.tobytes() == value.astype(held.dtype).tobytes():
                return name
    return ""


#: how deep the state that a kernel reads is looked into
_DEPTH = 8


def fingerprint(value: Any) -> str:
    """A name for what a kernel is made of: equal only if its code, what that reads of the program's state, and its
    parameters are. Objects that cannot be looked into count by identity."""
    h = hashlib.sha256()
    seen: set[int] = set()

    def add(v: Any, depth: int) -> None:
        if isinstance(v, jax.core.Tracer) or (depth == 0 and not isinstance(v, _PLAIN)):
            h.update(str(id(v)).encode())
        elif isinstance(v, (np.ndarray, np.generic, jax.Array)):
            h.update(digest_arrays([np.asarray(v)]).encode())
        elif isinstance(v, (*_PLAIN, types.ModuleType)):
            h.update(f" {v!r}".encode())
        elif id(v) in seen:
            h.update(b"again")
        else:
            seen.add(id(v))
            h.update(f"({type(v).__name__}".encode())
            for part in _parts(v):
                add(part, depth - 1)
            h.update(b")")

    add(value, _DEPTH)
    return h.hexdigest()[:24]


_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), enum.Enum, np.dtype, type)


def _parts(value: Any) -> list[Any]:
    match value:
        case dict():
            return _pairs(value)
        case list() | tuple() | set() | frozenset():
            return [*value]
        case functools.partial():
            return [value.func, value.args, value.keywords]
        case types.MethodType():
            return [value.__self__, value.__func__]
        case types.FunctionType():
            return _function_parts(value)
    state = getattr(value, "__dict__", None)
    return [repr(value)] if not state else _pairs(state)


def _pairs(mapping: Mapping[Any, Any]) -> list[Any]:
    return [part for pair in mapping.items() for part in pair]


def _function_parts(function: types.FunctionType) -> list[Any]:
    code = function.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}"
    cells = [c.cell_contents for c in function.__closure__ or () if locate.filled(c)]
    parts = [place, code.co_code, repr(code.co_consts), cells, function.__defaults__, function.__kwdefaults__]
    if locate.is_user(code.co_filename):
        used = [*code.co_names, *(n for c in code.co_consts if isinstance(c, types.CodeType) for n in c.co_names)]
        parts += [function.__globals__[n] for n in used if n in function.__globals__]
    return parts
