"""Question 3: block, spin, or sleep and spin?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from asyncout import CopyPolicy
from asyncout.events import waiter_for
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.suite import Row

QUESTION = 3

BLOCK, SPIN, HYBRID = "block", "spin", "hybrid"

WAKE_UP = "wake-up latency"
CPU_SHARE = "CPU burnt per wait"

#: Waits after which the hybrid one knows its step; an engine's first steps are not its rule.
WAITS_TO_LEARN = 16

NAMES, QUICK_NAMES = tuple(names.WAITS), names.WAITS_QUICK
ARMS = {WAKE_UP: (BLOCK, SPIN, HYBRID)}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the one cell of a wait's length."""
    shares = SecondValue((BLOCK, SPIN, HYBRID))
    arms = {}
    for wait in (BLOCK, SPIN, HYBRID):
        waiter = waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
        run = partial(loops.wait_once, device, waiter, names.WAITS[name])
        for _ in range(WAITS_TO_LEARN if wait == HYBRID else 0):
            run()
        arms[wait] = shares.arm(wait, run)
    yield Cell(WAKE_UP, name, arms, partial(_rows, name, shares))


def _rows(name: str, shares: SecondValue, late: Samples) -> Iterator[Row]:
    burnt = shares.samples(late)
    for wait in (SPIN, HYBRID):
        yield row(WAKE_UP, name, late, wait, BLOCK)
    for wait in (BLOCK, HYBRID):
        yield row(CPU_SHARE, name, burnt, wait, SPIN)
