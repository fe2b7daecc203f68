"""The process that has one commit's library: runs samples when it is asked to.

Started in the commit's environment by :mod:`benchmarks.gate.dialogue`. Reads one JSON
object a line and answers each with one. Between two questions it sleeps on its input,
with the GPU idle, so that the other commit's worker is alone while it runs.

Questions
---------
``{"do": "greet", "device": "auto" | "gpu" | "virtual"}``
    Answers what it runs on: ``device``, ``modelled``, ``library``, ``torch``.
``{"do": "settle", "cpu": n or null, "cycles_per_second": c or null}``
    Keeps to that processor and to that pace of kernels, which is measured where none is
    given; answers ``cycles_per_second``.
``{"do": "open", "probe": n}``
    Builds the probe with that index in the catalogue, verifies what arrives, runs it twice.
``{"do": "visit", "probe": n, "warm": w, "counted": c}``
    Runs it w + c times; answers ``values``: the median of the c for each metric.
``{"do": "close", "probe": n}``
    Lets go of it.

Each answer has ``ok``. Otherwise it has ``error``, and ``lacking`` says whether the
library of this commit lacks the feature.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from statistics import median
from typing import Any, TextIO

from benchmarks.gate.catalogue import PROBES
from benchmarks.lacking import is_lack

#: Answer of :func:`main` when its input ends: the gate is gone or needs it no more.
DONE = 0


class Worker:
    """Answers questions; the methods without underscore are those that can be asked."""

    def __init__(self) -> None:
        self._device: Any = None
        self._samplers: dict[int, Callable[[], tuple[float, ...]]] = {}

    def greet(self, device: str) -> dict[str, Any]:
        """Take a device and say which it is."""
        import torch

        import asyncout
        from benchmarks import devices

        if device == "virtual" or (device == "auto" and not torch.cuda.is_available()):
            self._device = devices.virtual_device()
        else:
            self._device = devices.cuda_device()
        modelled = self._device.modelled
        return {
            "device": "virtual device" if modelled else torch.cuda.get_device_name(),
            "modelled": modelled,
            "library": asyncout.__file__,
            "torch": torch.__version__,
        }

    def settle(self, cpu: int | None, cycles_per_second: float | None) -> dict[str, Any]:
        """Take the ground that both commits are measured on."""
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})  # this thread only: CUDA's own ones stay free
        if not self._device.modelled:
            self._device.cycles_per_second = cycles_per_second or self._device.calibrate()
            cycles_per_second = self._device.cycles_per_second
        return {"cycles_per_second": cycles_per_second}

    def open(self, probe: int) -> dict[str, Any]:
        """Build a probe, and rehearse a visit: what is lacking shows here."""
        from benchmarks.gate.probes import sampler_for

        self._samplers[probe] = sampler_for(PROBES[probe], self._device)
        self.visit(probe, warm=1, counted=1)
        return {}

    def visit(self, probe: int, warm: int, counted: int) -> dict[str, Any]:
        """Run a probe some times; the first ones, after the other worker's turn, do not count."""
        from benchmarks import devices, loops

        sample = self._samplers[probe]

        def region() -> list[tuple[float, ...]]:
            for _ in range(warm):
                sample()
            return [sample() for _ in range(counted)]

        with loops.no_collector(), self._device.times_only():
            samples = devices.without_allocations(self._device, region)
        self._device.synchronize()
        return {"values": [median(values) for values in zip(*samples, strict=True)]}

    def close(self, probe: int) -> dict[str, Any]:
        """Let go of a probe."""
        self._samplers.pop(probe, None)
        return {}


def answer(worker: Worker, question: dict[str, Any]) -> dict[str, Any]:
    """Answer one question; an error is an answer too."""
    arguments = dict(question)
    try:
        result = getattr(worker, arguments.pop("do"))(**arguments)
    except Exception as error:
        lacking = question["do"] in ("greet", "open") and is_lack(error)
        said = f"{type(error).__name__}: {error}"
        return {"ok": False, "error": said, "lacking": lacking}
    return {"ok": True, **result}


def main(questions: TextIO, answers: TextIO) -> int:
    """Answer questions until there are no more."""
    worker = Worker()
    for line in questions:
        answers.write(json.dumps(answer(worker, json.loads(line))) + "\n")
        answers.flush()
    return DONE


if __name__ == "__main__":
    # What a library prints must not come between the answers.
    _answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.exit(main(sys.stdin, _answers))
