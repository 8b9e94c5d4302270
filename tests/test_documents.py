"""Notebooks and Markdown: their Python as one program, and back, byte for byte."""

import json
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import mgpu_fix

from mgpu_fix import disk
from mgpu_fix.source import Document, SourceError, SourceFile


def document(name: str, text: str) -> Document:
    return disk.parsed(name, text.encode())


def cell(source: Any, kind: str = "code", **more: Any) -> dict[str, Any]:
    rest = {"execution_count": 3, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["x = 1\n"]}]}
    return {
        "cell_type": kind,
        "metadata": {"tags": ["x = 1"]},
        **(rest if kind == "code" else {}),
        "source": source,
        **more,
    }


def dumped(*cells: dict[str, Any], **style: Any) -> str:
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    whole = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, **{"indent": 1, "ensure_ascii": False, **style}) + "\n"


def changed(doc: Document, old: str, new: str) -> str:
    """The file's text once the program was edited."""
    text = doc.program.text
    assert text.count(old) == 1, text
    return doc.written(SourceFile(doc.program.path, text.replace(old, new).encode())).text


CELLS = (
    cell(["# Title: x = 1\n"], "markdown", id="a"),
    cell(["%matplotlib inline\n", "import a\n", "x = 1  # \u00e9\n", "!ls {x}"], id="b"),
    cell(["%%bash\n", "x = 1"], id="c"),
    cell(["%%time\n", "def f():\n", "    %timeit x\n", "    return x\n", "\n", "f?\n", "y = 7"], id="d"),
    cell("z = '\\\\n'\nz = x", id="e"),
    cell([], id="f"),
    cell(["if x:"], id="g"),
)
STYLES = {
    "nbformat": {},
    "two spaces": {"indent": 2},
    "sorted": {"sort_keys": True},
    "ascii": {"ensure_ascii": True},
    "compact": {"indent": None, "separators": (",", ":")},
    "spaced": {"indent": None},
    "tabs": {"indent": "\t"},
}
#: what stands where JSON ends a line
ENDS = ("\n", "\r\n")


@pytest.mark.parametrize("end", ENDS, ids=["lf", "crlf"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("old", "new", "number", "source"),
    [
        ("x = 1  # é\n", "x = 'ü\"'\n", 1, ["%matplotlib inline\n", "import a\n", "x = 'ü\"'\n", "!ls {x}"]),
        ("import a\n", "import b\nimport a\n", 1, [*CELLS[1]["source"][:1], "import b\n", *CELLS[1]["source"][1:]]),
        ("y = 7", "y = 8", 3, [*CELLS[3]["source"][:-1], "y = 8"]),
        ("z = x", "z = y\nz", 4, "z = '\\\\n'\nz = y\nz"),
    ],
    ids=["a line", "one more line", "the last line", "one text"],
)
def test_a_notebook_keeps_every_byte_outside_the_source_that_changes(
    style: str, end: str, old: str, new: str, number: int, source: Any
) -> None:
    before = dumped(*CELLS, **STYLES[style]).replace("\n", end)
    expected = list(CELLS)
    expected[number] = {**CELLS[number], "source": source}
    doc = document("n.ipynb", before)
    assert doc.program.newline == "\n"
    assert changed(doc, old, new) == dumped(*expected, **STYLES[style]).replace("\n", end)


def test_lines_of_a_cell_that_stay_keep_their_spelling() -> None:
    before = dumped(cell(["a = '\u00e9/'\n", "b = 1\n"])).replace("\u00e9/", "\\u00E9\\/")
    assert changed(document("n.ipynb", before), "b = 1", "b = 2") == before.replace("b = 1", "b = 2")


def test_a_line_of_the_program_has_the_number_that_it_has_in_the_file() -> None:
    before = dumped(*CELLS[:4])
    doc = document("n.ipynb", before)
    for text in ("x = 1  # é", "return x", "y = 7"):
        [line] = [n for n, row in enumerate(doc.program.text.splitlines(), 1) if text in row]
        assert text in before.splitlines()[line - 1]
        assert doc.place(line)[0] == line
    assert doc.place(line)[1] == "cell 4"


def test_a_cell_that_is_no_python_is_left_out_and_said_to_be() -> None:
    left_out = document("n.ipynb", dumped(*CELLS, cell(["a = '\ud800'"]), ensure_ascii=True)).left_out
    assert [text.partition(":")[0] for text in left_out] == ["cell 3", "cell 7", "cell 8"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"nbformat": 3, "cells": []}',
        '{"nbformat": 4}',
        '{"nbformat": 4, "cells": [3]}',
        '{"nbformat": 4, "cells": [{"cell_type": "code", "source": [3]}]}',
    ],
)
def test_what_is_no_notebook_is_refused(text: str) -> None:
    with pytest.raises(disk.Blocked):
        document("n.ipynb", text)


def test_cells_of_another_language_are_left_alone() -> None:
    doc = document("n.ipynb", dumped(cell("x = 1")).replace('"python",', '"R",'))
    assert (doc.program.text, doc.left_out) == ("", ("all of it: its cells are r",))


def test_a_change_that_reaches_over_cells_is_refused() -> None:
    doc = document("n.ipynb", dumped(cell(["a = 1"]), cell(["b = 1"])))
    start, end = doc.program.text.index("a = 1"), doc.program.text.index("b = 1")
    for text in (doc.program.text[:start] + doc.program.text[end:], "import c\n" + doc.program.text):
        with pytest.raises(SourceError):
            doc.written(SourceFile("n.ipynb", text.encode()))


CHARACTERS = st.sampled_from("ab\u00e9\U0001f600 \"\\'#=1\t\x0c\u2028")


@given(st.lists(st.text(CHARACTERS, max_size=9), max_size=5), st.booleans())
def test_any_text_comes_back(comments: list[str], ascii_only: bool) -> None:
    rows = [f"# {row}\n" for row in comments]
    before = dumped(cell([*rows, "a = 1"]), ensure_ascii=ascii_only)
    assert changed(document("n.ipynb", before), "a = 1", "a = 2") == dumped(
        cell([*rows, "a = 2"]), ensure_ascii=ascii_only
    )


MARKDOWN = """\
# Title

```python
import a

x = 1
```

Text with ```x = 1``` in it.

```{code-cell} ipython3
:tags: [hide]

x = 2
```

- item

  ```py
  def f():
      x = 3

      return x
  ```

```python
  if x:
      x = 4
```

~~~~ python title="x = 1"
x = '''
```
'''
~~~~

```
x = 5
```

````md
```python
x = 6
```
````

```python
def g(...):
    ...
    f(..., x=9, ...)
```

```python
g(x=1,
```

```pycon
>>> x = 7
```

```python
x = 8"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("old", ["import a", "x = 2", "    x = 3", "x = 4", "x = '''", "x=9", "x = 8"])
def test_markdown_keeps_every_byte_outside_the_line_that_changes(old: str, newline: str) -> None:
    before = MARKDOWN.replace("\n", newline)
    new = f"{old.replace('a', 'b').replace('x', 'y')}"
    assert changed(document("t.md", before), old, new) == before.replace(old, new)


def test_only_complete_python_counts_and_lines_keep_their_numbers() -> None:
    doc = document("t.md", MARKDOWN)
    assert [row for row in doc.program.text.splitlines() if "x =" in row] == [
        "x = 1",
        "x = 2",
        "    x = 3",
        "    x = 4",
        "x = '''",
        "x = 8",
    ]
    assert "def g(*_0):\n    ...\n    f(*_0, x=9, *_0)\n" in doc.program.text
    assert [n for n, row in enumerate(doc.program.text.splitlines(), 1) if "x = 8" in row] == [MARKDOWN.count("\n") + 1]
    assert [text.partition(":")[0] for text in doc.left_out] == ["the block at line 54"]


OLD = "kernel = plgpu.kernel(body, out_shape=x, grid=(1,))\n"
NEW = OLD.replace("out_shape", "out_type")
IMPORT = "from jax.experimental.pallas import mosaic_gpu as plgpu\n"


def test_upgrade_reads_the_imports_of_the_cells_before(tmp_path: Path) -> None:
    cells = (cell([IMPORT], id="a"), cell(["kernel()"], "markdown", id="b"))
    (tmp_path / "n.ipynb").write_text(dumped(*cells, cell(["x = 1\n", OLD.strip()], id="c")))
    (tmp_path / "t.md").write_text(f"```python\n{IMPORT}```\nThen `out_shape=`:\n```python\n{OLD}```\n")
    (tmp_path / "other.md").write_text("No pallas is in ```python``` here.\n")
    diffed = mgpu_fix("upgrade", "--diff", "--to", "0.12.0", ".", cwd=tmp_path)
    assert diffed.returncode == 1
    done = mgpu_fix("upgrade", "--to", "0.12.0", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "out_type (1 call site), in cell 3" in done.stdout
    notebook, text = (tmp_path / "n.ipynb").read_text(), (tmp_path / "t.md").read_text()
    assert notebook == dumped(*cells, cell(["x = 1\n", NEW.strip()], id="c"))
    assert text == f"```python\n{IMPORT}```\nThen `out_shape=`:\n```python\n{NEW}```\n"
    # The patch of before says the same.
    subprocess.run(["git", "apply", "-R", "-"], input=diffed.stdout, text=True, cwd=tmp_path, check=True)
    assert OLD in (tmp_path / "t.md").read_text()
    assert mgpu_fix("upgrade", "--to", "0.12.0", "--check", ".", cwd=tmp_path).returncode == 1


def test_a_page_of_mosaic_gpu_may_take_its_imports_for_granted(tmp_path: Path) -> None:
    old = f"With `jax.experimental.pallas.mosaic_gpu`:\n```python\ndef f(...):\n  return {OLD.partition(' = ')[2]}```\n"
    (tmp_path / "t.md").write_text(old)
    (tmp_path / "triton.md").write_text(old.replace("mosaic_gpu", "triton"))
    assert mgpu_fix("upgrade", "--to", "0.12.0", ".", cwd=tmp_path).returncode == 0
    assert (tmp_path / "t.md").read_text() == old.replace("out_shape", "out_type")
    assert (tmp_path / "triton.md").read_text() == old.replace("mosaic_gpu", "triton")


def test_markdown_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "t.md").write_text(f"```python\n{IMPORT}{OLD}```\n")
    ran = mgpu_fix("apply", "t.md", cwd=tmp_path)
    assert ran.returncode == 2
    assert "t.md: blocked: nothing runs its Python; mgpu-fix upgrade" in ran.stdout


def test_what_is_written_is_still_a_notebook(tmp_path: Path) -> None:
    before = dumped(*(cell(c["source"], c["cell_type"], id=c["id"]) for c in CELLS))
    after = changed(document("n.ipynb", before), "y = 7", "y = 8")
    for text in (before, after):
        nbformat.validate(nbformat.reads(text, as_version=4))
