"""The suites' loops on the virtual device, under whatever profile is being tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch

from asyncout import CopyPolicy
from asyncout.events import waiter_for
from asyncout.virtual import CostProfile
from benchmarks import loops, names
from benchmarks.devices import virtual_device
from benchmarks.grids import factorial, library, memory, streams, waits
from benchmarks.workloads import WORKLOADS, Step

#: Policies of the arms of question 1, as its grid has them.
STREAM_POLICIES = {
    streams.ONE: CopyPolicy(streams="single", wait="spin"),
    streams.TWO: CopyPolicy(streams="dual", wait="spin"),
}

#: Runs before the one that counts: events and blocks are there, the hybrid wait has learned.
WARMUP_RUNS = 3


class Twin:
    """A virtual device with the suites' workloads, built when they are first asked for."""

    def __init__(self) -> None:
        self._device = virtual_device()
        self._launch = partial(self._device.busy, streams.COMPUTE_S)
        self.step_of = cache(self._build)
        self._source_of = cache(self._make_source)

    def _build(self, workload: str) -> Step:
        return WORKLOADS[workload].build(self._device)

    def _make_source(self, size: str) -> torch.Tensor:
        return self._device.tensor(torch.zeros(names.SIZES[size], dtype=torch.uint8))

    @contextmanager
    def under(self, profile: CostProfile) -> Iterator[Twin]:
        """Let everything cost what a profile says, inside this block."""
        machine = self._device.machine
        before, machine.profile = machine.profile, profile
        try:
            with self._device.times_only():
                yield self
        finally:
            machine.profile = before

    def step_time(self, workload: str, arm: str) -> float:
        """Question 1: the time of a pipelined step."""
        run = partial(
            loops.pipelined_step,
            self._device,
            self.step_of(workload),
            STREAM_POLICIES[arm],
            self._launch,
            streams.STEPS,
        )
        run()
        return run()

    def bare_step(self) -> float:
        """Question 1: the same loop without any output."""
        waiter = waiter_for(
            STREAM_POLICIES[streams.ONE], self._device.runtime, self._device.main.device
        )
        run = partial(loops.bare_step, self._device, waiter, self._launch, streams.STEPS)
        run()
        return run()

    def copies_alone(self, workload: str) -> float:
        """Question 1: the device time of a workload's copies."""
        return loops.copy_alone(self._device, self.step_of(workload), STREAM_POLICIES[streams.ONE])

    def copy_time(self, size: str, kind: str) -> float:
        """Question 2: from a copy's call until its bytes are there."""
        copy = partial(memory.COPIES[kind], self._source_of(size))
        return loops.copy_and_wait(self._device, copy)

    def late(self, length: str, wait: str) -> float:
        """Question 3: how late a waiting thread is back."""
        return self._wait(length, wait)[0]

    def burnt(self, length: str, wait: str) -> float:
        """Question 3: CPU time of a wait over its wall time."""
        return self._wait(length, wait)[1]

    def _wait(self, length: str, wait: str) -> tuple[float, float]:
        waiter = waiter_for(CopyPolicy(wait=wait), self._device.runtime, self._device.main.device)
        run = partial(loops.wait_once, self._device, waiter, names.WAITS[length])
        for _ in range(waits.WAITS_TO_LEARN if wait == waits.HYBRID else 0):
            run()
        return run()

    def policy_step(self, block: str, arm: str) -> float:
        """Question 4: the time of a step of a block's loop under a policy."""
        workload, loop, length = names.block_parts(block)
        seconds = names.STEP_LENGTHS[length]
        run = partial(
            factorial.LOOPS[loop],
            self._device,
            self.step_of(workload),
            factorial.POLICIES[arm],
            partial(self._device.busy, seconds),
            factorial.steps_of_sample(seconds),
        )
        run()  # as the measured loops: events and blocks are there, the hybrid wait has learned
        return run()

    def enqueue(self, workload: str, arm: str) -> float:
        """Question 5: host time to construct an output."""
        step = self.step_of(workload)
        construct = partial(step.enqueue, policy=library.POLICIES[arm])
        for _ in range(WARMUP_RUNS):
            loops.enqueue_and_get(self._device, step, construct)
        return loops.enqueue_and_get(self._device, step, construct)[0]

    def latency(self, name: str, arm: str) -> float:
        """Question 5: from a step's last byte on the host to its lists in hand."""
        step = self.step_of(library.LATENCY_WORKLOAD)
        construct = partial(step.enqueue, policy=library.POLICIES[arm])
        run = partial(
            loops.result_latency, self._device, step, construct, names.LATENCY_STEPS[name]
        )
        for _ in range(waits.WAITS_TO_LEARN):
            run()
        return run()
