"""A user's file: bytes that survive, edits, names, and patches that git takes."""

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_fix.model import Edit, Function, Span
from mgpu_fix.source import (
    Names,
    Overlap,
    SourceError,
    SourceFile,
    Splice,
    apply_edits,
    find_function,
    merge_edits,
    offset_before,
    unified_diff,
)

FILES = {
    "plain": b"x = 1\ny = 2\n",
    "crlf": b"x = 1\r\ny = 2\r\n",
    "mixed": b"x = 1\r\ny = 2\nz = 3\r\n",
    "no final newline": b"x = 1\ny = 2",
    "tabs": b"if x:\n\ty = 1\n",
    "bom": b"\xef\xbb\xbfx = 1\ny = 2\n",
    "latin-1": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
    "utf-8": "x = 'é😋'\ny = 2\n".encode(),
    "form feed": b"x = 1\n\x0cy = 2\n",
    "empty": b"",
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_bytes_survive(data: bytes) -> None:
    source = SourceFile("f.py", data)
    assert source.encode(source.text) == data
    assert source.edited([]).data == data


@pytest.mark.parametrize("name", [n for n, d in FILES.items() if b" = " in d])
def test_an_edit_leaves_all_other_bytes(name: str) -> None:
    source = SourceFile("f.py", FILES[name])
    at = source.text.index(" = ")
    assert source.edited([Edit(at, at + 3, "=")]).data == FILES[name].replace(b" = ", b"=", 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = '\xff'\n", "not utf-8 text at line 1; declare its encoding"),
        (b"x = 1\ny = 2\nz = '\xff'\n", "not utf-8 text at line 3; declare its encoding"),
        (b"# coding: nonsense\n", "not text that Python can read"),
        (b"\xff\xfex\x00", "not utf-8 text at line 1; declare its encoding"),
    ],
)
def test_what_is_not_text_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        SourceFile("f.py", data)


def test_a_syntax_error_tells_its_line() -> None:
    with pytest.raises(SourceError) as caught:
        _ = SourceFile("f.py", b"x = 1\ny = = 2\n").tree
    assert caught.value.line == 2


def test_columns_count_characters() -> None:
    source = SourceFile("f.py", "x = 'é😋'; y = 2\n".encode())
    y = source.tree.body[1]
    assert (source.span(y).line, source.span(y).column) == (1, 11)
    assert source.segment(y) == "y = 2"


@given(st.text("ab\n\r", max_size=30), st.data())
def test_edits_in_any_order_give_one_result(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6, unique=True)))
    edits = [Edit(a, b, "X") for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    shuffled = data.draw(st.permutations(edits))
    expected = text
    for edit in reversed(edits):
        expected = expected[: edit.start] + edit.new + expected[edit.end :]
    assert apply_edits(text, shuffled) == expected


def test_a_place_is_found_in_the_text_before_the_edits() -> None:
    edits = [Edit(2, 4, "xyz"), Edit(6, 6, "mno "), Edit(8, 10, ""), Edit(10, 14, "aWcd")]
    before = "0123456789abcde"
    after = apply_edits(before, edits)
    for at, character in enumerate(after):
        found = offset_before(before, edits, at)
        # What is deleted leaves its place to what follows.
        assert found is None if character in "xyzmno aW" else found is not None and before[found] == character


def test_the_same_edit_counts_once_and_others_may_not_touch() -> None:
    assert merge_edits([[Edit(0, 2, "a")], [Edit(0, 2, "a")]]) == [Edit(0, 2, "a")]
    with pytest.raises(Overlap):
        merge_edits([[Edit(0, 2, "a")], [Edit(1, 3, "b")]])
    with pytest.raises(Overlap):
        merge_edits([[Edit(1, 1, "a")], [Edit(1, 1, "b")]])


lines = st.lists(st.sampled_from(["a", "b", "", "c\r", "\x0c", "é", "\u2028d"]), max_size=8)
texts = st.builds(lambda ls, end: "\n".join(ls) + end, lines, st.sampled_from(["", "\n"]))


@given(texts, texts)
def test_git_applies_every_patch(tmp_path_factory: pytest.TempPathFactory, before: str, after: str) -> None:
    if not before or not after or before == after:
        return
    folder = tmp_path_factory.mktemp("repository")
    file = folder / "f.py"
    file.write_bytes(before.encode())
    patch = unified_diff("f.py", before.encode(), after.encode())
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, check=True, capture_output=True)
    assert file.read_bytes() == after.encode()


def test_a_patch_of_a_file_that_is_not_utf8_gives_its_bytes(tmp_path: Path) -> None:
    before, after = FILES["latin-1"], FILES["latin-1"].replace(b"x =", b"y =")
    (tmp_path / "f.py").write_bytes(before)
    patch = unified_diff("f.py", before, after).encode("utf-8", "surrogateescape")
    subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, check=True)
    assert (tmp_path / "f.py").read_bytes() == after


def resolved(text: str) -> list[str | None]:
    """What each called name of a file stands for."""
    source = SourceFile("f.py", text.encode())
    names = Names(source)
    calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
    return [names.resolve(c.func) for c in sorted(calls, key=lambda c: (c.lineno, c.col_offset))]


KERNEL = "jax.experimental.pallas.mosaic_gpu.kernel"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from jax.experimental.pallas import mosaic_gpu as plgpu\nplgpu.kernel()\n", [KERNEL]),
        ("import jax.experimental.pallas.mosaic_gpu as g\ng.kernel()\n", [KERNEL]),
        ("import jax\njax.experimental.pallas.mosaic_gpu.kernel()\n", [KERNEL]),
        ("from jax.experimental.pallas.mosaic_gpu import kernel as K\nK()\n", [KERNEL]),
        ("from jax.experimental.pallas.mosaic_gpu import *\nkernel()\n", [KERNEL]),
        ("from jax.experimental.pallas import mosaic_gpu as p\nmake = p.kernel\ndef f():\n    make()\n", [KERNEL]),
        (
            "from jax.experimental.pallas import triton as plgpu\nplgpu.kernel()\n",
            ["jax.experimental.pallas.triton.kernel"],
        ),
        ("def f(plgpu):\n    plgpu.kernel()\n", [None]),
        (
            "from a import b as p\ndef f():\n    from c import d as p\n    p.k()\np.k()\n",
            ["c.d.k", "a.b.k"],
        ),
        ("try:\n    from a import k\nexcept ImportError:\n    from b import k\nk()\n", [None]),
        ("kernel()\n", [None]),
    ],
)
def test_names_are_resolved(text: str, expected: list[str | None]) -> None:
    assert resolved(text) == expected


def test_functions_are_found_by_what_code_objects_say() -> None:
    text = "@d\n@e(1,\n   2)\ndef f(): pass\n\nk = run(lambda x: x, lambda x: x + 1)\n"
    source = SourceFile("f.py", text.encode())
    found = find_function(source, Function("f.py", 1, "f", "f"))
    assert isinstance(found, ast.FunctionDef)
    second = find_function(source, Function("f.py", 6, "<lambda>", "<lambda>", text.splitlines()[5].index("x + 1") + 1))
    assert second is not None
    assert source.segment(second) == "lambda x: x + 1"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["  ", "\t", "    "])
def test_a_splice_keeps_what_surrounds_it(newline: str, indent: str) -> None:
    import libcst as cst

    text = f"def f():{newline}{indent}# why{newline}{indent}return 1  # é{newline}{newline}x = 2"
    source = SourceFile("f.py", text.encode())
    [statement] = source.tree.body[0].body  # type: ignore[attr-defined]
    splice = Splice(source, source.tree.body[0])
    splice.on(statement, lambda node: cst.Expr(node.value), cst.Return)
    assert source.edited([splice.edit()]).text == text.replace("return 1", "1")


@pytest.mark.parametrize(
    ("line", "names", "ignored"),
    [
        (1, ("MGF101", "warp-vector-access"), True),
        (1, ("MGF401", "kernel-returns-value"), False),
        (2, ("MGF401", "kernel-returns-value"), True),
        (3, ("MGF401", "kernel-returns-value"), True),
        (5, ("MGF401", "kernel-returns-value"), False),
        (6, ("MGF401", "kernel-returns-value"), True),
        (7, ("MGF401", "kernel-returns-value"), False),
        (99, ("MGF401", "kernel-returns-value"), False),
    ],
)
def test_a_comment_leaves_a_rule_alone_in_its_statement(line: int, names: tuple[str, str], ignored: bool) -> None:
    text = (
        "x = 1  # mgpu-fix: ignore[MGF102, MGF101]\n"
        "y = f(\n    2)  # mgpu-fix: ignore\n"
        "\n"
        "def g():\n    return 3  # noqa  # mgpu-fix: ignore[kernel-returns-value]\n"
        "z = 4  # mgpu-fix: ignored\n"
    )
    assert SourceFile("k.py", text.encode()).ignores(line, names) is ignored
    assert SourceFile("k.py", text.lower().encode()).ignores(line, names) is ignored


def test_what_comments_say_to_ignore_has_a_place_and_strings_say_nothing() -> None:
    text = "é = 1  # mgpu-fix: ignore[MGF102,  A ] # b\nx = '# mgpu-fix: ignore[B]'\nz = 4  # mgpu-fix: ignore\n"
    ignored = [*SourceFile("k.py", text.encode()).ignored]
    place = Span("k.py", 1, 8, 1, 39)
    assert ignored == [(place, "MGF102"), (place, "A")]
