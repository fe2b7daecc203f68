"""The loops with real threads, on a device whose kernels are pieces of wall-clock time."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import neighbours
from benchmarks.devices import VirtualDevice
from benchmarks.grids import neighbours as grid


class WallEvent:
    """Passes when the wall clock says so."""

    def __init__(self, device: WallDevice) -> None:
        self.device, self.at = device, 0.0

    def record(self, stream: Any = None) -> None:
        self.at = max(time.perf_counter(), self.device.busy_until)

    def query(self) -> bool:
        return time.perf_counter() >= self.at

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.at - time.perf_counter()))

    def elapsed_time(self, end: WallEvent) -> float:
        return (end.at - self.at) * 1e3


class WallDevice:
    """One stream; kernels last as long as they are told to."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.main = "main"
        self.runtime = SimpleNamespace(new_event=lambda: WallEvent(self))

    def busy(self, seconds: float) -> None:
        self.busy_until = max(time.perf_counter(), self.busy_until) + seconds

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.busy_until - time.perf_counter()))

    def event(self) -> WallEvent:
        return WallEvent(self)


class Sleeping:
    def record(self, stream: Any) -> WallEvent:
        event = WallEvent(DEVICE)
        event.record()
        return event

    def wait(self, event: WallEvent) -> None:
        event.synchronize()

    def recycle(self, event: WallEvent) -> None:
        pass


DEVICE = WallDevice()


def test_a_neighbour_works_as_long_as_the_wait_lasts_and_no_longer() -> None:
    begin = time.perf_counter()
    seen: list[threading.Event] = []

    def work(stop: threading.Event) -> str:
        seen.append(stop)
        stop.wait(10)
        return "done"

    assert neighbours.beside_a_wait(DEVICE, Sleeping(), 20e-3, work) == "done"
    assert seen[0].is_set()
    assert time.perf_counter() - begin < 5


def test_launches_are_timed_until_the_percentile_is_supported() -> None:
    launches: list[int] = []
    middle, late = neighbours.launch_latency(DEVICE, Sleeping(), 5e-3, lambda: launches.append(1))
    assert len(launches) >= neighbours.LEAST_LAUNCHES >= 660
    assert 0 < middle <= late


def test_a_query_loop_is_a_wait_too_and_takes_the_interpreters_lock() -> None:
    quiet = min(neighbours.round_time(DEVICE, Sleeping(), 30e-3) for _ in range(3))
    polled = min(
        neighbours.round_time(DEVICE, neighbours.PollingWait(DEVICE), 30e-3) for _ in range(3)
    )
    assert quiet > 0
    assert polled > quiet  # two threads of Python share one lock


def test_the_last_of_several_threads_counts() -> None:
    late = neighbours.latest_of_many(DEVICE, Sleeping, 10e-3, 4)
    assert 0 <= late < 5


def test_busy_cores_are_let_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = neighbours.subprocess.Popen

    def start(command: list[str]) -> Any:
        started.append(popen(command))
        return started[-1]

    monkeypatch.setattr(neighbours.subprocess, "Popen", start)
    monkeypatch.setattr(neighbours.os, "sched_getaffinity", lambda _: {0, 1})
    with neighbours.busy_cores():
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


def test_virtual_time_has_no_neighbours() -> None:
    for name in grid.NAMES:
        assert list(grid.cells(VirtualDevice(), name)) == []
