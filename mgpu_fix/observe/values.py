"""Values that pass through a kernel, as facts: the Refs it is given, the trees it returns, its arrays and names."""

import contextlib
import functools
import hashlib
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mgpu_fix.model import Param, Tree
from mgpu_fix.observe import jaxseam, locate


def binds(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


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
        signature = inspect.signature(body)
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
        h.update(np.ascontiguousarray(array).tobytes())
    return h.hexdigest()[:24]


def draw_like(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same shapes with random floats from a fixed seed; everything else as it was given."""
    rng = np.random.default_rng(20240229)
    return [
        v
        if v.dtype.kind in "biuc" or v.dtype.name.startswith(("int", "uint"))
        else rng.standard_normal(v.shape).astype(v.dtype)
        for v in values
    ]


def fingerprint(value: Any) -> str:
    """A name for what a kernel is made of: equal only if code, closures and parameters are."""
    h = hashlib.sha256()
    seen: set[int] = set()

    def add(v: Any) -> None:
        if isinstance(v, (np.ndarray, np.generic)):
            h.update(digest_arrays([np.asarray(v)]).encode())
        elif isinstance(v, jax.core.Tracer) or id(v) in seen:
            h.update(str(id(v)).encode())
        elif isinstance(v, jax.Array):
            h.update(digest_arrays([np.asarray(v)]).encode())
        elif isinstance(v, (list, tuple, dict, set, frozenset)):
            seen.add(id(v))
            h.update(type(v).__name__.encode())
            for item in v.items() if isinstance(v, dict) else v:
                add(item)
        elif isinstance(v, functools.partial):
            add([v.func, v.args, v.keywords])
        elif isinstance(v, types.MethodType):
            h.update(str(id(v.__self__)).encode())
            add(v.__func__)
        elif isinstance(v, types.FunctionType):
            seen.add(id(v))
            code = v.__code__
            h.update(f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}".encode())
            h.update(code.co_code + repr(code.co_consts).encode())
            add([c.cell_contents for c in v.__closure__ or () if locate._filled(c)])
            add([v.__defaults__, v.__kwdefaults__])
            simple = (int, float, str, bool, tuple)
            add([v.__globals__[n] for n in code.co_names if isinstance(v.__globals__.get(n), simple)])
        else:
            h.update(repr(v).encode())

    add(value)
    return h.hexdigest()[:24]
