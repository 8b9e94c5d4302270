"""From an exception, a frame or a function object to a place in the user's source."""

import ast
import builtins
import functools
import linecache
import os
import sysconfig
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mgpu_fix.model import Facts, Failure, Function, Span
from mgpu_fix.observe import jaxseam
from mgpu_fix.source import SourceError, SourceFile, find_function
from mgpu_fix.source.flow import own_nodes

#: the folder of our own code
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_OURS = (jaxseam.JAX_FOLDER, os.path.dirname(os.path.dirname(jaxseam.JAX_FOLDER)) + "/jaxlib/", PACKAGE)


def is_user(path: str) -> bool:
    """Whether code in ``path`` is the user's: not JAX's, not ours, not the standard library's."""
    if path.startswith("<") or path.startswith(_OURS):
        return False
    return not path.startswith(_STDLIB) or "site-packages" in path


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "/site-packages/" in path or "/dist-packages/" in path


def _character(path: str, line: int, utf8: int) -> int:
    text = linecache.getline(path, line)
    return (utf8 if text.isascii() else len(text.encode()[:utf8].decode("utf-8", "replace"))) + 1


def _span(path: str, line: int, column: int | None, end_line: int | None, end_column: int | None) -> Span:
    real = os.path.realpath(path)
    if column is None or column < 0 or not end_line or end_column is None:
        return Span(real, line, 1, line, 1)
    return Span(real, line, _character(path, line, column), end_line, _character(path, end_line, end_column))


def frame_span(code: types.CodeType, lasti: int, line: int) -> Span:
    """The expression that a frame was evaluating."""
    positions = list(code.co_positions())
    at = positions[lasti // 2] if 0 <= lasti // 2 < len(positions) else (line, None, None, None)
    return _span(code.co_filename, at[0] or line, at[2], at[1], at[3])


def place_of(frame: jaxseam.Frame) -> Span:
    """The expression of one of JAX's frames."""
    path, _, line, column, end_line, end_column = frame
    return _span(path, line, column, end_line, end_column)


def user_frames() -> Iterator[types.FrameType]:
    """The user's frames of the running thread, innermost first."""
    for frame, _ in traceback.walk_stack(None):
        if is_user(frame.f_code.co_filename):
            yield frame


def call_site() -> Span | None:
    """Where the user's code stands right now."""
    frame = next(user_frames(), None)
    return frame_span(frame.f_code, frame.f_lasti, frame.f_lineno) if frame else None


def user_place(frames: Sequence[jaxseam.Frame]) -> Span | None:
    """The innermost of an equation's frames that is the user's."""
    return next((place_of(frame) for frame in frames if is_user(frame[0])), None)


def error_span(error: BaseException) -> Span | None:
    """Where in the user's source an error belongs: the failing operation if JAX knows it, else the innermost frame."""
    place = user_place(jaxseam.failing_equation(error))
    if place is not None:
        return place
    found = None
    for tb, path in _frames(error):
        if is_user(path):
            found = frame_span(tb.tb_frame.f_code, tb.tb_lasti, tb.tb_lineno)
    if isinstance(error, SyntaxError) and error.filename and is_user(error.filename):
        return Span(
            os.path.realpath(error.filename), error.lineno or 1, error.offset or 1, error.lineno or 1, error.offset or 1
        )
    # The user's operation may only be left in JAX's reconstructed stack, which is the cause.
    return found or (error_span(error.__cause__) if error.__cause__ is not None else None)


def stop_span(error: BaseException) -> Span | None:
    """Where an error leaves the program's own files, rather than the packages that it uses."""
    frames = [(tb, code) for tb, code in _frames(error) if is_user(code) and not is_installed(code)]
    if not frames or isinstance(error, SyntaxError):
        return error_span(error)
    tb = frames[-1][0]
    return frame_span(tb.tb_frame.f_code, tb.tb_lasti, tb.tb_lineno)


def _frames(error: BaseException) -> Iterator[tuple[types.TracebackType, str]]:
    tb = error.__traceback__
    while tb is not None:
        yield tb, tb.tb_frame.f_code.co_filename
        tb = tb.tb_next


def user_function(function: Any) -> types.FunctionType | None:
    """The user's function behind partials, wrappers and JAX's own closures."""
    seen: set[int] = set()
    queue = [function]
    while queue:
        candidate = queue.pop(0)
        if id(candidate) in seen:
            continue
        seen.add(id(candidate))
        if isinstance(candidate, functools.partial):
            queue.append(candidate.func)
        elif isinstance(candidate, types.MethodType):
            queue.append(candidate.__func__)
        elif isinstance(candidate, types.FunctionType):
            if is_user(candidate.__code__.co_filename):
                return candidate
            if hasattr(candidate, "__wrapped__"):
                queue.append(candidate.__wrapped__)
            queue += [c.cell_contents for c in candidate.__closure__ or () if filled(c) and callable(c.cell_contents)]
        elif hasattr(candidate, "__wrapped__"):
            queue.append(candidate.__wrapped__)
    return None


def filled(cell: types.CellType) -> bool:
    """Whether a closure's cell has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def describe(function: types.FunctionType) -> Function:
    """A function as reports and rules name it."""
    code = function.__code__
    columns = [(p[0], p[2]) for p in code.co_positions() if (p[0] and p[2] is not None and p[1] != p[0]) or p[2]]
    line, column = min(columns, default=(code.co_firstlineno, 0))
    if code.co_name != "<lambda>":
        line, column = code.co_firstlineno, 0
    assert line is not None
    return Function(
        os.path.realpath(code.co_filename),
        line,
        code.co_name,
        code.co_qualname,
        _character(code.co_filename, line, column or 0),
    )


def return_span(function: Function) -> Span:
    """The first ``return`` with a value of a kernel body, its first line if that cannot be found."""
    fallback = Span(function.path, function.line, function.column, function.line, function.column)
    try:
        source = SourceFile(function.path, "".join(linecache.getlines(function.path)).encode())
        node = find_function(source, function)
    except SourceError:
        return fallback
    if isinstance(node, ast.Lambda):
        return source.span(node.body)
    returns = [n for n in own_nodes(node) if isinstance(n, ast.Return) and n.value is not None] if node else []
    return source.span(min(returns, key=lambda r: r.lineno)) if returns else fallback


def failure(
    error: BaseException, stage: str, kernel: str = "", facts: Facts = Facts(), caught: bool = False
) -> Failure:
    """The record of an exception."""
    chain: list[tuple[str, str]] = []
    link: BaseException | None = error
    while link is not None and len(chain) < 10:
        if type(link).__name__ not in ("JaxStackTraceBeforeTransformation", "UnfilteredStackTrace"):
            chain.append((type(link).__name__, str(link)))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return Failure(
        type=type(error).__name__,
        message=str(error),
        stage=stage,
        span=error_span(error),
        kernel=kernel,
        chain=tuple(chain),
        raised_at=_raised_at(error),
        facts=facts,
        caught=caught,
    )


def _raised_at(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(PACKAGE)]
    if not frames:
        return ""
    return f"{frames[-1].filename.removeprefix(jaxseam.JAX_FOLDER)}:{frames[-1].lineno} in {frames[-1].name}"


@dataclass(frozen=True)
class _Guard:
    """Lines on which the program expects errors of some types (None for all); ``deep`` is also for what is called there
    calls in turn."""

    first: int
    last: int
    types: tuple[ast.expr | None, ...]
    deep: bool


@functools.cache
def _guards(path: str) -> list[_Guard]:
    """Where the program expects errors: in ``try`` bodies, whose handlers do not raise or exit, and where a test says
    that they are raised, which holds however deep the call is."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return []
    guards = []
    for node in ast.walk(tree):
        types_: list[ast.expr | None] = []
        if isinstance(node, ast.Try | ast.TryStar):
            types_ = [h.type for h in node.handlers if not any(map(_gives_up, h.body))]
            guards.append(_Guard(node.body[0].lineno, node.body[-1].end_lineno or 0, tuple(types_), False))
        elif isinstance(node, ast.With):
            for call in (i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call)):
                name = _last_name(call)
                if name in _RAISING or name == "suppress":
                    types_ = [*(call.args[:1] if name in _RAISING else call.args)] or [None]
                    first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
                    guards.append(_Guard(first, last, tuple(types_), name in _RAISING))
        elif isinstance(node, ast.Call) and len(node.args) > 1 and _last_name(node) in _RAISING:
            # The other form: the function and its arguments are given.
            guards.append(_Guard(node.lineno, node.end_lineno or 0, (node.args[0],), True))
    return guards


#: the last part of the names of what says that an error of its first argument's type is raised
_RAISING = ("raises", "assertRaises", "assertRaisesRegex")


def _last_name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _gives_up(statement: ast.stmt) -> bool:
    exits = ("exit", "_exit", "fail", "abort", "skip")
    for node in ast.walk(statement):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and _last_name(node) in exits:
            return True
    return False


def is_caught(error: BaseException) -> bool:
    """Whether the running thread stands where the program expects this error and goes on after it."""
    for depth, frame in enumerate(user_frames()):
        if depth and is_installed(frame.f_code.co_filename):
            continue
        for guard in _guards(frame.f_code.co_filename):
            inside = guard.first <= frame.f_lineno <= guard.last and (guard.deep or not depth)
            if inside and any(_is_a(error, t, frame) for t in guard.types):
                return True
    return False


def _is_a(error: BaseException, expected: ast.expr | None, frame: types.FrameType) -> bool:
    if expected is None:
        return True
    if isinstance(expected, ast.Tuple):
        return any(_is_a(error, element, frame) for element in expected.elts)
    names = ast.unparse(expected).split(".")
    scope = {**vars(builtins), **frame.f_globals, **frame.f_locals}
    value = scope.get(names[0])
    for name in names[1:]:
        value = getattr(value, name, None)
    # What cannot be looked up without running it is taken at its word.
    return isinstance(error, value) if isinstance(value, type) else True
