"""Runs one kernel on the GPU, in a process of its own: what a kernel does wrong there spoils all that its process does
afterwards.

python -P start.py mgpu_fix.observe.device_worker EXPORTED SECONDS OPERANDS TIMED

EXPORTED is the kernel as ``jax.export`` serialized it, OPERANDS a JSON list that names, for each set of operands, the
files that hold them. Outputs are written to the working directory. The last line on standard output is JSON:
``{"name": ..., "arch": ..., "outputs": [[FILE, ...], ...]}``, with ``"fault"`` in place of the outputs where the kernel
does not run, or ``{"unusable": REASON}`` where nothing is known of it. Where TIMED is ``1``, a line with the same and
``"seconds"``, what the kernel takes on the first operands, may follow.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mgpu_fix.arrays import load, stored

#: what XLA says where the GPU lacks the memory, which others may hold
_FULL = "RESOURCE_EXHAUSTED"
#: seconds that are spent on timing a kernel, and the fewest and the most runs for it
_TIMING, _FEWEST, _MOST = 0.5, 3, 50


def main() -> None:
    """Run the kernel on each set of operands, and say what became of it."""
    exported, seconds, operands, timed = sys.argv[1:]
    # Whoever started this may be killed, and must not leave a kernel behind that never ends.
    signal.alarm(int(float(seconds)) + 1)
    try:
        _run(Path(exported).read_bytes(), json.loads(operands), timed == "1")
    except Exception as e:
        _say({"unusable": _line(e)})
    # A process whose kernel failed cannot shut its GPU down.
    os._exit(0)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _run(exported: bytes, sets: Sequence[Sequence[str]], timed: bool) -> None:
    import jax
    import numpy as np
    from jax import export

    # Makes the GPU's side of Pallas known to XLA.
    from jax.experimental.pallas import mosaic_gpu  # noqa: F401

    device = jax.devices()[0]
    arch = str(getattr(device, "compute_capability", device.platform))
    answer: dict[str, Any] = {"name": str(device.device_kind), "arch": arch, "outputs": []}
    kernel = export.deserialize(bytearray(exported))
    call = jax.jit(kernel.call)
    for i, files in enumerate(sets):
        arrays = [load(Path(file)) for file in files]
        if [(a.shape, a.dtype) for a in arrays] != [(a.shape, a.dtype) for a in kernel.in_avals]:
            return _say({"unusable": "it takes other operands than it was given"})
        operands = [jax.device_put(array, device) for array in arrays]
        try:
            outputs = [np.asarray(o) for o in jax.tree.leaves(jax.block_until_ready(call(*operands)))]
        except Exception as e:
            why = _line(e)
            return _say({"unusable": why} if _FULL in why else {**answer, "fault": why})
        names = [f"{i}-{n}.{array.dtype.name}.npy" for n, array in enumerate(outputs)]
        for name, array in zip(names, outputs, strict=True):
            np.save(name, np.ascontiguousarray(stored(array)).reshape(array.shape), allow_pickle=False)
        answer["outputs"].append(names)
    # What follows takes none of it back.
    _say(answer)
    if timed and sets:
        first = [jax.device_put(load(Path(file)), device) for file in sets[0]]
        # Each run is over before the next begins.
        _say({**answer, "seconds": _seconds(call, lambda: jax.block_until_ready(call(*first)), first)})


def _seconds(call: Callable[..., Any], once: Callable[[], Any], operands: Sequence[Any]) -> float:
    """What a run takes: on the GPU alone where its profiler can be had, else by the clock. The least of some, since
    all that disturbs one makes it longer."""

    def clock() -> float:
        began = time.perf_counter()
        once()
        return time.perf_counter() - began

    runs = max(_FEWEST, min(_MOST, int(_TIMING / max(clock(), 1e-6))))
    try:
        from jax.experimental.mosaic.gpu import profiler

        _, milliseconds = profiler.measure(call, iterations=runs)(*operands)
        return float(min(milliseconds)) / 1000
    except Exception:
        # No CUPTI, or another profiler holds it.
        return min(clock() for _ in range(runs))


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"


if __name__ == "__main__":
    main()
