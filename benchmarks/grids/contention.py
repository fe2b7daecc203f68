"""Question 6: what does a large KV offload do to a small output's copy, and chunks to that?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from asyncout import DEFAULT
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, row
from benchmarks.rows import Row
from benchmarks.workloads import WORKLOADS

QUESTION = 6

READY = "output ready beside an offload"

#: Bytes of an offload in one direction: some 1,000 blocks of a KV cache, 4.6 ms of the link.
OFFLOAD = 256 << 20

#: Bytes of a chunk: 40 µs of a PCIe 5 link, what an output may well be late.
CHUNK = 2 << 20

ALONE = "alone"
SAME, SAME_CHUNKED = "same direction", "same direction, chunked"
OTHER = "other direction"
BOTH, BOTH_CHUNKED = "both directions", "both directions, chunked"

#: Bytes to the host, bytes to the device, bytes of a chunk.
OFFLOADS = {
    ALONE: (0, 0, OFFLOAD),
    SAME: (OFFLOAD, 0, OFFLOAD),
    SAME_CHUNKED: (OFFLOAD, 0, CHUNK),
    OTHER: (0, OFFLOAD, OFFLOAD),
    BOTH: (OFFLOAD, OFFLOAD, OFFLOAD),
    BOTH_CHUNKED: (OFFLOAD, OFFLOAD, CHUNK),
}

#: What is compared with what.
PAIRS = (
    (SAME, ALONE),
    (OTHER, ALONE),
    (BOTH, ALONE),
    (SAME_CHUNKED, SAME),
    (BOTH_CHUNKED, BOTH),
)

NAMES = names.OFFLOADS
QUICK_NAMES = names.OFFLOADS[:1]
ARMS = {READY: tuple(OFFLOADS)}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the one cell of a workload."""
    step = WORKLOADS[name].build(device)
    construct = partial(step.enqueue, policy=DEFAULT)
    step.verify(construct(step.prepare()).get_output())
    arms: dict[str, Callable[[], float]] = {
        arm: partial(loops.ready_beside, device, step, construct, partial(device.offload, *parts))
        for arm, parts in OFFLOADS.items()
    }
    yield Cell(READY, name, arms, partial(_rows, name))


def _rows(name: str, samples: Samples) -> Iterator[Row]:
    for arm, baseline in PAIRS:
        yield row(READY, name, samples, arm, baseline)
