"""Question 3: block, spin, or sleep and spin?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from asyncout import CopyPolicy
from asyncout.events import waiter_for
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.rows import Row
from benchmarks.workloads import WORKLOADS

QUESTION = 3

BLOCK, SPIN, HYBRID = "block", "spin", "hybrid"

WAKE_UP = "wake-up latency"
CPU_SHARE = "CPU burnt per wait"
LATE_WAKE_UP = "wake-up latency, 95th percentile"
JITTERED_CPU_SHARE = "CPU burnt per jittered wait"
BURST = "step time in bursts"
BURST_CPU_SHARE = "CPU burnt in bursts"

#: Waits after which the hybrid one knows its step; an engine's first steps are not its rule.
WAITS_TO_LEARN = 16

#: Most that a jittered wait differs from the mean, as a share of it.
JITTER = 0.1

#: Every arm waits for the same lengths, drawn from this seed.
SEED = 20_251_201

#: Steps of a burst, and what they bring to the host.
BURST_STEPS = 10
BURST_WORKLOAD = "decode R=256 K=20"

NAMES = (*names.WAITS, *names.VARIED_WAITS, *names.BURSTS)
QUICK_NAMES = (*names.WAITS_QUICK, *names.JITTERED_WAITS_QUICK, *names.BURSTS_QUICK)
ARMS = {
    WAKE_UP: (BLOCK, SPIN, HYBRID),
    LATE_WAKE_UP: (BLOCK, SPIN, HYBRID),
    BURST: (BLOCK, SPIN, HYBRID),
}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the one cell of a wait's length: single waits, batches of jittered ones, bursts."""
    if name in names.BURSTS:
        yield _burst(device, name)
        return
    shares = SecondValue((BLOCK, SPIN, HYBRID))
    arms = {}
    for wait in (BLOCK, SPIN, HYBRID):
        waiter = waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
        if name in names.VARIED_WAITS:
            lengths = _lengths(name)
            run = partial(loops.wait_often, device, waiter, lengths)
            loops.wait_often(device, waiter, lengths)
        else:
            run = partial(loops.wait_once, device, waiter, names.WAITS[name])
            for _ in range(WAITS_TO_LEARN if wait == HYBRID else 0):
                run()
        arms[wait] = shares.arm(wait, run)
    if name in names.VARIED_WAITS:
        rows = partial(_rows, name, shares, LATE_WAKE_UP, JITTERED_CPU_SHARE)
        yield Cell(LATE_WAKE_UP, name, arms, rows, is_batch=True)
    else:
        yield Cell(WAKE_UP, name, arms, partial(_rows, name, shares, WAKE_UP, CPU_SHARE))


def _burst(device: BenchDevice, name: str) -> Cell:
    shares = SecondValue((BLOCK, SPIN, HYBRID))
    step = WORKLOADS[BURST_WORKLOAD].build(device)
    launch = partial(device.busy, names.BURSTS[name])
    arms = {
        wait: shares.arm(
            wait, partial(loops.burst, device, step, CopyPolicy(wait=wait), launch, BURST_STEPS)
        )
        for wait in (BLOCK, SPIN, HYBRID)
    }
    return Cell(BURST, name, arms, partial(_rows, name, shares, BURST, BURST_CPU_SHARE))


def _lengths(name: str) -> list[float]:
    """Give the lengths of a sample's waits: with jitter, or some of them long."""
    count = loops.WAITS_IN_A_BATCH
    if name in names.PREFILL_WAITS:
        short, long = names.PREFILL_WAITS[name]
        return [long if place % names.PREFILL_EVERY == 0 else short for place in range(count)]
    mean, random = names.JITTERED_WAITS[name], np.random.default_rng(SEED)
    lengths: list[float] = (mean * random.uniform(1 - JITTER, 1 + JITTER, count)).tolist()
    return lengths


def _rows(
    name: str, shares: SecondValue, wake_up: str, cpu_share: str, late: Samples
) -> Iterator[Row]:
    burnt = shares.samples(late)
    for wait in (SPIN, HYBRID):
        yield row(wake_up, name, late, wait, BLOCK)
    for wait in (BLOCK, HYBRID):
        yield row(cpu_share, name, burnt, wait, SPIN)
