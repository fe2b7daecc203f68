"""Short measurements: copies by size, what a call costs, how late and at what cost a wait ends.

They are for a model of this box, not for publication: a dozen runs each, medians, no
comparisons. The suites under ``benchmarks/`` are the measurement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from asyncout.doctor.box import Box
from asyncout.events import waiter_for
from asyncout.landing import Block
from asyncout.policy import AXES, CopyPolicy
from asyncout.transfer import copy_to_pageable
from asyncout.virtual.memory import NEW_FROM_BYTES

#: Bytes of one copy: from one that is all latency to one that is all bandwidth.
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)

#: Bytes that a small kernel touches.
KERNEL_SIZES = (4 << 10, 16 << 20)

#: Runs of each measurement: the median of so many is steady to a few percent.
RUNS = 15

#: Runs before those that count.
WARMUP_RUNS = 3

#: Kernel time ahead of what events time, seconds: longer than the host needs to enqueue it.
BACKLOG_S = 1e-3

#: Kernel time of a wait, seconds: a decode step of a small model.
WAIT_S = 2e-3

#: Waits after which the hybrid one knows its step.
WAITS_TO_LEARN = 16

#: Copies in a row whose calls are timed together: a step has several, and only the first is cold.
COPIES_IN_A_ROW = 8

#: Bytes of the copy and the host allocation whose calls are timed.
SMALL_BYTES = 4 << 10

#: Copies of a batch: a decode step's with logprobs. One or two would be calls of their own.
BATCH_COPIES = 6

#: Copies of two batches, far apart: what they take longer by is the copies' own.
BATCHES = (BATCH_COPIES, 8 * BATCH_COPIES)

#: Bytes of a copy into new memory: well above what an ordinary allocation takes from memory that
#: was written to before.
NEW_BYTES = 2 * NEW_FROM_BYTES

#: How long the sleeps are whose lateness is measured, seconds.
SLEEP_S = 1e-3

#: Seconds per copy or kernel, by its bytes; of a batch, by its copies.
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class WaitCost:
    """What one way to wait costs.

    Attributes
    ----------
    late_s : float
        From the device's completion to the waiting thread's return.
    cpu_s : float
        CPU time of the wait.
    cpu_share : float
        The same over the wait's wall time.
    """

    late_s: float
    cpu_s: float
    cpu_share: float


@dataclass(frozen=True)
class Speeds:
    """What was measured, in seconds.

    Attributes
    ----------
    pinned_to_host, pinned_to_device : Points
        Device time of a copy; empty where copies hold the host whatever the memory.
    pageable_to_host, pageable_to_device : Points
        Time of the call, which lasts until the copy is done.
    new_memory_s : float
        Time of the call that copies :data:`NEW_BYTES` into pageable memory made for it.
    pageable_batches : Points
        Device time of a batch into pageable memory, of copies of :data:`SMALL_BYTES`.
    kernels : Points
        Device time of a small kernel.
    waits : dict of str to WaitCost
        By value of ``CopyPolicy.wait``.
    sleep_late_s : float
        How much longer than asked the host sleeps.
    pageable_batch_holds : bool
        Whether the batched call into pageable memory returns only when its copies are done.
    calls : dict of str to float
        Host time of one call of each kind, in a thread that has slept.
    """

    pinned_to_host: Points
    pinned_to_device: Points
    pageable_to_host: Points
    pageable_to_device: Points
    new_memory_s: float
    pageable_batches: Points
    kernels: Points
    waits: dict[str, WaitCost]
    sleep_late_s: float
    pageable_batch_holds: bool
    calls: dict[str, float]


def measure_speeds(box: Box, copies_hold: bool) -> Speeds:
    """Measure all of it.

    Parameters
    ----------
    box : Box
    copies_hold : bool
        Whether copies hold the host also where pinned memory was asked for: then there is
        nothing to be measured of pinned copies.
    """
    return Speeds(
        pinned_to_host=() if copies_hold else _by_size(box, partial(_down, pinned=True)),
        pinned_to_device=() if copies_hold else _by_size(box, partial(_up, pinned=True)),
        pageable_to_host=_by_size(box, partial(_down, pinned=False)),
        pageable_to_device=_by_size(box, partial(_up, pinned=False)),
        new_memory_s=_repeat(_into_new_memory(box)),
        pageable_batches=_batches(box),
        kernels=_kernels(box),
        waits={wait: _wait_cost(box, wait) for wait in AXES["wait"]},
        sleep_late_s=_repeat(partial(_oversleep, box)),
        pageable_batch_holds=_batch_holds(box),
        calls=_calls(box, copies_hold),
    )


def _repeat(run: Callable[[], float]) -> float:
    for _ in range(WARMUP_RUNS):
        run()
    return median(run() for _ in range(RUNS))


# --- copies and kernels --------------------------------------------------------------------


def _by_size(box: Box, prepare: Callable[[Box, int], Callable[[], float]]) -> Points:
    return tuple((size, _repeat(prepare(box, size))) for size in SIZES)


def _down(box: Box, num_bytes: int, *, pinned: bool) -> Callable[[], float]:
    source = box.memory(num_bytes)
    host = box.runtime.empty_host((num_bytes,), torch.uint8, pinned)
    copy = partial(host.copy_, source, non_blocking=True)
    return partial(_device_time if pinned else _call_time, box, copy)


def _up(box: Box, num_bytes: int, *, pinned: bool) -> Callable[[], float]:
    target = box.memory(num_bytes)
    host = box.runtime.empty_host((num_bytes,), torch.uint8, pinned)
    host.zero_()  # pages that were never written are not there
    copy = partial(target.copy_, host, non_blocking=True)
    return partial(_device_time if pinned else _call_time, box, copy)


def _kernels(box: Box) -> Points:
    points = []
    for size in KERNEL_SIZES:
        memory = box.memory(size)
        points.append((size, _repeat(partial(_device_time, box, partial(memory.mul_, 1)))))
    return tuple(points)


def _device_time(box: Box, enqueue: Callable[[], Any]) -> float:
    """Time work on the device, behind a backlog, so that launch gaps stay out."""
    start, end = (box.runtime.new_event(timing=True) for _ in range(2))
    box.synchronize()
    box.busy(BACKLOG_S)
    start.record(box.main)
    enqueue()
    end.record(box.main)
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def _call_time(box: Box, call: Callable[[], Any]) -> float:
    """Time a call that returns when its work is done."""
    box.synchronize()
    begin = box.runtime.clock()
    call()
    return box.runtime.clock() - begin


def _into_new_memory(box: Box) -> Callable[[], float]:
    source = box.memory(NEW_BYTES)

    def copy() -> float:
        box.synchronize()
        begin = box.runtime.clock()
        host = copy_to_pageable(source)
        elapsed = box.runtime.clock() - begin
        del host  # given back to the system after the clock has stopped
        return elapsed

    return copy


def _batches(box: Box) -> Points:
    submit = box.runtime.submitter(None, box.main)
    points = []
    for copies in BATCHES:
        enqueue = partial(submit, *_pageable_batch(box, copies), None)
        points.append((copies, _repeat(partial(_device_time, box, enqueue))))
    return tuple(points)


def _pageable_batch(
    box: Box, copies: int
) -> tuple[list[torch.Tensor], list[int], list[int], Block]:
    """Give sources, sizes, offsets and a block of pageable memory for a batch of small copies."""
    num_bytes = copies * SMALL_BYTES
    return (
        [box.memory(SMALL_BYTES) for _ in range(copies)],
        [SMALL_BYTES] * copies,
        list(range(0, num_bytes, SMALL_BYTES)),
        Block(box.runtime.empty_host((num_bytes,), torch.uint8, False), deque()),
    )


def _batch_holds(box: Box) -> bool:
    """Enqueue a batch into pageable memory behind kernels: do they still run when it returns?"""
    batch = _pageable_batch(box, BATCH_COPIES)
    submit = box.runtime.submitter(box.main, box.copy)
    kernels_done, arrived = box.runtime.new_event(), box.runtime.new_pooled_event(box.main.device)
    for _ in range(WARMUP_RUNS + 1):  # the last one counts
        box.synchronize()
        box.busy(BACKLOG_S)
        kernels_done.record(box.main)
        submit(*batch, arrived)
        held = kernels_done.query()
        box.synchronize()
    return held


# --- waits ---------------------------------------------------------------------------------


def _wait_cost(box: Box, wait: str) -> WaitCost:
    waiter = waiter_for(CopyPolicy(wait=wait), box.runtime, box.main.device)
    for _ in range(WAITS_TO_LEARN):
        _wait_once(box, waiter)
    costs = [_wait_once(box, waiter) for _ in range(RUNS)]
    return WaitCost(
        late_s=median(cost.late_s for cost in costs),
        cpu_s=median(cost.cpu_s for cost in costs),
        cpu_share=median(cost.cpu_share for cost in costs),
    )


def _wait_once(box: Box, waiter: Any) -> WaitCost:
    start, end = (box.runtime.new_event(timing=True) for _ in range(2))
    clock = box.runtime.clock
    box.synchronize()
    start.record(box.main)  # passes at once: the device is idle
    begin = clock()
    box.busy(WAIT_S)
    end.record(box.main)
    event = waiter.record(box.main)
    wait_begin, cpu_begin = clock(), box.cpu_clock()
    waiter.wait(event)
    cpu, back = box.cpu_clock() - cpu_begin, clock()
    waiter.recycle(event)
    end.synchronize()
    late = back - begin - start.elapsed_time(end) * 1e-3
    return WaitCost(late, cpu, cpu / (back - wait_begin))


def _oversleep(box: Box) -> float:
    begin = box.runtime.clock()
    box.runtime.sleep(SLEEP_S)
    return box.runtime.clock() - begin - SLEEP_S


# --- calls ---------------------------------------------------------------------------------


def _calls(box: Box, copies_hold: bool) -> dict[str, float]:
    """Time one call of each kind, less what it costs to look at the clock."""
    runtime, event = box.runtime, box.runtime.new_event()
    event.record(box.main)
    source = box.memory(SMALL_BYTES)
    kinds: dict[str, tuple[Callable[[], Any], int]] = {
        "kernel": (partial(source.mul_, 1), 1),
        "host_allocation": (partial(runtime.empty_host, (SMALL_BYTES,), torch.uint8, True), 1),
        "new_event": (runtime.new_event, 1),
        "record": (partial(event.record, box.main), 1),
        "query": (event.query, 1),
        "wait_event": (partial(box.copy.wait_event, event), 1),
        "set_stream": (partial(runtime.set_stream, box.main), 1),
    }
    if not copies_hold:
        hosts = [
            runtime.empty_host((SMALL_BYTES,), torch.uint8, True) for _ in range(COPIES_IN_A_ROW)
        ]
        kinds["copy"] = (partial(_copy_all, source, hosts), COPIES_IN_A_ROW)
    nothing = _repeat(partial(_cold_call, box, _do_nothing))
    return {
        kind: max(0.0, _repeat(partial(_cold_call, box, call)) - nothing) / count
        for kind, (call, count) in kinds.items()
    }


def _cold_call(box: Box, call: Callable[[], Any]) -> float:
    """Time a call of a thread that has slept behind kernels, as an engine's does."""
    event = box.runtime.new_event(blocking=True)
    box.busy(BACKLOG_S)
    event.record(box.main)
    event.synchronize()
    begin = box.runtime.clock()
    result = call()
    elapsed = box.runtime.clock() - begin
    del result
    box.synchronize()
    return elapsed


def _copy_all(source: torch.Tensor, hosts: Sequence[torch.Tensor]) -> None:
    for host in hosts:
        host.copy_(source, non_blocking=True)


def _do_nothing() -> None:
    """Cost what looking at the clock costs."""
