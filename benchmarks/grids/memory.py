"""Question 2: pinned or pageable?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from asyncout.transfer import copy_to_pageable, copy_to_pinned
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, row
from benchmarks.rows import Row

QUESTION = 2

PINNED, PAGEABLE = "pinned", "pageable"

COPY_TIME = "copy time"
HOST_HELD = "host held by the call"

NAMES, QUICK_NAMES = tuple(names.SIZES), names.SIZES_QUICK

#: Largest size of modelled rows: the model is linear up to new memory, and simulating moves the
#: real bytes.
LARGEST_MODELLED = 16 << 20

COPIES = {PINNED: copy_to_pinned, PAGEABLE: copy_to_pageable}
LOOPS = {COPY_TIME: loops.copy_and_wait, HOST_HELD: loops.copy_call_behind_work}
ARMS = {metric: tuple(COPIES) for metric in LOOPS}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the two cells of a size."""
    if device.modelled and names.SIZES[name] > LARGEST_MODELLED:
        return
    host = torch.randint(0, 256, (names.SIZES[name],), dtype=torch.uint8)
    source = device.tensor(host)
    for kind, copy in COPIES.items():
        arrived = copy(source)
        device.synchronize()
        if device.runtime.is_pinned(arrived) != (kind == PINNED) or not torch.equal(arrived, host):
            raise AssertionError(f"{name}: the {kind} copy is not {kind}, or its bytes are wrong")
    for metric, loop in LOOPS.items():
        arms = {k: partial(loop, device, partial(copy, source)) for k, copy in COPIES.items()}
        yield Cell(metric, name, arms, partial(_rows, metric, name))


def _rows(metric: str, name: str, samples: Samples) -> Iterator[Row]:
    yield row(metric, name, samples, PINNED, PAGEABLE)
