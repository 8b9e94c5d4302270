"""The table of what each JAX can prove says what this one does."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

ROOT = Path(__file__).parent.parent


def test_the_table_is_true_of_this_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    table = importlib.import_module("proof_table")
    text = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    columns = table.parsed(text)
    head, cells = table.column(sys.executable)
    if head not in columns:
        pytest.skip(f"JAX {head} is not in docs/proof.md; tools/proof_table.py adds it")
    assert columns[head] == cells
    assert table.rendered(columns) == text
