"""Question 1: one stream or two? Behind kernels that only take time, and behind real ones.

Real kernels, a decode step in a CUDA graph, share the device's memory with the copies;
what the two cost each other is in the exposed time there. Virtual kernels only take time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import sub, truediv
from statistics import median

from asyncout import CopyPolicy
from asyncout.events import waiter_for
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, row
from benchmarks.kernels import DecodeLoad
from benchmarks.rows import Row
from benchmarks.workloads import WORKLOADS

QUESTION = 1

ONE, TWO, BARE, ALONE = "one stream", "two streams", "no copy", "copy alone"

STEP_TIME = "step time"
EXPOSED_TIME = "exposed copy time"
EXPOSED_SHARE = "exposed share of the copy"

ARMS = {STEP_TIME: (ONE, TWO)}

NAMES = (*names.STREAMS, *names.STREAMS_REAL)
QUICK_NAMES = (*names.STREAMS_QUICK, *names.STREAMS_REAL_QUICK)

#: Kernel time of a step: a decode step of a small model on a large GPU.
COMPUTE_S = 2e-3

#: Steps in one sample: enough that filling and draining the pipeline is a small part.
STEPS = 10


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the one cell of a workload: both loops, the loop without copies, the copy alone."""
    workload = name.removesuffix(names.REAL_KERNELS)
    if workload == name:
        launch = partial(device.busy, COMPUTE_S)
    elif not device.modelled:
        launch = DecodeLoad(COMPUTE_S).captured()
    else:
        return
    step = WORKLOADS[workload].build(device)
    # Spinning, so that a late wake-up does not hide what the streams do.
    one = CopyPolicy(streams="single", wait="spin")
    two = CopyPolicy(streams="dual", wait="spin")
    for policy in (one, two):
        step.verify(step.enqueue(step.prepare(), policy).get_output())
    waiter = waiter_for(one, device.runtime, device.main.device)
    arms = {
        ONE: partial(loops.pipelined_step, device, step, one, launch, STEPS),
        TWO: partial(loops.pipelined_step, device, step, two, launch, STEPS),
        BARE: partial(loops.bare_step, device, waiter, launch, STEPS),
        ALONE: partial(loops.copy_alone, device, step, one),
    }
    yield Cell(STEP_TIME, name, arms, partial(_rows, name))


def _rows(name: str, samples: Samples) -> Iterator[Row]:
    without, alone = median(samples[BARE]), median(samples[ALONE])
    bound = max(without, alone) / (without + alone)
    yield row(STEP_TIME, name, samples, TWO, ONE, bound)

    exposed = {arm: tuple(map(sub, samples[arm], samples[BARE])) for arm in (ONE, TWO)}
    yield row(EXPOSED_TIME, name, exposed, TWO, ONE)
    shares = {arm: tuple(map(truediv, exposed[arm], samples[ALONE])) for arm in (ONE, TWO)}
    yield row(EXPOSED_SHARE, name, shares, TWO, ONE)
