"""Write ``docs/rules`` from the catalogue: a page for every rule with a golden case of it, and an index.

    python tools/rule_pages.py

Nothing in that folder is written by hand; the tests fail where it does not say what the catalogue says.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_fix import catalogue
from mgpu_fix.catalogue import Rule

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "rules"
#: What the first digits of codes stand for.
FAMILIES = {
    "1": "Warp-level regions",
    "2": "Functions of `plgpu.inline_mgpu`",
    "3": "Scoped memory",
    "4": "A kernel's body: what it returns, captures, stores and copies",
    "5": "Declarations: threads, grids, memory, pipelines and their options",
    "6": "What JAX says nothing of",
    "7": "Layouts and sizes",
    "8": "Errors that are not of a Mosaic GPU kernel",
    "9": "What newer JAX spells otherwise",
}


def page(rule: Rule) -> str:
    """One rule's page."""
    lines = [f"# {rule.code} {rule.name}", "", rule.page, "", f"Seen on JAX {rule.jax}.", ""]
    found = sorted((ROOT / "golden" / f"{rule.code}-{rule.name}").glob("*/expected.diff"))
    if found:
        # The shortest one shows the rule rather than the kernel.
        case = min(found, key=lambda path: len(path.read_text(encoding="utf-8")))
        diff = case.read_text(encoding="utf-8").rstrip("\n")
        done = "what `mgpu-fix apply` makes of it" if rule.repairs else "written by hand"
        title = f"`{case.parent.relative_to(ROOT).as_posix()}`, {done}; both sides are run by the tests:"
        lines += ["## A case", "", title, "", "```diff", diff, "```", ""]
    return "\n".join(lines)


def index(rules: Sequence[Rule]) -> str:
    """The list of all rules."""
    lines = ["# Rules", "", "`mgpu-fix explain CODE` shows the same pages. Written by `tools/rule_pages.py`.", ""]
    for digit, family in FAMILIES.items():
        members = sorted((rule for rule in rules if rule.code[3] == digit), key=lambda rule: rule.code)
        lines += [f"## {family}", "", "| rule | | |", "|---|---|---|"] if members else []
        for rule in members:
            link = f"[{rule.code} {rule.name}]({rule.code}-{rule.name}.md)"
            lines.append(f"| {link} | {'repairs' if rule.repairs else 'explains'} | {rule.summary} |")
        lines += [""] if members else []
    return "\n".join(lines)


def pages(rules: Sequence[Rule]) -> dict[Path, str]:
    """Every file of the folder with its text."""
    named = {FOLDER / f"{rule.code}-{rule.name}.md": page(rule) for rule in rules}
    return {FOLDER / "README.md": index(rules), **named}


def main() -> int:
    """Write the folder."""
    wanted = pages(catalogue.load().rules)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in set(FOLDER.glob("*.md")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
