"""What an arm of a comparison runs: each function gives one sample, in seconds.

All run on any :class:`~benchmarks.devices.BenchDevice`. Where the host's time is
measured, the code is cold, as in an engine: the thread has slept before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from asyncout import CopyPolicy
from asyncout.events import Waiter
from benchmarks.devices import BenchDevice
from benchmarks.measure import percentile, samples_for_percentile
from benchmarks.workloads import Step

#: Kernel time between two cold calls: an engine's step is a millisecond or more.
COLD_GAP_S = 1e-3

#: Kernels in front of what events time: longer than the host needs to enqueue it.
BACKLOG_S = 1e-3

#: Matrix products before a step's end and behind it: before, so that the output is constructed
#: while they run; behind, so that they run for as long as any copy of it.
PRODUCTS_BEFORE = 2
PRODUCTS_BEHIND = 3

#: The percentile of many waits, and how many it takes.
LATE_PERCENTILE = 95
WAITS_IN_A_BATCH = samples_for_percentile(LATE_PERCENTILE)


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep the garbage collector out of a measured region."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def pipelined_step(
    device: BenchDevice, step: Step, policy: CopyPolicy, launch: Callable[[], Any], steps: int
) -> float:
    """Time a step of a loop that reads each output while the next step computes.

    Parameters
    ----------
    device : BenchDevice
    step : Step
    policy : CopyPolicy
    launch : callable
        Enqueues a step's kernels on the main stream.
    steps : int
        Steps in the loop.

    Returns
    -------
    float
        Mean time per step, from the first launch to the last output in hand.
    """
    pending = None
    device.synchronize()
    begin = device.clock()
    for _ in range(steps):
        launch()
        output = step.enqueue(step.prepare(), policy)
        if pending is not None:
            pending.get_output()
        pending = output
    pending.get_output()
    return (device.clock() - begin) / steps


def synchronous_step(
    device: BenchDevice, step: Step, policy: CopyPolicy, launch: Callable[[], Any], steps: int
) -> float:
    """Time a step of a loop that reads each output before it launches the next step.

    Parameters and result as of :func:`pipelined_step`.
    """
    device.synchronize()
    begin = device.clock()
    for _ in range(steps):
        launch()
        step.enqueue(step.prepare(), policy).get_output()
    return (device.clock() - begin) / steps


def burst(
    device: BenchDevice, step: Step, policy: CopyPolicy, launch: Callable[[], Any], steps: int
) -> tuple[float, float]:
    """Run a pipelined loop behind an idle device, as an engine that had nothing to do.

    Returns
    -------
    (float, float)
        Step time as of :func:`pipelined_step`; the thread's CPU time over the loop's time.
    """
    device.synchronize()
    device.idle(COLD_GAP_S)
    begin = device.cpu_clock()
    seconds = pipelined_step(device, step, policy, launch, steps)
    return seconds, (device.cpu_clock() - begin) / (seconds * steps)


def ready_beside(
    device: BenchDevice,
    step: Step,
    construct: Callable[[Any], Any],
    offload: Callable[[], None],
) -> float:
    """Time from a step's end to its output on the host, with an offload under way.

    Parameters
    ----------
    offload : callable
        Enqueues large copies on a stream of their own; they begin before the step ends.
    """
    runner_output = step.prepare()
    done, there = device.event(), device.event()
    device.synchronize()
    device.busy(BACKLOG_S)
    done.record(device.main)
    offload()
    output = construct(runner_output)
    there.record(device.copy)
    output.get_output()
    there.synchronize()
    device.synchronize()
    return done.elapsed_time(there) * 1e-3


def bare_step(device: BenchDevice, waiter: Waiter, launch: Callable[[], Any], steps: int) -> float:
    """Time a step of the same loop without any output: kernels, events and waits only."""
    pending = None
    device.synchronize()
    begin = device.clock()
    for _ in range(steps):
        launch()
        event = waiter.record(device.main)
        if pending is not None:
            waiter.wait(pending)
        pending = event
    waiter.wait(pending)
    return (device.clock() - begin) / steps


def copy_alone(device: BenchDevice, step: Step, policy: CopyPolicy) -> float:
    """Time a step's copies on the device, alone, behind a backlog.

    Parameters
    ----------
    policy : CopyPolicy
        With ``streams="single"``: the copies run between two events of one stream.
    """
    start, end = device.event(), device.event()
    device.synchronize()
    device.busy(BACKLOG_S)
    start.record(device.main)
    output = step.enqueue(step.prepare(), policy)
    end.record(device.main)
    output.get_output()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def go_cold(device: BenchDevice, gap_s: float = COLD_GAP_S) -> None:
    """Let the thread sleep behind kernels, as an engine's does between two steps."""
    device.busy(gap_s)
    event = device.runtime.new_event(blocking=True)
    event.record(device.main)
    event.synchronize()


def enqueue_and_get(
    device: BenchDevice, step: Step, construct: Callable[[Any], Any]
) -> tuple[float, float]:
    """Time the host's side of one output: its construction, and getting it after arrival.

    Parameters
    ----------
    construct : callable
        Makes the output from a fresh model runner output.

    Returns
    -------
    (float, float)
        Seconds in the constructor; seconds in ``get_output`` when all has arrived.
    """
    runner_output = step.prepare()
    go_cold(device)
    begin = device.clock()
    output = construct(runner_output)
    enqueued = device.clock() - begin
    device.synchronize()
    device.idle(COLD_GAP_S)
    begin = device.clock()
    output.get_output()
    # The output is dropped after the clock has stopped.
    return enqueued, device.clock() - begin


def result_latency(
    device: BenchDevice, step: Step, construct: Callable[[Any], Any], compute_s: float
) -> float:
    """Time from a step's last byte on the host to its lists in hand.

    The host's time from the step's launch to ``get_output``'s return, less the device's
    from the start of the kernels to the end of the copies. The launch itself, a few
    microseconds, is in it, as is the event behind the copies that ends the device's time.
    """
    runner_output = step.prepare()
    start, end = device.event(), device.event()
    device.synchronize()
    begin = device.clock()
    start.record(device.main)
    device.busy(compute_s)
    output = construct(runner_output)
    end.record(device.copy)
    output.get_output()
    back = device.clock()
    end.synchronize()
    return back - begin - start.elapsed_time(end) * 1e-3


def cold_call(device: BenchDevice, call: Callable[[], None]) -> float:
    """Time one call after the thread has slept."""
    go_cold(device)
    begin = device.clock()
    call()
    return device.clock() - begin


def wait_once(device: BenchDevice, waiter: Waiter, seconds: float) -> tuple[float, float]:
    """Wait for a kernel of known length and see how late the thread is back.

    Returns
    -------
    (float, float)
        Wake-up latency: time from the launch to the wait's return, less the kernel's
        device time; the launch itself, a few microseconds, is in it on both arms.
        CPU time of the wait over its wall time.
    """
    start, end = device.event(), device.event()
    device.synchronize()
    begin = device.clock()
    start.record(device.main)
    device.busy(seconds)
    end.record(device.main)
    event = waiter.record(device.main)
    wait_begin, cpu_begin = device.clock(), device.cpu_clock()
    waiter.wait(event)
    cpu, back = device.cpu_clock() - cpu_begin, device.clock()
    end.synchronize()
    late = back - begin - start.elapsed_time(end) * 1e-3
    return late, cpu / (back - wait_begin)


def wait_often(
    device: BenchDevice, waiter: Waiter, lengths: Sequence[float]
) -> tuple[float, float]:
    """Wait for kernels of several lengths in turn.

    Returns
    -------
    (float, float)
        95th percentile of the wake-up latencies; mean of the CPU shares, both as of
        :func:`wait_once`.
    """
    late, burnt = zip(*[wait_once(device, waiter, seconds) for seconds in lengths], strict=True)
    return percentile(late, LATE_PERCENTILE), sum(burnt) / len(burnt)


def copies_on_device(device: BenchDevice, step: Step, construct: Callable[[Any], Any]) -> float:
    """Time an output's copies on the device, behind a backlog.

    Parameters
    ----------
    construct : callable
        Makes the output with its copies on the main stream, where both events are.
    """
    runner_output = step.prepare()
    start, end = device.event(), device.event()
    device.synchronize()
    device.busy(BACKLOG_S)
    start.record(device.main)
    output = construct(runner_output)
    end.record(device.main)
    output.get_output()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def late_behind_products(device: BenchDevice, step: Step, construct: Callable[[Any], Any]) -> float:
    """Time from a step's end to its output on the host, with the main stream saturated.

    The next step's matrix products are enqueued behind the output; they fill every
    multiprocessor while the copies run.
    """
    runner_output = step.prepare()
    done, there = device.event(), device.event()
    device.synchronize()
    device.products(PRODUCTS_BEFORE)
    done.record(device.main)
    output = construct(runner_output)
    there.record(device.copy)
    device.products(PRODUCTS_BEHIND)
    output.get_output()
    there.synchronize()
    return done.elapsed_time(there) * 1e-3


def enqueue_behind(
    device: BenchDevice, step: Step, construct: Callable[[Any], Any], seconds: float
) -> float:
    """Time the constructor of an output whose copies have to wait for kernels."""
    runner_output = step.prepare()
    device.synchronize()
    device.busy(seconds)
    begin = device.clock()
    output = construct(runner_output)
    enqueued = device.clock() - begin
    output.get_output()
    return enqueued


def copy_and_wait(device: BenchDevice, copy: Callable[[], Any]) -> float:
    """Time one copy to the host from the call until the bytes are there."""
    event = device.runtime.new_event()
    device.synchronize()
    begin = device.clock()
    host = copy()
    event.record(device.main)
    event.synchronize()
    elapsed = device.clock() - begin
    del host
    return elapsed


def copy_call_behind_work(device: BenchDevice, copy: Callable[[], Any]) -> float:
    """Time only the call of a copy that has to wait for kernels: how long the host is held."""
    device.synchronize()
    device.busy(BACKLOG_S)
    begin = device.clock()
    host = copy()
    elapsed = device.clock() - begin
    device.synchronize()
    del host
    return elapsed
