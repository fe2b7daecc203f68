"""What one thread's wait costs others: loops of question 3 that need real threads.

Virtual time has one host, so these run on a GPU only. Each function gives one sample.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from asyncout.events import Waiter
from benchmarks.devices import BenchDevice
from benchmarks.measure import percentile, samples_for_percentile

#: How many launches of a neighbour the 99th percentile of one wait needs.
LATE_PERCENTILE = 99
LEAST_LAUNCHES = samples_for_percentile(LATE_PERCENTILE)

#: Seconds between two of the neighbour's launches: it is an engine's other thread and no
#: flood, which would fill the device's queue and time that.
BETWEEN_LAUNCHES_S = 5e-6

#: How long to wait for the neighbour to begin, seconds.
BEGIN_S = 5.0


class PollingWait:
    """A loop over ``event.query()`` in Python, as asyncio code often has it."""

    def __init__(self, device: BenchDevice) -> None:
        self._device = device

    def record(self, stream: Any) -> Any:
        """Record a new event."""
        event = self._device.runtime.new_event()
        event.record(stream)
        return event

    def wait(self, event: Any) -> None:
        """Ask until it has passed; keeps the interpreter's lock meanwhile."""
        while not event.query():
            pass

    def recycle(self, event: Any) -> None:
        """Let it go."""


def beside_a_wait(
    device: BenchDevice,
    waiter: Waiter,
    seconds: float,
    neighbour: Callable[[threading.Event], Any],
) -> Any:
    """Run a neighbour in another thread while this one waits for a kernel.

    Parameters
    ----------
    neighbour : callable
        Works until the flag that it is given is set; what it returns is returned.
    """
    begun, stop, got = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        got.append(neighbour(stop))

    device.synchronize()
    thread = threading.Thread(target=work, daemon=True)
    device.busy(seconds)
    event = waiter.record(device.main)
    thread.start()
    if not begun.wait(BEGIN_S):
        raise RuntimeError("the neighbour did not begin")
    waiter.wait(event)
    stop.set()
    thread.join()
    waiter.recycle(event)
    return got[0]


def launching(launch: Callable[[], Any]) -> Callable[[threading.Event], list[float]]:
    """Give a neighbour that times its launches of a small kernel."""

    def work(stop: threading.Event) -> list[float]:
        times = []
        while not stop.is_set():
            begin = time.perf_counter()
            launch()
            end = time.perf_counter()
            times.append(end - begin)
            while time.perf_counter() - end < BETWEEN_LAUNCHES_S:
                pass
        return times

    return work


def launch_latency(
    device: BenchDevice, waiter: Waiter, seconds: float, launch: Callable[[], Any]
) -> tuple[float, float]:
    """Give median and 99th percentile of a neighbour's launches during one wait, or more."""
    times: list[float] = []
    while len(times) < LEAST_LAUNCHES:
        times += beside_a_wait(device, waiter, seconds, launching(launch))
    return median(times), percentile(times, LATE_PERCENTILE)


def counting(stop: threading.Event) -> float:
    """Compute in Python until the flag is set; give the time of one round."""
    rounds, begin = 0, time.perf_counter()
    while not stop.is_set():
        sum(range(100))
        rounds += 1
    return (time.perf_counter() - begin) / max(rounds, 1)


def round_time(device: BenchDevice, waiter: Waiter, seconds: float) -> float:
    """Give the time that a neighbour's round of computation takes during a wait."""
    took: float = beside_a_wait(device, waiter, seconds, counting)
    return took


def latest_of_many(
    device: BenchDevice, make_waiter: Callable[[], Waiter], seconds: float, threads: int
) -> float:
    """Let several threads wait for one kernel; give how late the last one is back.

    Each has a waiter of its own, as each pair of streams has.
    """
    start, end = device.event(), device.event()
    waiters = [make_waiter() for _ in range(threads)]
    back = [0.0] * threads
    device.synchronize()
    begin = time.perf_counter()
    start.record(device.main)
    device.busy(seconds)
    end.record(device.main)
    events = [waiter.record(device.main) for waiter in waiters]

    def wait(index: int) -> None:
        waiters[index].wait(events[index])
        back[index] = time.perf_counter()

    workers = [threading.Thread(target=wait, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    end.synchronize()
    return max(back) - begin - start.elapsed_time(end) * 1e-3


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core that this process may use busy with another process."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    load = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in load:
            process.kill()
        for process in load:
            process.wait()
