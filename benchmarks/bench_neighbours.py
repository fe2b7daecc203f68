"""Question 3, beside the waiting thread. Real threads: there is nothing modelled here."""

from __future__ import annotations

from benchmarks import names, suite

WAITS = ["spin / block", "hybrid / block"]


class _Neighbours(suite.Grid):
    question = 3

    def setup_cache(self) -> suite.Cache:
        return suite.collect("neighbours")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class NeighboursLaunch(_Neighbours):
    """Time of another thread's kernel launch during a 20 ms wait, median of some 700."""

    metric = "neighbour's launch"
    params = ([names.LAUNCHING], [*WAITS, "query loop / block"])


class NeighboursLateLaunch(_Neighbours):
    """The launch that one in a hundred exceeds."""

    metric = "neighbour's launch, 99th percentile"
    params = ([names.LAUNCHING], [*WAITS, "query loop / block"])


class NeighboursComputation(_Neighbours):
    """Time of another thread's round of pure Python during a 20 ms wait."""

    metric = "neighbour's computation"
    params = ([names.COMPUTING], [*WAITS, "query loop / block"])


class LastOfFour(_Neighbours):
    """How late the last of four waiting threads is back after 5 ms."""

    metric = "wake-up of the last of 4 threads"
    params = ([names.WAITING], WAITS)


class LoadedWakeUp(_Neighbours):
    """Wake-up after 5 ms with a busy process on every core."""

    metric = "wake-up latency, all cores busy"
    params = ([names.LOADED], WAITS)
