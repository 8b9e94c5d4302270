"""What each JAX can prove: checks the kernels in ``samples/`` with each Python named, and writes a table of it.

    python tools/proof_table.py docs/proof.md PYTHON...

Each PYTHON is one that mgpu-fix is installed for. Rows are kinds of kernel, columns versions of JAX; a column is headed
*compile* where the parts of ``mgpu-fix[compile]`` are there, too. Columns of others stay as they were.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).with_name("samples")
HEAD = """\
# What is proven

`python tools/proof_table.py` wrote this: it ran `mgpu-fix check` on the kernels in [tools/samples](../tools/samples),
by version of JAX. *numbers* means that the interpreter ran the kernel and its numbers are those of its reference,
*compiled* that it became machine code for the GPU named, *lowered* that JAX lowers it for CUDA and nothing more is
known. No GPU was used.

"""


def kinds() -> dict[str, str]:
    """What each sample is, by its file's name."""
    found = {}
    for file in sorted(SAMPLES.glob("*.py")):
        said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        found[file.name] = (said or file.stem).rstrip(".")
    return found


def cell(file: Mapping[str, Any]) -> str:
    """What a report says of one sample."""
    if not file["kernels"] or file["remaining"]:
        first = next(iter(file["remaining"]), None)
        return f"refused: {first['code'] or first['type']}" if first else str(file["status"])
    [kernel] = file["kernels"]
    words = ["numbers"] if kernel["oracle"] == "reference" else []
    compiled = kernel.get("resources")
    words += [f"compiled ({compiled['arch']})"] if compiled else []
    return ", ".join(words) or "lowered"


def column(python: str) -> tuple[str, dict[str, str]]:
    """A column's head, and its cells by the sample's name."""
    command = [python, "-m", "mgpu_fix", "check", "--output-format", "json", *kinds()]
    ran = subprocess.run(command, cwd=SAMPLES, capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    cells = {file["path"]: cell(file) for file in report["files"]}
    compiles = any("compiled" in text for text in cells.values())
    return f"{report['jax']}{' + compile' if compiles else ''}", cells


def parsed(text: str) -> dict[str, dict[str, str]]:
    """The columns of a table."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    names = {said: name for name, said in kinds().items()}
    columns: dict[str, dict[str, str]] = {head: {} for head in rows[0][1:]} if rows else {}
    for said, *cells in rows[2:]:
        for head, proof in zip(columns, cells, strict=True):
            if said in names:
                columns[head][names[said]] = proof
    return columns


def rendered(columns: Mapping[str, Mapping[str, str]]) -> str:
    """The page."""
    heads = sorted(columns, key=lambda head: ([int(n) for n in re.findall(r"\d+", head)], head), reverse=True)
    lines = [["kernel", *heads], ["---"] * (len(heads) + 1)]
    lines += [[said, *(columns[head].get(name, "?") for head in heads)] for name, said in kinds().items()]
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(path: Path, pythons: list[str]) -> None:
    """Write the table to ``path``."""
    columns = parsed(path.read_text(encoding="utf-8")) if path.exists() else {}
    for python in pythons:
        head, cells = column(python)
        columns[head] = cells
    path.parent.mkdir(exist_ok=True)
    path.write_text(rendered(columns), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
