"""The suites' questions under pytest-benchmark, on the same cells.

One group per question, workload and metric, one benchmark per arm. The clock of these
benchmarks is the arm's own sample, so that the table shows what asv tracks, also in
virtual time. The last arm of a group also runs them all interleaved and puts the
paired ratios with their intervals and verdicts into ``extra_info``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from benchmarks import measure, names
from benchmarks.devices import BenchDevice, cuda_device, virtual_device
from benchmarks.grids import (
    contention,
    factorial,
    keeping,
    library,
    memory,
    neighbours,
    plans,
    streams,
    waits,
)
from benchmarks.runner import mode

GRIDS: dict[str, Any] = {
    grid.__name__.rpartition(".")[2]: grid
    for grid in (streams, memory, waits, neighbours, factorial, library, keeping, contention)
}

MEASURED, MODELLED = "measured", "modelled"
DEVICES = {MEASURED: cuda_device, MODELLED: virtual_device}

#: Samples per benchmark, by mode; fewer where a sample is a batch of many.
ROUNDS = {"smoke": 3, "quick": 12, "full": 50, "nightly": 50}
BATCH_ROUNDS = 3

#: The metric of each workload where a grid's workloads have metrics of their own.
OWN_METRICS: dict[str, dict[str, str]] = {
    "neighbours": {
        names.LAUNCHING: neighbours.LAUNCH,
        names.COMPUTING: neighbours.ROUND,
        names.WAITING: neighbours.LATEST,
        names.LOADED: neighbours.LOADED,
    },
    "waits": {
        **dict.fromkeys(names.WAITS_QUICK, waits.WAKE_UP),
        **dict.fromkeys(names.JITTERED_WAITS_QUICK, waits.LATE_WAKE_UP),
        **dict.fromkeys(names.BURSTS_QUICK, waits.BURST),
    },
    "keeping": {names.SMALL_SOURCES: keeping.HOST, names.FULL_MEMORY: keeping.STEP},
    "library": {
        **dict.fromkeys(names.OUTPUTS_QUICK, library.ENQUEUE),
        **dict.fromkeys(names.LATENCY_STEPS_QUICK, library.LATENCY),
        names.DEVICE_OUTPUTS[0]: library.ON_DEVICE,
        **dict.fromkeys(names.BEHIND, library.HELD),
        names.ONE_STEP: library.TIMING,  # which stands for both of its workload's own
    },
}


class SampleClock:
    """A clock that moves by the samples that arms give."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Read the clock."""
        return self.now

    def add(self, sample: float) -> None:
        """Move the clock by a sample."""
        self.now += sample


CLOCK = SampleClock()


@cache
def device_of(kind: str) -> BenchDevice:
    """Make the one device of a kind."""
    return DEVICES[kind]()


@cache
def cell_of(kind: str, grid: str, name: str, metric: str) -> plans.Cell | None:
    """Build a cell once for all of its arms; None where the device has none."""
    cells = GRIDS[grid].cells(device_of(kind), name)
    return next((cell for cell in cells if cell.metric == metric), None)


def _parameters() -> Iterator[Any]:
    for kind in DEVICES:
        marks = [pytest.mark.gpu] if kind == MEASURED else []
        for title, grid in GRIDS.items():
            own = OWN_METRICS.get(title, {})
            for name in grid.QUICK_NAMES:
                for metric, arms in grid.ARMS.items():
                    if own.get(name, metric) != metric:
                        continue
                    for arm in arms:
                        yield pytest.param(
                            kind,
                            title,
                            name,
                            metric,
                            arm,
                            marks=marks,
                            id=f"{kind}-{title}-{name}-{metric}-{arm}",
                        )


@pytest.mark.benchmark(timer=CLOCK, warmup=False)
@pytest.mark.parametrize(("kind", "grid", "name", "metric", "arm"), list(_parameters()))
def test_arm(benchmark: Any, kind: str, grid: str, name: str, metric: str, arm: str) -> None:
    """Sample one arm; the last of its group adds the paired comparison."""
    cell = cell_of(kind, grid, name, metric)
    if cell is None or arm not in cell.arms:
        assert kind == MODELLED, f"the GPU has no {arm!r}"
        pytest.skip(f"no {arm!r} on the virtual device")
    benchmark.group = f"{kind}: question {GRIDS[grid].QUESTION}, {name}, {metric}"
    benchmark.extra_info["modelled"] = kind == MODELLED

    def sample() -> None:
        CLOCK.add(cell.arms[arm]())

    rounds = BATCH_ROUNDS if cell.is_batch else ROUNDS[mode.current()]
    with device_of(kind).times_only():
        benchmark.pedantic(sample, rounds=rounds, warmup_rounds=1)
    if arm == [name for name in GRIDS[grid].ARMS[metric] if name in cell.arms][-1]:
        benchmark.extra_info["comparisons"] = _compare(kind, cell)


def _compare(kind: str, cell: plans.Cell) -> dict[str, Any]:
    """Measure a cell's arms interleaved and compare them."""
    comparisons = {}
    for row in cell.rows(plans.run_arms(device_of(kind), cell)):
        if min(row.samples.baseline) > 0:
            compared = measure.compare(row.samples)
            comparisons[f"{row.metric}: {row.comparison}"] = {
                "ratio": compared.ratio,
                "interval": [compared.low, compared.high],
                "verdict": compared.verdict,
                "pairs": compared.pairs,
            }
    return comparisons
