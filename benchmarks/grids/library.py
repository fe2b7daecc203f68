"""Question 5: what does the library itself cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from asyncout import ORIGINAL, StepTimingCollector, stream
from benchmarks import loops, original
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.suite import Row
from benchmarks.workloads import WORKLOADS

QUESTION = 5

PRESET, BASELINE = "asyncout, original preset", "original"
COLLECTING, OFF = "collecting", "outside a block"
SWITCH, GENERATOR, TORCH = "asyncout.stream", "generator", "torch.cuda.stream"

ENQUEUE = "enqueue"
GET = "get_output after arrival"
TIMING = "timing one step"
SWITCHING = "switching streams"

#: Policies whose outputs are compared with the original's.
POLICIES = {PRESET: ORIGINAL}

OUTPUTS = (
    "decode R=1 K=0",
    "decode R=256 K=20",
    "decode R=1024 K=0",
    "speculative R=1024 W=4 K=0",
    "sampling masks R=256",
    "prompt logprobs 16 x 1024",
)

#: The one workload of what does not depend on one.
ONE_STEP = "one step"

NAMES = (*OUTPUTS, ONE_STEP)
QUICK_NAMES = ("decode R=1 K=0", "decode R=256 K=20", "prompt logprobs 16 x 1024", ONE_STEP)
ARMS = {
    ENQUEUE: (BASELINE, *POLICIES),
    TIMING: (BASELINE, COLLECTING, OFF),
    SWITCHING: (GENERATOR, SWITCH, TORCH),
}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the cell of an output's workload, or those of step timing and of switching."""
    if name == ONE_STEP:
        yield _timing(device)
        yield _switching(device)
    else:
        yield _outputs(device, name)


def _outputs(device: BenchDevice, name: str) -> Cell:
    step = WORKLOADS[name].build(device)
    constructors: dict[str, Callable[[Any], Any]] = {BASELINE: step.enqueue_original}
    for arm, policy in POLICIES.items():
        constructors[arm] = partial(step.enqueue, policy=policy)
    got = SecondValue(constructors)
    arms = {}
    for arm, construct in constructors.items():
        step.verify(construct(step.prepare()).get_output())
        arms[arm] = got.arm(arm, partial(loops.enqueue_and_get, device, step, construct))
    return Cell(ENQUEUE, name, arms, partial(_output_rows, device, name, got))


def _output_rows(
    device: BenchDevice, name: str, got: SecondValue, enqueue: Samples
) -> Iterator[Row]:
    for arm in POLICIES:
        yield row(ENQUEUE, name, enqueue, arm, BASELINE)
        if not device.modelled:  # Python's own time is not in the model
            yield row(GET, name, got.samples(enqueue), arm, BASELINE)


def _timing(device: BenchDevice) -> Cell:
    collecting, idle = (StepTimingCollector(device.runtime) for _ in range(2))
    # The block stays open for as long as the arm is there; nobody reads its samples.
    block = collecting.collect()
    block.__enter__()
    calls = {
        BASELINE: original.OriginalStepTiming(device.runtime).step,
        COLLECTING: partial(_four_marks, collecting, block),
        OFF: partial(_four_marks, idle, None),
    }
    arms = {arm: partial(loops.cold_call, device, call) for arm, call in calls.items()}
    return Cell(TIMING, ONE_STEP, arms, partial(_timing_rows, device))


def _four_marks(collector: StepTimingCollector, _open_block: Any) -> None:
    collector.forward_start()
    collector.forward_end()
    collector.drafter_start()
    collector.drafter_end()


def _timing_rows(device: BenchDevice, samples: Samples) -> Iterator[Row]:
    yield row(TIMING, ONE_STEP, samples, COLLECTING, BASELINE)
    if not device.modelled:  # Python's own time is not in the model
        yield row(TIMING, ONE_STEP, samples, OFF, COLLECTING)


def _switching(device: BenchDevice) -> Cell:
    main, copy = device.main, device.copy
    switches: dict[str, Callable[[], Any]] = {
        SWITCH: lambda: stream(copy, main),
        GENERATOR: lambda: original.stream(device.runtime, copy, main),
    }
    if not device.modelled:  # torch's own knows CUDA streams only
        switches[TORCH] = lambda: torch.cuda.stream(copy)  # type: ignore[arg-type]
    arms = {
        name: partial(loops.cold_call, device, partial(_enter_and_leave, make))
        for name, make in switches.items()
    }
    return Cell(SWITCHING, ONE_STEP, arms, _switching_rows)


def _enter_and_leave(make: Callable[[], Any]) -> None:
    with make():
        pass


def _switching_rows(samples: Samples) -> Iterator[Row]:
    for baseline in (GENERATOR, TORCH):
        if baseline in samples:
            yield row(SWITCHING, ONE_STEP, samples, SWITCH, baseline)
