"""What the virtual device says a technique saves, along one axis: the curves of the model.

Everything here is computed in virtual time from a cost profile; nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch

from asyncout import AsyncPoolingOutput, CopyPolicy, ModelRunnerOutput
from asyncout.events import waiter_for
from asyncout.virtual import CostProfile, VirtualMachine
from benchmarks import loops, names
from benchmarks.devices import VirtualDevice
from benchmarks.grids import factorial

#: Bytes of the outputs and copies along a curve: powers of two from 4 KiB to 256 MiB.
SIZES = tuple(4 << 10 << power for power in range(17))

#: Kernel times of the steps that curves are drawn for, seconds: a host-bound step, a small
#: model's, the measured one, a large model's.
STEPS_S = (0.1e-3, 0.5e-3, 2e-3, 10e-3)

#: Bytes of a step's output along a curve of question 4's loops: from its smallest workload's
#: to its largest one's.
OUTPUT_SIZES = tuple(8 << 2 * power for power in range(13))

#: Lengths of waits along a curve, seconds.
WAITS_S = (0.1e-3, 0.2e-3, 0.5e-3, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3)

#: Steps of one loop: enough that filling and draining the pipeline is a small part.
STEPS = 10

#: Waits after which the hybrid one knows its step.
WAITS_TO_LEARN = 16


@dataclass(frozen=True)
class Curve:
    """A modelled curve.

    Attributes
    ----------
    label : str
    x : tuple of float
        In the axis's unit: seconds or bytes.
    saved : tuple of float
        Share of the time saved at each x; below zero it costs.
    """

    label: str
    x: tuple[float, ...]
    saved: tuple[float, ...]

    def crossings(self, share: float) -> list[float]:
        """List each x at which the curve crosses `share`, between its points.

        Interpolated on a logarithmic x.
        """
        found = []
        for (x0, y0), (x1, y1) in pairwise(zip(self.x, self.saved, strict=True)):
            if (y0 < share) != (y1 < share):
                found.append(float(x0 * (x1 / x0) ** ((share - y0) / (y1 - y0))))
        return found


class SizedStep:
    """A step whose output is so many bytes, a tensor a request; nobody reads what they are.

    Parameters
    ----------
    device : VirtualDevice
    num_bytes : int
        Of all tensors together, at least one of each.
    tensors : int
    """

    def __init__(self, device: VirtualDevice, num_bytes: int, tensors: int = 1) -> None:
        self.num_bytes = num_bytes
        self._device = device
        small, more = divmod(num_bytes, tensors)
        self._outputs: list[torch.Tensor | None] = [
            device.machine.empty((small + (place < more),), torch.uint8) for place in range(tensors)
        ]
        self._names = [f"request-{place}" for place in range(tensors)]

    def prepare(self) -> ModelRunnerOutput:
        """Make a fresh object to fill in."""
        return ModelRunnerOutput(req_ids=self._names, req_id_to_index={})

    def enqueue(self, runner_output: ModelRunnerOutput, policy: CopyPolicy) -> Any:
        """Construct the library's output."""
        main, copy = self._device.main, self._device.copy
        finished = [True] * len(self._outputs)
        return AsyncPoolingOutput(runner_output, self._outputs, finished, main, copy, policy=policy)

    def enqueue_original(self, runner_output: ModelRunnerOutput) -> Any:
        """There is none: a curve compares the library's policies."""
        raise TypeError("the original's output is no part of any curve")

    def verify(self, result: ModelRunnerOutput) -> None:
        """Do nothing: only times matter here."""


def step_label(seconds: float) -> str:
    """Name the curve of a step length."""
    return f"{seconds * 1e3:g} ms step"


def second_stream(profile: CostProfile) -> list[Curve]:
    """Model what a second stream saves of a step, by the copy's own time, for each step length."""
    one, two = (CopyPolicy(streams=streams, wait="spin") for streams in ("single", "dual"))
    alone: list[float] = []
    saved: dict[float, list[float]] = {seconds: [] for seconds in STEPS_S}
    for size in SIZES:
        device = VirtualDevice(VirtualMachine(profile))
        step = SizedStep(device, size)
        with device.times_only():
            alone.append(loops.copy_alone(device, step, one))
            for seconds in STEPS_S:
                launch = partial(device.busy, seconds)
                slow, fast = (
                    loops.pipelined_step(device, step, policy, launch, STEPS)
                    for policy in (one, two)
                )
                saved[seconds].append(1 - fast / slow)
    return [Curve(step_label(seconds), tuple(alone), tuple(saved[seconds])) for seconds in STEPS_S]


def pinned_memory(profile: CostProfile) -> list[Curve]:
    """Model what pinned memory saves of a step, by its output's size, for each step length.

    The output is one tensor; the loop and the average over policies are those of
    :func:`step_by_memory`.
    """
    curves = []
    for seconds in names.STEP_LENGTHS.values():
        times = [step_by_memory(profile, size, 1, seconds) for size in OUTPUT_SIZES]
        saved = tuple(1 - pinned / pageable for pinned, pageable in times)
        curves.append(Curve(step_label(seconds), tuple(map(float, OUTPUT_SIZES)), saved))
    return curves


@cache
def step_by_memory(
    profile: CostProfile, num_bytes: int, tensors: int, seconds: float
) -> tuple[float, float]:
    """Model a pipelined step of question 4 with pinned memory, and with pageable.

    Parameters
    ----------
    profile : CostProfile
    num_bytes, tensors : int
        What a step brings to the host.
    seconds : float
        Of its kernels.

    Returns
    -------
    (float, float)
        Geometric means over the policies with that memory: all levels of the other axes, as in
        the measured rows, in loops of as many steps.
    """
    device = VirtualDevice(VirtualMachine(profile))
    device.machine.moves_up_to = 0  # only times matter: no bytes are moved
    step = SizedStep(device, num_bytes, tensors)
    launch, steps = partial(device.busy, seconds), factorial.steps_of_sample(seconds)
    samples = {}
    for arm, policy in factorial.POLICIES.items():
        run = partial(loops.pipelined_step, device, step, policy, launch, steps)
        if policy.wait == "hybrid":
            run()  # as the measured loops: it has learned its step
        samples[arm] = (run(),)
    pinned, pageable = (
        factorial.mean_at(samples, {"memory": memory})[0] for memory in ("pinned", "pageable")
    )
    return pinned, pageable


def not_blocking(profile: CostProfile) -> list[Curve]:
    """Model what spinning and the hybrid wait save of a step that is waited for."""
    total: dict[str, list[float]] = {"block": [], "spin": [], "hybrid": []}
    for wait, times in total.items():
        for seconds in WAITS_S:
            device = VirtualDevice(VirtualMachine(profile))
            waiter = waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
            for _ in range(WAITS_TO_LEARN):
                late, _ = loops.wait_once(device, waiter, seconds)
            times.append(seconds + late)
    return [
        Curve(
            wait,
            WAITS_S,
            tuple(1 - a / b for a, b in zip(total[wait], total["block"], strict=True)),
        )
        for wait in ("spin", "hybrid")
    ]
