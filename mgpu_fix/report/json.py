"""The machine-readable report; ``schema.json`` beside this file is its contract."""

import json
from importlib import resources
from typing import Any

from mgpu_fix.model import Report, to_json


def render(report: Report, applied: bool = False) -> str:
    """The report as JSON text with a final newline; the diffs in it are the same whether they were ``applied``."""
    return dump(to_json(report)) + "\n"


def dump(value: Any) -> str:
    """Any plain value as JSON text; what is no Unicode, as in a file name, is escaped."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def schema() -> dict[str, Any]:
    """The JSON schema that every report satisfies."""
    text = resources.files("mgpu_fix.report").joinpath("schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
