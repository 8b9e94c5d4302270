"""Hold the catalogue against every ``raise`` in the Mosaic GPU sources of installed JAX releases.

Give it the Python executables of environments that hold different releases. It reads their sources, imports nothing of
them, and says for each release how many of its errors have a rule, which are new since the last recorded release, and
which signatures no longer have an error to match: what there is to do for a new release. With ``--record`` it keeps
what it found in ``docs/coverage`` and writes the table there:

    python tools/error_coverage.py --record ~/jax-0.10.2/bin/python ~/jax-0.12.0/bin/python

Run it with the newest of those Pythons, whose syntax the sources may use.
"""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import functools
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mgpu_fix import catalogue

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
#: What is counted, under the folder of the package; the rest of JAX is only asked whether a signature still matches.
PATHS = ("_src/pallas/*.py", "_src/pallas/mosaic_gpu/**/*.py", "experimental/mosaic/gpu/**/*.py", "_src/state/*.py")
ELSEWHERE = ("_src/**/*.py", "experimental/**/*.py")
#: Messages with fewer letters of their own than this say nothing.
LEAST = 8
#: As much of a message tells it from all others.
ENOUGH = 150
#: What Python raises by itself has no ``raise`` in JAX.
PYTHONS = ("TypeError", "AttributeError", "ImportError", "AssertionError")

FIND = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("jax"), importlib.util.find_spec("jax").submodule_search_locations[0], sep="\\n")
"""


@dataclasses.dataclass(frozen=True)
class Raised:
    """A ``raise``: the file, the type, and the message with ``{}`` for what is filled in."""

    file: str
    type: str
    message: str

    @property
    def digest(self) -> str:
        """A short name that stays while the type and the words do, wherever they move."""
        return hashlib.sha256(f"{self.type}: {self.message}".encode()).hexdigest()[:8]

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the beginning of every message that it can make, as far as it is on the first line."""
        start = self.message.split("\n")[0][:ENOUGH].removesuffix("{")
        return re.compile(".*".join(map(re.escape, start.split("{}"))))

    @property
    def speaks(self) -> bool:
        """Whether the message has words of its own."""
        return len(re.findall(r"[A-Za-z]", self.message.replace("{}", ""))) >= LEAST


class Reader:
    """The ``raise`` statements of one file."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.tree = ast.parse(text)
        self.functions = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)}

    def read(self) -> Iterator[Raised]:
        """Every statement that makes an exception, rather than passing one on."""
        yield from self._within(self.tree, self._texts(self.tree))

    def _within(self, node: ast.AST, texts: Mapping[str, ast.expr]) -> Iterator[Raised]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Raise) and child.exc is not None:
                yield from self._raised(child.exc, texts)
            inner = texts
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = {**texts, **self._texts(child)}
            yield from self._within(child, inner)

    @staticmethod
    def _texts(scope: ast.AST) -> dict[str, ast.expr]:
        """Names that are assigned in a function, or at the top of a file, with what they are given last."""
        nodes = ast.walk(scope) if not isinstance(scope, ast.Module) else scope.body
        return {
            node.targets[0].id: node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def _raised(self, made: ast.expr, texts: Mapping[str, ast.expr]) -> Iterator[Raised]:
        function = made.func if isinstance(made, ast.Call) else made
        kind = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        messages = [_template(a, texts) for a in made.args] if isinstance(made, ast.Call) else []
        # A helper may be given other things first.
        message = max(messages, key=len, default="") if kind in self.functions else "".join(messages[:1])
        if kind in self.functions:
            # A helper that puts the exception together.
            kind = next(filter(None, map(_returned, ast.walk(self.functions[kind]))), kind)
        if kind[:1].isupper():
            yield Raised(self.file, kind, re.sub(r"(\{\}\s*)+\{\}", "{}", message))


def _returned(node: ast.AST) -> str:
    match node:
        case ast.Return(value=ast.Call(func=ast.Name(id=name))) if name[:1].isupper():
            return name
    return ""


def _template(value: ast.expr, texts: Mapping[str, ast.expr], depth: int = 3) -> str:
    """A message with ``{}`` for what is not written out."""
    match value:
        case ast.Constant(value=str(text)):
            return text.replace("{}", "")
        case ast.JoinedStr(values=parts):
            return "".join(_template(part, texts, depth) for part in parts)
        case ast.FormattedValue(value=inner) if isinstance(inner, ast.Constant | ast.JoinedStr):
            return _template(inner, texts, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left, texts, depth) + _template(right, texts, depth)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return re.sub(r"%[-+# \d.]*[a-z]", "{}", text)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return re.sub(r"\{[^{}]*\}", "{}", text)
        case ast.Name(id=name) if depth and name in texts:
            return _template(texts[name], texts, depth - 1)
    return "{}"


@dataclasses.dataclass(frozen=True)
class Release:
    """What one JAX raises in the Mosaic GPU paths, and elsewhere."""

    version: str
    raises: tuple[Raised, ...]
    elsewhere: tuple[Raised, ...]


def scan(version: str, folder: Path) -> Release:
    """Read the sources of one JAX."""
    counted = {path for pattern in PATHS for path in folder.glob(pattern)}
    others = {path for pattern in ELSEWHERE for path in folder.glob(pattern)} - counted
    return Release(version, tuple(_read(folder, counted)), tuple(_read(folder, others)))


def _read(folder: Path, paths: Iterable[Path]) -> Iterator[Raised]:
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8")
        if "raise " in text:
            yield from Reader(path.relative_to(folder).as_posix(), text).read()


class Known:
    """The catalogue, and messages that JAX was seen to raise: (type, message)."""

    def __init__(self, rules: Sequence[catalogue.Rule], seen: Sequence[tuple[str, str]]) -> None:
        self.rules = rules
        self.signatures = [(rule.code, signature) for rule in rules for signature in rule.signatures]
        self.seen = seen

    def of(self, raised: Raised) -> list[tuple[str, catalogue.Signature]]:
        """The signatures that match what a ``raise`` makes: some message of its that was seen, or its bare words."""
        if not raised.speaks:
            return []
        made = [text for kind, text in self.seen if kind == raised.type and raised.pattern.match(text)]
        texts = [*made, *(raised.message.replace("{}", filling) for filling in ("x", "1", ""))]
        same = ((code, s) for code, s in self.signatures if s.type == raised.type)
        return [(code, s) for code, s in same if any(re.search(s.message, text, re.S) for text in texts)]

    def code(self, raised: Raised) -> str | None:
        """The rule that answers it, that of the most specific signature."""
        return max(((len(s.message), code) for code, s in self.of(raised)), default=(0, None))[1]


@dataclasses.dataclass(frozen=True)
class Record:
    """What is kept of one release: digests of its errors, how many of each file are there and known, how many each
    rule answers, and the signatures that matched something."""

    jax: str
    files: dict[str, list[int]]
    rules: dict[str, int]
    live: list[str]
    seen: list[str]


def name_of(code: str, signature: catalogue.Signature) -> str:
    """How a record names a signature."""
    return f"{code} {signature.type} {signature.message}"


def record(release: Release, known: Known) -> Record:
    """Everything to keep of a release."""
    files: dict[str, list[int]] = {}
    rules: collections.Counter[str] = collections.Counter()
    for raised in release.raises:
        code = known.code(raised)
        counts = files.setdefault(raised.file, [0, 0])
        counts[0] += 1
        if code:
            counts[1] += 1
            rules[code] += 1
    live = {name_of(*hit) for raised in (*release.raises, *release.elsewhere) for hit in known.of(raised)}
    digests = sorted({raised.digest for raised in release.raises})
    return Record(release.version, files, dict(sorted(rules.items())), sorted(live), digests)


def dead(known: Known, newest: Record) -> list[str]:
    """Signatures that nothing in a release raises any more; of types for which that can be told."""
    types = {name.split()[1] for name in newest.live} - {*PYTHONS}
    own = (name_of(code, s) for code, s in known.signatures if s.type in types)
    return [name for name in own if name not in newest.live]


def key(version: str) -> tuple[int, ...]:
    """The sort key of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def read_records(folder: Path) -> list[Record]:
    """What was recorded, the oldest release first."""
    told = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json"))
    return sorted((Record(**data) for data in told), key=lambda r: key(r.jax))


def write_record(kept: Record, folder: Path) -> None:
    """Keep what was found of a release."""
    folder.mkdir(parents=True, exist_ok=True)
    data = dataclasses.asdict(kept)
    lines = [f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in data.items()]
    (folder / f"{kept.jax}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def table(records: Sequence[Record], known: Known) -> str:
    """The page of the documentation."""
    names = {rule.code: rule.name for rule in known.rules}
    newest = records[-1]
    lines = [
        "# Which of JAX's errors the catalogue knows",
        "",
        "Every `raise` in the sources of Pallas and Mosaic GPU, read by `tools/error_coverage.py`. Most of them guard",
        "what a kernel cannot reach, or what only JAX's own code gets wrong. Messages that Python makes by itself (an",
        "unknown argument, a name that is gone) are not among them.",
        "",
        "| JAX | `raise` statements | with a rule |",
        "|---|---|---|",
        *(f"| {r.jax} | {sum(n for n, _ in r.files.values())} | {sum(r.rules.values())} |" for r in records),
        "",
        "## By rule",
        "",
        f"| rule | {' | '.join(r.jax for r in records)} |",
        f"|---|{'---|' * len(records)}",
    ]
    for code in sorted({code for r in records for code in r.rules}):
        counts = " | ".join(str(r.rules.get(code, "")) for r in records)
        lines.append(f"| {code} {names.get(code, '')} | {counts} |")
    lines += ["", "## Signatures that nothing raises", ""]
    lines += ["| signature | last raised by |", "|---|---|"]
    for name in dead(known, newest):
        last = next((r.jax for r in reversed(records) if name in r.live), "none of these")
        escaped = name.replace("|", "\\|")
        lines.append(f"| `{escaped}` | {last} |")
    lines += ["", f"## By file, JAX {newest.jax}", "", "| file | `raise` statements | with a rule |", "|---|---|---|"]
    lines += [f"| `{file}` | {count} | {known or ''} |" for file, (count, known) in sorted(newest.files.items())]
    return "\n".join(lines) + "\n"


def installed_catalogue() -> Known:
    """The rules that are installed, and the messages that their tests have."""
    messages = json.loads((ROOT / "tests" / "data" / "messages.json").read_text(encoding="utf-8"))
    return Known(catalogue.load().rules, [(seen["type"], seen["message"]) for seen in messages])


def installed(python: str) -> tuple[str, Path]:
    """Version and folder of the JAX of an environment."""
    try:
        found = subprocess.run([python, "-c", FIND], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{python}: {getattr(error, 'stderr', '') or error}")
    version, folder = found.stdout.split("\n")[:2]
    return version, Path(folder)


def tell(release: Release, known: Known, records: Sequence[Record], everything: bool) -> bool:
    """Print what is to be done for a release; whether there is anything."""
    kept = record(release, known)
    count = sum(n for n, _ in kept.files.values())
    print(f"JAX {release.version}: {count} raise statements, {sum(kept.rules.values())} with a rule")
    before = [r for r in records if key(r.jax) < key(release.version)]
    same = [r for r in records if r.jax == release.version]
    last = (same or before or [kept])[-1]
    new = [r for r in release.raises if r.digest not in last.seen]
    for raised in new:
        print(f"  new: {raised.file}: {raised.type}: {raised.message} [{known.code(raised) or 'no rule'}]")
    gone = [name for name in dead(known, kept) if name in last.live]
    for name in gone:
        print(f"  matches nothing any more: {name}")
    for raised in release.raises if everything else ():
        print(f"  {known.code(raised) or 'no rule'}: {raised.file}: {raised.type}: {raised.message}")
    return bool(new or gone)


def main(arguments: Sequence[str] | None = None) -> int:
    """Scan, compare, report."""
    parser = argparse.ArgumentParser(description="Which errors of Pallas Mosaic GPU does the catalogue know?")
    parser.add_argument("python", nargs="+", help="Python executable of an environment with JAX")
    parser.add_argument("--record", action="store_true", help="keep what was found, and write docs/coverage.md")
    parser.add_argument("--all", action="store_true", help="print every error with its rule")
    parser.add_argument("--json", action="store_true", help="print the records as JSON instead")
    options = parser.parse_args(arguments)
    known = installed_catalogue()
    releases = sorted((scan(*installed(python)) for python in options.python), key=lambda r: key(r.version))
    if options.json:
        print(json.dumps([dataclasses.asdict(record(release, known)) for release in releases], indent=1))
        return 0
    records = read_records(DOCS / "coverage")
    todo = [tell(release, known, records, options.all) for release in releases]
    if options.record:
        for release in releases:
            write_record(record(release, known), DOCS / "coverage")
        page = table(read_records(DOCS / "coverage"), known)
        (DOCS / "coverage.md").write_text(page, encoding="utf-8")
    return 1 if any(todo) and not options.record else 0


if __name__ == "__main__":
    sys.exit(main())
