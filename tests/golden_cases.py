"""The golden cases on disk: before, after, the patch between them, what JAX raised, and the numbers."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mgpu_fix.arrays import restored, stored
from mgpu_fix.catalogue import load
from mgpu_fix.model import Failure, Observation, from_json, to_json

ROOT = Path(__file__).parent.parent / "golden"


@dataclass(frozen=True)
class Case:
    """One folder ``golden/<code>-<name>/<case>``. Recordings call it ``<case>``, so that they fit any machine."""

    folder: Path

    @property
    def code(self) -> str:
        return self.folder.parent.name.split("-")[0]

    @property
    def repairs(self) -> bool:
        """Whether the rule makes ``after`` of ``before``; else that is what its page says to write by hand."""
        rule = load().find(self.code)
        assert rule is not None
        return rule.repairs

    @property
    def before(self) -> bytes:
        return (self.folder / "before.py").read_bytes()

    @property
    def after(self) -> bytes:
        return (self.folder / "after.py").read_bytes()

    @property
    def path(self) -> str:
        return str(self.folder / "before.py")

    def recorded(self) -> dict[str, list[Failure]]:
        """Failures by the JAX version that raised them; no entry for a version that was not tried."""
        found = {}
        for file in sorted(self.folder.glob("failure.*.json")):
            text = file.read_text(encoding="utf-8").replace("<case>", str(self.folder))
            version = file.name.removeprefix("failure.").removesuffix(".json")
            found[version] = [replace(from_json(Failure, f), jax=version) for f in json.loads(text)]
        return found

    def record(self, observation: Observation, jax_folder: str) -> None:
        """Keep what a run raised."""
        text = (
            json.dumps([to_json(replace(f, jax="")) for f in observation.failures], indent=1, ensure_ascii=False) + "\n"
        )
        text = text.replace(str(self.folder), "<case>").replace(jax_folder, "<jax>/")
        (self.folder / f"failure.{observation.jax}.json").write_text(text, encoding="utf-8")

    def outputs(self) -> list[np.ndarray] | None:
        """The right outputs of the case's one kernel call."""
        file = self.folder / "outputs.npz"
        if not file.exists():
            return None
        with np.load(file, allow_pickle=False) as arrays:
            return [restored(arrays[name], name.split(".")[1]) for name in sorted(arrays.files)]

    def record_outputs(self, arrays: list[np.ndarray]) -> None:
        """Keep the right outputs."""
        named = {f"{i:02}.{a.dtype.name}": stored(a) for i, a in enumerate(arrays)}
        np.savez(self.folder / "outputs.npz", **named)  # type: ignore[arg-type]


CASES = [Case(f.parent) for f in sorted(ROOT.glob("*/*/before.py"))]


def name(case: Case) -> str:
    """How a case is called in test ids."""
    return f"{case.folder.parent.name}/{case.folder.name}"
