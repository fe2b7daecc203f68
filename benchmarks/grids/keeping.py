"""Question 5: what does it cost to keep a step's tensors alive until they are copied?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from benchmarks import keeping, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, SecondValue, row
from benchmarks.keeping import Sources
from benchmarks.rows import Row

QUESTION = 5

HOST = "host time with new tensors"
STEP = "step with new tensors"
MEMORY = "device memory of new tensors"

KEPT, RECORDED = "kept references", "record_stream"

#: Steps' tensors that fit where memory is full: the next, the last and the one being read,
#: which is what kept references need one step behind.
ROOM = 3

NAMES = names.KEEPING
QUICK_NAMES = (names.SMALL_SOURCES, names.FULL_MEMORY)
ARMS = {HOST: (KEPT, RECORDED), STEP: (KEPT, RECORDED)}

SMALL = Sources(6, 8 << 10)
LARGE = Sources(1, 128 << 20)

#: Tensors of each workload, how many steps later it is read, and whether memory is full.
LOOPS = {
    names.SMALL_SOURCES: (SMALL, 1, False),
    names.LARGE_SOURCES: (LARGE, 1, False),
    names.LATE_READER: (LARGE, 4, False),
    names.FULL_MEMORY: (LARGE, 1, True),
}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the cells of a workload; virtual memory has no allocator."""
    if device.modelled:
        return
    sources, behind, is_full = LOOPS[name]
    room = ROOM * sources.tensors * sources.num_bytes
    with keeping.room_for(room) if is_full else nullcontext():
        second = SecondValue((KEPT, RECORDED))
        arms = {
            arm: second.arm(
                arm, partial(keeping.step_time, device, sources, arm == RECORDED, behind)
            )
            for arm in (KEPT, RECORDED)
        }
        yield Cell(STEP, name, arms, partial(_step_rows, name, second), is_batch=True)
    if name == names.SMALL_SOURCES:
        calls = {
            arm: partial(keeping.host_time, device, sources, arm == RECORDED)
            for arm in (KEPT, RECORDED)
        }
        yield Cell(HOST, name, calls, partial(_rows, HOST, name))


def _step_rows(name: str, second: SecondValue, samples: Samples) -> Iterator[Row]:
    yield from _rows(STEP, name, samples)
    yield from _rows(MEMORY, name, second.samples(samples))


def _rows(metric: str, name: str, samples: Samples) -> Iterator[Row]:
    yield row(metric, name, samples, RECORDED, KEPT)
