"""Report what JAX's Pallas Mosaic GPU interface lost from one installed release to the next.

Give it the Python executables of environments that hold different JAX releases. A probe run in each of them lists the
public names and signatures; every name or parameter that is gone, moved or newly required is reported. With a table of
known changes only what the table lacks, or states wrongly, is reported, and the exit status says whether there was any:

    python tools/api_drift.py --table codemods/drift/table.toml ~/jax-0.10.2/bin/python ~/jax-0.12.0/bin/python
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PALLAS = "jax.experimental.pallas"
MODULES = (PALLAS, f"{PALLAS}.mosaic_gpu", "jax.experimental.mosaic.gpu")

PROBE = r"""
import dataclasses, enum, importlib, inspect, json, pkgutil, sys, types, warnings

names, deprecated, broken = {}, {}, {}


def signature(thing, bound=False):
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, enum.Enum)):
        return None
    if isinstance(thing, enum.Enum):  # Else the signature of its class would be told.
        thing, bound = type(thing).__call__, True
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    return [[p.name, p.kind.name, p.default is not empty] for p in parameters[1 if bound else 0 :]]


def members(cls):
    found = {field.name: None for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for base in cls.__mro__:
        if base.__module__.split(".")[0] in ("jax", "jaxlib"):
            for name, raw in vars(base).items():
                plain = isinstance(raw, types.FunctionType)
                if not name.startswith("_") and name not in found:
                    found[name] = signature(getattr(cls, name, None), plain)
    return found


def look(module, name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            thing = getattr(module, name)
        except AttributeError:
            return
    dotted = module.__name__ + "." + name
    if any(issubclass(w.category, DeprecationWarning) for w in caught):
        deprecated[dotted] = str(caught[0].message)
    if isinstance(thing, types.ModuleType):
        if not thing.__name__.startswith("jax"):
            return
    elif type(thing).__module__ == "__future__":
        return
    names[dotted] = signature(thing)
    if isinstance(thing, type):
        names.update((dotted + "." + member, found) for member, found in members(thing).items())


for path in sys.argv[1:]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(path)
    except Exception as error:
        broken[path] = repr(error)
        continue
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not found.name.startswith("_"):
            names[path + "." + found.name] = None
    for name in sorted({*dir(module), *getattr(module, "_deprecations", ())}):
        if not name.startswith("_"):
            look(module, name)

import jax

print()
print(json.dumps({"jax": jax.__version__, "names": names, "deprecated": deprecated, "broken": broken}))
"""

Parameter = tuple[str, str, bool]  # name, kind as inspect calls it, has a default
DEPRECATED = "deprecated"
POSITIONAL = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")


@dataclasses.dataclass(frozen=True)
class Release:
    """The public interface of one installed JAX."""

    version: str
    names: dict[str, list[Parameter] | None]  # None: no signature
    deprecated: dict[str, str]
    broken: dict[str, str]  # modules that do not import, with the error

    @functools.cached_property
    def owners(self) -> frozenset[str]:
        """The modules and classes whose names were looked at."""
        return frozenset(map(owner, self.names))

    def holds(self, symbol: str, argument: str | None) -> bool | None:
        """Whether the symbol, or the argument of it, is there; None if that cannot be told."""
        if any(symbol.startswith(f"{module}.") for module in self.broken) or owner(symbol) not in self.owners:
            return None
        if symbol not in self.names:
            return False
        parameters = self.names[symbol]
        if argument is None:
            return True
        if parameters is None:
            return None
        if any(name == argument for name, _, _ in parameters):
            return True
        return None if any(kind == "VAR_KEYWORD" for _, kind, _ in parameters) else False


@dataclasses.dataclass(frozen=True)
class Loss:
    """Something that code written for the older release may miss in the newer one."""

    older: str
    newer: str
    symbol: str
    argument: str | None
    what: str

    def __str__(self) -> str:
        """The line to print."""
        argument = f"({self.argument})" if self.argument else ""
        return f"{self.older} -> {self.newer}: {self.symbol}{argument}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Change:
    """An entry of the table.

    `[[change]]` names one symbol or one argument of it; its other keys are for those who rewrite code. `[[ignore]]`
    has patterns for `symbol` and, if it is about parameters only, `argument`.
    """

    symbol: str
    argument: str | None = None
    kind: str = "ignore"
    new: str | None = None
    added: str | None = None
    removed: str | None = None
    deprecated: str | None = None

    def covers(self, loss: Loss) -> bool:
        """Whether the entry speaks of this loss, and of the release in which it came."""
        if self.kind == "ignore":
            known = fnmatch.fnmatchcase(loss.symbol, self.symbol)
            return known and fnmatch.fnmatchcase(loss.argument or "", self.argument or "*")
        if loss.symbol != self.symbol or (self.argument is not None and loss.argument not in (self.argument, self.new)):
            return False
        since = self.deprecated if loss.what == DEPRECATED else self.removed
        return since is not None and key(loss.older) < key(since) <= key(loss.newer)

    def contradictions(self, releases: Iterable[Release]) -> Iterator[str]:
        """What the releases show otherwise than the entry says; only one-for-one replacements can be checked."""
        if self.kind not in ("name", "keyword") or self.new is None:
            return
        label = self.symbol + (f"({self.argument})" if self.argument else "")
        for release in releases:
            at = key(release.version)
            old = release.holds(self.symbol, self.argument)
            new = release.holds(self.new, None)
            if self.kind == "keyword":
                new = release.holds(self.symbol, self.new) if release.holds(self.symbol, None) else None
            if old and self.removed and at >= key(self.removed):
                yield f"table: {label} is still there in {release.version}"
            if old is False and self.removed and self.added and key(self.added) <= at < key(self.removed):
                yield f"table: {label} is no longer there in {release.version}"
            if self.added and new is not None and new != (at >= key(self.added)):
                yield f"table: {self.new}, for {label}, is {'' if new else 'not '}there in {release.version}"


def owner(symbol: str) -> str:
    """The module or class that a dotted name is in."""
    return symbol.rpartition(".")[0]


def key(version: str) -> tuple[int, ...]:
    """The sort key of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def probe(python: str) -> Release:
    """Run the probe in one environment."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [python, "-c", PROBE, *MODULES]
    try:
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{python}: {error}")
    if found.returncode:
        sys.exit(f"{python}: {found.stderr.strip() or found.returncode}")
    told = json.loads(found.stdout.splitlines()[-1])  # Some releases print while they are imported.
    names = {
        name: None if parameters is None else [(str(p[0]), str(p[1]), bool(p[2])) for p in parameters]
        for name, parameters in told["names"].items()
    }
    return Release(told["jax"], names, told["deprecated"], told["broken"])


def lost_parameters(old: Sequence[Parameter], new: Sequence[Parameter]) -> Iterator[tuple[str, str]]:
    """The parameters, with what became of them, that a call written for the old signature may trip over."""
    here = {name: (kind, default) for name, kind, default in new}
    kinds = {kind for _, kind, _ in new}
    before = [name for name, kind, _ in old if kind in POSITIONAL]
    after = [name for name, kind, _ in new if kind in POSITIONAL]
    gone = False
    for name, kind, default in old:
        if kind in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            if kind not in kinds:
                yield ("*" if kind == "VAR_POSITIONAL" else "**") + name, "gone"
        elif kind == "POSITIONAL_ONLY":
            if before.index(name) >= len(after) and "VAR_POSITIONAL" not in kinds:
                yield name, "gone"
        elif name not in here:
            gone = True
            yield name, "perhaps in **" if "VAR_KEYWORD" in kinds else "gone"
        elif here[name][0] != kind and kind == "POSITIONAL_OR_KEYWORD":
            yield name, here[name][0].lower().replace("_", "-")
        elif default and not here[name][1]:
            yield name, "now required"
        elif kind in POSITIONAL and not gone and before.index(name) != after.index(name):
            gone = True  # Whatever follows moved with it.
            yield name, f"moved from position {before.index(name)} to {after.index(name)}"
    for name, kind, default in new:
        if not default and kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY") and name not in {n for n, _, _ in old}:
            yield name, "new and required"


def losses(older: Release, newer: Release) -> Iterator[Loss]:
    """Everything the newer of two releases lacks, or means to lose."""
    for symbol, old in older.names.items():
        parent, name = owner(symbol), symbol.rpartition(".")[2]
        new = newer.names.get(symbol)
        if symbol in newer.names:
            for argument, what in lost_parameters(old, new) if old is not None and new is not None else ():
                yield Loss(older.version, newer.version, symbol, argument, what)
        elif newer.holds(symbol, None) is False and not (parent not in MODULES and older.holds(parent, name)):
            # A field of a class is reported as the parameter that it is.
            yield Loss(older.version, newer.version, symbol, None, "gone")
    for symbol in sorted(newer.deprecated.keys() - older.deprecated.keys()):
        yield Loss(older.version, newer.version, symbol, None, DEPRECATED)


def read_table(path: Path) -> list[Change]:
    """The entries of a table."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    fields = [field.name for field in dataclasses.fields(Change)]
    entries = [*told.get("change", ()), *told.get("ignore", ())]
    return [Change(**{field: entry[field] for field in fields if field in entry}) for entry in entries]


def main(arguments: Sequence[str] | None = None) -> int:
    """Probe, compare, report."""
    parser = argparse.ArgumentParser(description="What did the Pallas Mosaic GPU interface lose between JAX releases?")
    parser.add_argument("python", nargs="+", help="Python executable of an environment with JAX")
    parser.add_argument("--table", type=Path, help="TOML table of known changes to leave out")
    parser.add_argument("--dump", type=Path, help="folder to write each release's interface to, as JSON")
    options = parser.parse_args(arguments)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        releases = sorted(pool.map(probe, options.python), key=lambda release: key(release.version))
    changes = read_table(options.table) if options.table else []
    lacking = [line for change in changes for line in change.contradictions(releases)]
    for release in releases:
        for module, error in release.broken.items():
            print(f"{release.version}: {module} does not import: {error}", file=sys.stderr)
        if options.dump:
            options.dump.mkdir(parents=True, exist_ok=True)
            text = json.dumps(dataclasses.asdict(release), indent=1)
            (options.dump / f"{release.version}.json").write_text(text, encoding="utf-8")
    for older, newer in itertools.pairwise(releases):
        found = losses(older, newer)
        lacking += [str(loss) for loss in found if not any(change.covers(loss) for change in changes)]
    print(*lacking, sep="\n", end="\n" if lacking else "")
    return 1 if options.table and lacking else 0


if __name__ == "__main__":
    sys.exit(main())
