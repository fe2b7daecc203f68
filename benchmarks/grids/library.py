"""Question 5: what does the library itself cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from asyncout import DEFAULT, ORIGINAL, CopyPolicy, StepTimingCollector, stream
from benchmarks import loops, names, original
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.rows import Row
from benchmarks.workloads import WORKLOADS, Step

QUESTION = 5

FAST, PRESET, BASELINE = "asyncout, default", "asyncout, original preset", "original"
COLLECTING, OFF = "collecting", "outside a block"
SWITCH, GENERATOR, TORCH = "asyncout.stream", "generator", "torch.cuda.stream"

ENQUEUE = "enqueue"
GET = "get_output after arrival"
LATENCY = "result latency"
ON_DEVICE = "device time of the copies"
BEHIND_PRODUCTS = "output ready behind matrix products"
HELD = "enqueue behind 50 ms of work"
TIMING = "timing one step"
SWITCHING = "switching streams"

#: Policies whose outputs are compared with the original's.
POLICIES = {FAST: DEFAULT, PRESET: ORIGINAL}

#: The workload of the steps whose results are waited for.
LATENCY_WORKLOAD = "decode R=256 K=20"

#: Policies whose constructors are timed behind work, and the pairs that are compared. Only a
#: pageable copy of its own holds the host: the driver takes a batch of them at once.
HELD_POLICIES: dict[str, dict[str, str]] = {
    "pageable": {"memory": "pageable", "copies": "per_tensor"},
    "pageable, thread": {"memory": "pageable", "copies": "per_tensor", "submit": "thread"},
    "pageable, batched": {"memory": "pageable"},
    "pinned": {},
    "pinned, thread": {"submit": "thread"},
}
HELD_PAIRS = (
    ("pageable, thread", "pageable"),
    ("pageable, batched", "pageable"),
    ("pinned, thread", "pinned"),
)

#: Steps that a collector has timed before it is timed itself: their events are used again.
STEPS_BEFORE = 512

NAMES = (
    *names.OUTPUTS,
    *names.LATENCY_STEPS,
    *names.DEVICE_OUTPUTS,
    *names.BEHIND,
    names.ONE_STEP,
)
QUICK_NAMES = (
    *names.OUTPUTS_QUICK,
    *names.LATENCY_STEPS_QUICK,
    names.DEVICE_OUTPUTS[0],
    *names.BEHIND,
    names.ONE_STEP,
)
ARMS = {
    ENQUEUE: (BASELINE, *POLICIES),
    LATENCY: (BASELINE, *POLICIES),
    ON_DEVICE: (BASELINE, FAST),
    BEHIND_PRODUCTS: (BASELINE, *POLICIES),
    HELD: tuple(HELD_POLICIES),
    TIMING: (BASELINE, COLLECTING, OFF),
    SWITCHING: (GENERATOR, SWITCH, TORCH),
}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the cell of an output's workload, or those of step timing and of switching."""
    if name == names.ONE_STEP:
        yield _timing(device)
        yield _switching(device)
    elif name in names.LATENCY_STEPS:
        if not device.modelled:  # most of it is Python's own time, which is not in the model
            yield _latency(device, name)
    elif name in names.DEVICE_OUTPUTS:
        yield _on_device(device, name)
        yield _behind_products(device, name)
    elif name in names.BEHIND:
        yield _held(device, name)
    else:
        yield _outputs(device, name)


def _constructors(step: Step) -> dict[str, Callable[[Any], Any]]:
    """Give the ways to construct a step's output, after each has brought the right values."""
    constructors: dict[str, Callable[[Any], Any]] = {BASELINE: step.enqueue_original}
    for arm, policy in POLICIES.items():
        constructors[arm] = partial(step.enqueue, policy=policy)
    for construct in constructors.values():
        step.verify(construct(step.prepare()).get_output())
    return constructors


def _outputs(device: BenchDevice, name: str) -> Cell:
    step = WORKLOADS[name].build(device)
    constructors = _constructors(step)
    got = SecondValue(constructors)
    arms = {
        arm: got.arm(arm, partial(loops.enqueue_and_get, device, step, construct))
        for arm, construct in constructors.items()
    }
    return Cell(ENQUEUE, name, arms, partial(_output_rows, device, name, got))


def _latency(device: BenchDevice, name: str) -> Cell:
    step, seconds = WORKLOADS[LATENCY_WORKLOAD].build(device), names.LATENCY_STEPS[name]
    arms = {
        arm: partial(loops.result_latency, device, step, construct, seconds)
        for arm, construct in _constructors(step).items()
    }
    return Cell(LATENCY, name, arms, partial(_rows_of, LATENCY, name, tuple(POLICIES)))


def _output_rows(
    device: BenchDevice, name: str, got: SecondValue, enqueue: Samples
) -> Iterator[Row]:
    for arm in POLICIES:
        yield row(ENQUEUE, name, enqueue, arm, BASELINE)
        if not device.modelled:  # Python's own time is not in the model
            yield row(GET, name, got.samples(enqueue), arm, BASELINE)


def _base_step(device: BenchDevice, name: str) -> Step:
    return WORKLOADS[name.split(",")[0]].build(device)


def _on_device(device: BenchDevice, name: str) -> Cell:
    step = _base_step(device, name)
    constructors: dict[str, Callable[[Any], Any]] = {
        BASELINE: partial(step.enqueue_original, copy=device.main),
        FAST: partial(step.enqueue, policy=CopyPolicy(streams="single")),
    }
    arms = {
        arm: partial(loops.copies_on_device, device, step, construct)
        for arm, construct in constructors.items()
    }
    return Cell(ON_DEVICE, name, arms, partial(_rows_of, ON_DEVICE, name, (FAST,)))


def _behind_products(device: BenchDevice, name: str) -> Cell:
    step = _base_step(device, name)
    arms = {
        arm: partial(loops.late_behind_products, device, step, construct)
        for arm, construct in _constructors(step).items()
    }
    return Cell(
        BEHIND_PRODUCTS, name, arms, partial(_rows_of, BEHIND_PRODUCTS, name, tuple(POLICIES))
    )


def _rows_of(metric: str, name: str, compared: Sequence[str], samples: Samples) -> Iterator[Row]:
    for arm in compared:
        yield row(metric, name, samples, arm, BASELINE)


def _held(device: BenchDevice, name: str) -> Cell:
    step, seconds = _base_step(device, name), names.BEHIND[name]
    arms = {}
    for arm, fields in HELD_POLICIES.items():
        policy = CopyPolicy(**fields)  # here: older commits have no `submit`
        construct = partial(step.enqueue, policy=policy)
        step.verify(construct(step.prepare()).get_output())
        arms[arm] = partial(loops.enqueue_behind, device, step, construct, seconds)
    return Cell(HELD, name, arms, partial(_held_rows, name))


def _held_rows(name: str, samples: Samples) -> Iterator[Row]:
    for arm, baseline in HELD_PAIRS:
        yield row(HELD, name, samples, arm, baseline)


def _timing(device: BenchDevice) -> Cell:
    collecting, idle = (StepTimingCollector(device.runtime) for _ in range(2))
    with collecting.collect():
        for _ in range(STEPS_BEFORE):
            _four_marks(collecting, None)
    # The block stays open for as long as the arm is there; nobody reads its samples.
    block = collecting.collect()
    block.__enter__()
    calls = {
        BASELINE: original.OriginalStepTiming(device.runtime).step,
        COLLECTING: partial(_four_marks, collecting, block),
        OFF: partial(_four_marks, idle, None),
    }
    arms = {arm: partial(loops.cold_call, device, call) for arm, call in calls.items()}
    return Cell(TIMING, names.ONE_STEP, arms, partial(_timing_rows, device))


def _four_marks(collector: StepTimingCollector, _open_block: Any) -> None:
    collector.forward_start()
    collector.forward_end()
    collector.drafter_start()
    collector.drafter_end()


def _timing_rows(device: BenchDevice, samples: Samples) -> Iterator[Row]:
    yield row(TIMING, names.ONE_STEP, samples, COLLECTING, BASELINE)
    if not device.modelled:  # Python's own time is not in the model
        yield row(TIMING, names.ONE_STEP, samples, OFF, COLLECTING)


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
    return Cell(SWITCHING, names.ONE_STEP, arms, _switching_rows)


def _enter_and_leave(make: Callable[[], Any]) -> None:
    with make():
        pass


def _switching_rows(samples: Samples) -> Iterator[Row]:
    for baseline in (GENERATOR, TORCH):
        if baseline in samples:
            yield row(SWITCHING, names.ONE_STEP, samples, SWITCH, baseline)
