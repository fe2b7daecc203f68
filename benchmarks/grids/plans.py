"""How a grid is measured: its cells, how much of it in each mode, and rows of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from benchmarks import conditions, lacking, loops, measure
from benchmarks.devices import BenchDevice, without_allocations
from benchmarks.measure import PairedSamples, Plan
from benchmarks.rows import Row, comparison
from benchmarks.runner import mode, progress

#: Plans of a measured grid. A cell stops early once its intervals are narrow.
MEASURED_PLANS = {
    "smoke": Plan(min_pairs=6, max_pairs=6, half_width=0.5, time_limit_s=1.0, warmup_pairs=1),
    "quick": Plan(min_pairs=12, max_pairs=24, half_width=0.02, time_limit_s=1.0, warmup_pairs=2),
    "full": Plan(min_pairs=24, max_pairs=200, half_width=0.01, time_limit_s=4.0, warmup_pairs=3),
}
MEASURED_PLANS["nightly"] = MEASURED_PLANS["full"]

#: Where a sample is a batch of many: as few as an interval needs.
BATCH_PLAN = Plan(min_pairs=6, max_pairs=6, half_width=1.0, time_limit_s=60.0, warmup_pairs=0)

#: Virtual time has no noise: the fewest pairs that an interval needs say it all.
MODELLED_PLAN = Plan(min_pairs=6, max_pairs=6, half_width=1.0, time_limit_s=60.0, warmup_pairs=1)


#: A machine's slow spells meet most of a cell's arms. With two dozen arms, one or two look
#: dependent by chance: 12 independent rounds do so in 8 of 100 arms.
SHARE_OF_ARMS = 0.5

#: Modes that measure all there is, rather than show that it can be measured.
WHOLE_MODES = ("full", "nightly")


#: Samples of each arm of a cell, in rounds.
Samples = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Cell:
    """Arms that are measured together, and what is made of their samples.

    Attributes
    ----------
    metric, workload : str
        Of the arms' own samples.
    arms : dict of str to callable
        Each runs once and gives one sample.
    rows : callable
        Makes rows of the samples; it may add those of other metrics.
    is_batch : bool
        Whether a sample is made of many; the fewest rounds then say enough.
    whole_plan : Plan or None
        Plan on a GPU in :data:`WHOLE_MODES`, where it is not that of other cells.
    """

    metric: str
    workload: str
    arms: Mapping[str, Callable[[], float]]
    rows: Callable[[Samples], Iterable[Row]]
    is_batch: bool = False
    whole_plan: Plan | None = None

    def plan_on(self, device: BenchDevice) -> Plan:
        """Choose the plan of this process's mode."""
        if self.whole_plan and not device.modelled and mode.current() in WHOLE_MODES:
            return self.whole_plan
        if self.is_batch:
            return BATCH_PLAN
        return MODELLED_PLAN if device.modelled else MEASURED_PLANS[mode.current()]


class Question(Protocol):
    """A module of this package.

    Attributes
    ----------
    QUESTION : int
    NAMES, QUICK_NAMES : sequence of str
        Workloads of the full and of the quick mode; the nightly mode takes NIGHTLY_NAMES
        where there are more of those.
    ARMS : dict of str to tuple of str
        Arms of each cell, by its metric.
    """

    QUESTION: int
    NAMES: Sequence[str]
    QUICK_NAMES: Sequence[str]
    ARMS: Mapping[str, Sequence[str]]

    def cells(self, device: BenchDevice, name: str) -> Iterator[Cell]:
        """Build the cells of one workload; none where the device has nothing to say of it."""


def measure_question(question: Question, device: BenchDevice) -> Iterator[Row]:
    """Measure all of a question that this process's mode measures."""
    kind = "modelled" if device.modelled else "measured"
    for name in _names(question):
        progress.report(f"question {question.QUESTION}, {kind}: {name}")
        with lacking.left_out(name):
            for cell in question.cells(device, name):
                samples = measure_cell(device, cell)
                if samples is not None:
                    yield from cell.rows(samples)


def _names(question: Question) -> Sequence[str]:
    """Give the workloads of this process's mode."""
    if mode.current() == "nightly":
        whole: Sequence[str] = getattr(question, "NIGHTLY_NAMES", question.NAMES)
        return whole
    return question.NAMES if mode.current() == "full" else question.QUICK_NAMES


def measure_cell(device: BenchDevice, cell: Cell) -> Samples | None:
    """Measure a cell's arms; again, and in the end not at all, on a machine that is unfit.

    Virtual time has no noise to judge.
    """

    def say(why: str) -> None:
        progress.report(f"{cell.metric}, {cell.workload}: {why}")

    run = partial(run_arms, device, cell)
    return run() if device.modelled else conditions.measure_steadily(run, judge, say)


def judge(samples: Samples) -> conditions.Judgement:
    """Judge the machine by the first arm's samples and by the other arms' ratios to it.

    At least half of those must be in spells.
    """
    baseline, *others = samples.values()
    judged = conditions.judge_baseline(baseline)
    if min(baseline) <= 0:
        return judged
    found = [conditions.judge_rounds(PairedSamples(other, baseline).ratios) for other in others]
    discarding = [of_arm for of_arm in found if of_arm.discard]
    if discarding and len(discarding) >= SHARE_OF_ARMS * len(found):
        judged += discarding[0]
    return judged


def run_arms(device: BenchDevice, cell: Cell) -> Samples:
    """Measure a cell's arms interleaved; no garbage collector and no new pinned memory runs in."""

    def region() -> Samples:
        with loops.no_collector(), device.times_only():
            return measure.measure_many(cell.arms, cell.plan_on(device), clock=device.clock)

    return without_allocations(device, region)


def row(
    metric: str,
    workload: str,
    samples: Samples,
    arm: str,
    baseline: str,
    bound: float | None = None,
) -> Row:
    """Make a row of two arms that were measured together."""
    pairs = PairedSamples(samples[arm], samples[baseline])
    return Row(metric, workload, comparison(arm, baseline), pairs, bound)


class SecondValue:
    """Keeps a second value of each sample of several arms, such as the CPU time of a wait."""

    def __init__(self, arms: Iterable[str]) -> None:
        self._values: dict[str, list[float]] = {arm: [] for arm in arms}

    def arm(self, name: str, run: Callable[[], tuple[float, float]]) -> Callable[[], float]:
        """Give an arm that keeps the second value of `run` and gives the first."""
        values = self._values[name]

        def first() -> float:
            sample, second = run()
            values.append(second)
            return sample

        return first

    def samples(self, of: Samples) -> dict[str, tuple[float, ...]]:
        """Give the second values of the samples `of`; what came before those was warm-up."""
        return {arm: tuple(values[-len(of[arm]) :]) for arm, values in self._values.items()}
