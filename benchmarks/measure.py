"""The method: interleaved rounds, ratios pair by pair, rank intervals, verdicts.

Knows nothing of devices. Arms run in one process and take turns, so that what drifts
(clocks, temperature, neighbours) meets all of them and cancels in the ratio of a
round. Intervals come from order statistics and assume no distribution; those of
verdicts are wider where neighbouring rounds depend on each other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.dependence import inflation

#: Least count with a 95 % interval of the median: the extremes of 6 samples hold it with
#: a chance of 1 - 2 / 2**6 = 97 %, those of 5 with 94 %.
MIN_SAMPLES = 6

CONFIDENCE = 0.95

#: A percentile is given only if the chance that fewer than so many samples lie beyond it
#: is at most this. For the 99th percentile that takes 662 samples.
BEYOND_PERCENTILE = 2
PERCENTILE_RISK = 0.01

FASTER, SLOWER, CANNOT_TELL = "faster", "slower", "cannot tell"


class MeasureError(ValueError):
    """Samples cannot be compared; the message says why."""


class SampleCountError(MeasureError):
    """There are too few samples for what was asked."""


@dataclass(frozen=True)
class PairedSamples:
    """Samples of two arms, one of each per round; less is better.

    Attributes
    ----------
    arm, baseline : tuple of float
        Equally long, finite.
    """

    arm: tuple[float, ...]
    baseline: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.arm) != len(self.baseline):
            raise MeasureError(
                f"{len(self.arm)} samples of the arm and {len(self.baseline)} of the baseline; "
                "pairs need one of each"
            )
        if not all(math.isfinite(value) for value in (*self.arm, *self.baseline)):
            raise MeasureError("a sample is not finite")

    @property
    def ratios(self) -> tuple[float, ...]:
        """Arm over baseline, pair by pair.

        Raises
        ------
        MeasureError
            A baseline is not above zero.
        """
        if min(self.baseline, default=1.0) <= 0:
            raise MeasureError("a ratio needs a baseline above zero in every pair")
        return tuple(a / b for a, b in zip(self.arm, self.baseline, strict=True))


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes
    ----------
    min_pairs, max_pairs : int
        Least and most rounds that count.
    half_width : float
        Stop once half the width of every ratio's interval is at most this share of it.
    time_limit_s : float
        Stop after so many seconds, once `min_pairs` are there.
    warmup_pairs : int
        Rounds that run first and do not count.
    """

    min_pairs: int
    max_pairs: int
    half_width: float
    time_limit_s: float
    warmup_pairs: int

    def __post_init__(self) -> None:
        if not MIN_SAMPLES <= self.min_pairs <= self.max_pairs:
            raise MeasureError(
                f"min_pairs is {self.min_pairs} and max_pairs {self.max_pairs}; give "
                f"{MIN_SAMPLES} or more, in this order"
            )


@dataclass(frozen=True)
class Comparison:
    """What paired samples say.

    Attributes
    ----------
    arm, baseline : float
        Medians.
    ratio, low, high : float
        Median of the pairwise ratios, and its 95 % interval.
    verdict : {"faster", "slower", "cannot tell"}
    pairs : int
    """

    arm: float
    baseline: float
    ratio: float
    low: float
    high: float
    verdict: str
    pairs: int


def measure_many(
    arms: Mapping[str, Callable[[], float]],
    plan: Plan,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, tuple[float, ...]]:
    """Run arms in rounds until the plan is satisfied.

    Parameters
    ----------
    arms : dict of str to callable
        Each runs once and gives one sample. The first one is the baseline of the
        stopping rule.
    plan : Plan
    clock : callable
        Seconds, for the plan's time limit.

    Returns
    -------
    dict of str to tuple of float
        Equally many samples of each arm; those at one index are of one round.

    Notes
    -----
    Every other round runs backwards, and pairs of rounds begin one arm later each
    time, so that no arm is always the first or behind the same one. The stopping rule
    is asked only when the number of rounds has doubled: each look is a chance to stop
    on luck, so there are few.
    """
    names = list(arms)
    for index in range(plan.warmup_pairs):
        for name in turns(names, index):
            arms[name]()
    samples: dict[str, list[float]] = {name: [] for name in names}
    begin, next_look = clock(), plan.min_pairs
    for index in range(plan.max_pairs):
        for name in turns(names, index):
            samples[name].append(arms[name]())
        rounds = index + 1
        if rounds < plan.min_pairs:
            continue
        if clock() - begin >= plan.time_limit_s:
            break
        if rounds == next_look:
            if _is_narrow(samples, plan.half_width):
                break
            next_look *= 2
    return {name: tuple(values) for name, values in samples.items()}


def measure_pairs(
    arm: Callable[[], float],
    baseline: Callable[[], float],
    plan: Plan,
    clock: Callable[[], float] = time.perf_counter,
) -> PairedSamples:
    """Run an arm against its baseline; see :func:`measure_many`."""
    samples = measure_many({"baseline": baseline, "arm": arm}, plan, clock)
    return PairedSamples(samples["arm"], samples["baseline"])


def turns(names: Sequence[str], index: int) -> list[str]:
    """Give the order of a round: A B, then B A, and each pair of rounds begins one later."""
    first = (index // 2) % len(names)
    turned = [*names[first:], *names[:first]]
    return turned if index % 2 == 0 else turned[::-1]


def _is_narrow(samples: Mapping[str, list[float]], half_width: float) -> bool:
    baseline, *others = samples.values()
    if min(baseline) <= 0:
        return False
    for values in others:
        ratios = [a / b for a, b in zip(values, baseline, strict=True)]
        low, high = dependent_interval(ratios)
        if (high - low) / 2 > half_width * abs(median(ratios)):
            return False
    return True


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Give an interval that holds the distribution's median, from order statistics.

    Parameters
    ----------
    values : sequence of float
        Independent samples of any distribution.
    confidence : float
        Least chance that the interval holds the median.

    Raises
    ------
    SampleCountError
        Not even the extremes hold it with that chance.
    """
    ordered, cut = sorted(values), _cut(len(values), confidence)
    return ordered[cut - 1], ordered[len(ordered) - cut]


def dependent_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Give the same for samples in the order in which they were taken, dependent or not.

    The interval of as many independent samples, wider by the root of what
    :func:`benchmarks.dependence.inflation` says, and at most from the least to the
    greatest sample.

    Raises
    ------
    SampleCountError
        As for :func:`median_interval`.
    """
    count = len(values)
    ordered, cut = sorted(values), _cut(count, confidence)
    # Ranks lie at whole numbers: the middle of 1 ... count is half of count + 1.
    middle = (count + 1) / 2
    wider = math.floor(middle - (middle - cut) * math.sqrt(inflation(values)))
    cut = max(1, min(cut, wider))
    return ordered[cut - 1], ordered[count - cut]


def _cut(count: int, confidence: float) -> int:
    """Give k so that the k-th smallest and the k-th largest of `count` hold the median."""
    # The k-th smallest lies above the median when fewer than k samples lie below it:
    # a binomial tail. Cut the largest k that leaves each tail its half of the risk.
    tail, cut, term = 0.0, 0, 0.5**count
    for k in range(count // 2 + 1):
        tail += term
        if tail > (1 - confidence) / 2:
            break
        cut = k + 1
        term *= (count - k) / (k + 1)
    if cut == 0:
        least = math.ceil(1 - math.log2(1 - confidence))
        raise SampleCountError(
            f"{count} samples have no {confidence:.0%} interval of the median; take at least "
            f"{least}"
        )
    return cut


def percentile(values: Sequence[float], q: float) -> float:
    """Give the smallest sample that at least `q` percent of the samples do not exceed.

    Raises
    ------
    SampleCountError
        So few samples say nothing of this percentile (see :data:`BEYOND_PERCENTILE`).
    """
    if not 0 < q < 100:
        raise MeasureError(f"percentile {q} is not between 0 and 100")
    needed = samples_for_percentile(q)
    if len(values) < needed:
        raise SampleCountError(f"percentile {q} needs {needed} samples; there are {len(values)}")
    return sorted(values)[math.ceil(q / 100 * len(values)) - 1]


def samples_for_percentile(q: float) -> int:
    """Count the samples that a percentile needs.

    The rule: the chance that fewer than :data:`BEYOND_PERCENTILE` samples lie beyond it
    is at most :data:`PERCENTILE_RISK`.
    """
    beyond = 1 - max(q, 100 - q) / 100
    count = BEYOND_PERCENTILE
    while (1 - beyond) ** count + count * beyond * (1 - beyond) ** (count - 1) > PERCENTILE_RISK:
        count += 1
    return count


def compare(samples: PairedSamples, min_effect: float = 0.0) -> Comparison:
    """Compare an arm with its baseline.

    Parameters
    ----------
    samples : PairedSamples
    min_effect : float
        Changes up to this share are no verdict.
    """
    ratios = samples.ratios
    low, high = dependent_interval(ratios)
    verdict = CANNOT_TELL
    if high < 1 - min_effect:
        verdict = FASTER
    elif low > 1 + min_effect:
        verdict = SLOWER
    return Comparison(
        arm=median(samples.arm),
        baseline=median(samples.baseline),
        ratio=median(ratios),
        low=low,
        high=high,
        verdict=verdict,
        pairs=len(ratios),
    )
