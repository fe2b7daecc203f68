"""Question 3, beside the waiting thread: others that launch, compute and wait; loaded cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from asyncout import CopyPolicy
from asyncout.events import Waiter, waiter_for
from benchmarks import loops, names, neighbours
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.grids.waits import BLOCK, HYBRID, SPIN, WAITS_TO_LEARN
from benchmarks.rows import Row

QUESTION = 3

POLL = "query loop"

LAUNCH = "neighbour's launch"
LATE_LAUNCH = "neighbour's launch, 99th percentile"
ROUND = "neighbour's computation"
LATEST = "wake-up of the last of 4 threads"
LOADED = "wake-up latency, all cores busy"

#: Threads that wait at once.
THREADS = 4

WAIT_S = 20e-3
SHORT_WAIT_S = 5e-3

NAMES = names.NEIGHBOURS
QUICK_NAMES = names.NEIGHBOURS[:2]
ARMS = {
    LAUNCH: (BLOCK, SPIN, HYBRID, POLL),
    ROUND: (BLOCK, SPIN, HYBRID, POLL),
    LATEST: (BLOCK, SPIN, HYBRID),
    LOADED: (BLOCK, SPIN, HYBRID),
}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the cell of one kind of neighbour; virtual time has none."""
    if device.modelled:
        return
    if name == names.LAUNCHING:
        yield _launching(device, name)
    elif name == names.COMPUTING:
        arms = {
            wait: partial(neighbours.round_time, device, waiter, WAIT_S)
            for wait, waiter in _waiters(device, with_poll=True).items()
        }
        yield Cell(ROUND, name, arms, partial(_rows, ROUND, name), is_batch=True)
    elif name == names.WAITING:
        arms = {
            wait: partial(
                neighbours.latest_of_many, device, _one_waiter(device, wait), SHORT_WAIT_S, THREADS
            )
            for wait in (BLOCK, SPIN, HYBRID)
        }
        yield Cell(LATEST, name, arms, partial(_rows, LATEST, name))
    else:
        arms = {
            wait: partial(_late, device, waiter)
            for wait, waiter in _waiters(device, with_poll=False).items()
        }
        with neighbours.busy_cores():
            yield Cell(LOADED, name, arms, partial(_rows, LOADED, name))


def _launching(device: BenchDevice, name: str) -> Cell:
    late = SecondValue((BLOCK, SPIN, HYBRID, POLL))
    stream: Any = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        counter = torch.zeros(1, device="cuda")

    def launch() -> None:
        with torch.cuda.stream(stream):
            counter.add_(1)

    arms = {
        wait: late.arm(wait, partial(neighbours.launch_latency, device, waiter, WAIT_S, launch))
        for wait, waiter in _waiters(device, with_poll=True).items()
    }
    return Cell(LAUNCH, name, arms, partial(_launch_rows, name, late), is_batch=True)


def _launch_rows(name: str, late: SecondValue, samples: Samples) -> Iterator[Row]:
    yield from _rows(LAUNCH, name, samples)
    yield from _rows(LATE_LAUNCH, name, late.samples(samples))


def _rows(metric: str, name: str, samples: Samples) -> Iterator[Row]:
    for arm in samples:
        if arm != BLOCK:
            yield row(metric, name, samples, arm, BLOCK)


def _late(device: BenchDevice, waiter: Waiter) -> float:
    return loops.wait_once(device, waiter, SHORT_WAIT_S)[0]


def _waiters(device: BenchDevice, with_poll: bool) -> dict[str, Waiter]:
    waiters: dict[str, Any] = {}
    for wait in (BLOCK, SPIN, HYBRID):
        waiters[wait] = waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
        for _ in range(WAITS_TO_LEARN if wait == HYBRID else 0):
            loops.wait_once(device, waiters[wait], WAIT_S if with_poll else SHORT_WAIT_S)
    if with_poll:
        waiters[POLL] = neighbours.PollingWait(device)
    return waiters


def _one_waiter(device: BenchDevice, wait: str) -> Callable[[], Waiter]:
    """Give waiters in turn, each of which has waited before."""
    kept = [
        waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
        for _ in range(THREADS)
    ]
    for waiter in kept:
        for _ in range(WAITS_TO_LEARN if wait == HYBRID else 0):
            loops.wait_once(device, waiter, SHORT_WAIT_S)
    place = iter(range(1 << 60))
    return lambda: kept[next(place) % THREADS]
