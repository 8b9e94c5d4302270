"""What a run wrote down, read back: the events in its folder, and how its process ended. Imports no JAX."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mgpu_fix.model import Check, Facts, Failure, Function, KernelCall, Observation, Referred, from_json
from mgpu_fix.observe.compiler import Lowered
from mgpu_fix.observe.device import Exported
from mgpu_fix.observe.run import span_or_none

#: how much of the program's own output is kept, in characters
OUTPUT_TAIL = 4000


@dataclass(frozen=True)
class Transcript:
    """What is known of a run; variables that it wants set before JAX is imported; what its kernels were lowered to, by
    the call's number, and exported as."""

    observation: Observation
    preset: Mapping[str, str] = field(default_factory=dict)
    lowered: Mapping[int, Lowered] = field(default_factory=dict)
    exported: tuple[Exported, ...] = ()


def read(folder: Path, answer: Mapping[str, Any], jax: str, device: str, seconds: float, limit: float) -> Transcript:
    """The transcript in ``folder`` of a run that took ``seconds`` of at most ``limit``. ``answer`` is what the server
    says of its end."""
    calls: dict[int, KernelCall] = {}
    lowered: dict[int, Lowered] = {}
    failures: list[Failure] = []
    declared: list[Function] = []
    end: dict[str, Any] = {}
    preset: dict[str, str] = {}
    exported: tuple[Exported, ...] = ()
    told: dict[str, Any] = {}
    for kind, value in _events(folder / "events.jsonl"):
        match kind:
            case "failure":
                failures.append(replace(from_json(Failure, value), jax=jax))
            case "uncaught":
                failures[value] = replace(failures[value], caught=False)
            case "amended":
                number, facts = value
                failures[number] = replace(failures[number], facts=from_json(Facts, facts))
            case "call":
                call = from_json(KernelCall, value)
                calls[call.number] = call
            case "lowered":
                number, names, caught = value
                lowered[number] = Lowered(tuple(names), caught)
            case "exported":
                exported = tuple(from_json(Exported, v) for v in value)
            case "declared":
                declared.append(from_json(Function, value))
            case "preset":
                preset.update(value)
            case "callable":
                told["callables"] = tuple(value)
            case "others":
                told["others"] = value
            case "checks":
                told["checks"] = tuple(from_json(Check, v) for v in value)
            case "loaded":
                told["loaded"] = tuple(value)
            case "children":
                told["children"] = True
            case "referred":
                told["referred"] = tuple(from_json(Referred, v) for v in value)
            case "end":
                end = value
    output = ""
    with contextlib.suppress(OSError):
        output = (folder / "output.txt").read_text(errors="replace")[-OUTPUT_TAIL:]
    status, reason = (end.get("status", "crashed"), end.get("reason", "")) if end else _broken_off(answer, limit)
    observation = Observation(
        status=status,
        calls=tuple(calls.values()),
        failures=tuple(failures),
        reason=reason,
        span=span_or_none(end.get("span")),
        exit_code=end.get("exit_code"),
        output=output,
        folder=str(folder),
        jax=jax,
        device=device,
        declared=tuple(declared),
        seconds=seconds,
        **told,
    )
    return Transcript(observation, preset, lowered, exported)


def _broken_off(answer: Mapping[str, Any], limit: float) -> tuple[str, str]:
    """Status and reason of a run that did not say how it ended."""
    if "timeout" in answer:
        return "timeout", f"it did not end within {limit:.0f} s; --timeout gives it more"
    if "interrupted" in answer:
        return "crashed", "it was interrupted"
    if "signal" in answer:
        return "crashed", f"signal {answer['signal']} ended it"
    return "crashed", f"it ended the interpreter with code {answer.get('exit')}"


def _events(path: Path) -> Iterator[tuple[str, Any]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as f:
        for line in f:
            # A crash can leave the last line half-written.
            with contextlib.suppress(ValueError):
                yield from json.loads(line).items()
