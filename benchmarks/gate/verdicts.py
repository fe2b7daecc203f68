"""What the samples of a gate say: intervals over processes, corrected for many metrics. Pure.

The unit of the statistics is a *block*: some pairs of one pair of processes. Two
processes with the same code differ by a little that does not go away with more pairs
(where their memory lies, which core they got), so a block counts once, with the median
of its pairs' ratios, and the interval is taken over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median

from benchmarks.gate import statuses
from benchmarks.gate.catalogue import Metric
from benchmarks.measure import (
    CANNOT_TELL,
    FASTER,
    SLOWER,
    PairedSamples,
    SampleCountError,
    median_interval,
)

#: Chance that a whole run, over all its metrics, calls an unchanged commit slower or faster.
FALSE_ALARM = 0.05

#: Verdicts beside those of :mod:`benchmarks.measure`.
NOT_AVAILABLE, LOST, FAILED = "n/a", "lost", "failed"

#: Verdicts that rest on samples of both commits.
MEASURED = (FASTER, SLOWER, CANNOT_TELL)


@dataclass(frozen=True)
class Judgement:
    """One row of the gate's table.

    Attributes
    ----------
    metric : Metric
    verdict : str
        "faster", "slower", "cannot tell"; "n/a": the base lacks it, or both do; "lost": only
        the base has it; "failed": it could not be measured.
    base, head : float or None
        Medians, in seconds or as a share.
    ratio, low, high : float or None
        Median of head over base over the blocks, with its corrected interval.
    blocks, pairs : int
    reason : str
        Why there is no measured verdict.
    """

    metric: Metric
    verdict: str
    base: float | None = None
    head: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    blocks: int = 0
    pairs: int = 0
    reason: str = ""


def corrected_confidence(metrics: int) -> float:
    """Give the confidence of each interval at which all of them hold with 95 %.

    Bonferroni's: the chances that one interval fails add up to :data:`FALSE_ALARM` at
    most, however the metrics hang together.
    """
    return 1 - FALSE_ALARM / max(1, metrics)


def blocks_needed(confidence: float, spare: int = 0) -> int:
    """Count the blocks whose median has an interval of this confidence.

    Parameters
    ----------
    confidence : float
    spare : int
        Blocks at each end that the interval may leave out: so many odd ones it bears.
    """
    for number in count(2 * spare + 1):
        try:
            low, _ = median_interval(range(number), confidence)
        except SampleCountError:
            continue
        if low >= spare:
            return number
    raise AssertionError("unreachable: count() does not end")


def judge(metric: Metric, blocks: Sequence[PairedSamples], confidence: float) -> Judgement:
    """Compare the two commits on one metric.

    Raises
    ------
    SampleCountError
        There are fewer blocks than the interval needs.
    MeasureError
        A sample of the base is not above zero.
    """
    ratios = [median(block.ratios) for block in blocks]
    low, high = median_interval(ratios, confidence)
    verdict = CANNOT_TELL
    if low > 1 + metric.min_effect:
        verdict = SLOWER
    elif high < 1 - metric.min_effect:
        verdict = FASTER
    return Judgement(
        metric=metric,
        verdict=verdict,
        base=median(value for block in blocks for value in block.baseline),
        head=median(value for block in blocks for value in block.arm),
        ratio=median(ratios),
        low=low,
        high=high,
        blocks=len(blocks),
        pairs=sum(len(block.arm) for block in blocks),
    )


def exit_status(judgements: Sequence[Judgement], failure: str = "") -> int:
    """Give the command's status.

    1 when a metric is slower; else 2 when one could not be measured although it should,
    when the run ended early, or when nothing was measured; else 0.
    """
    verdicts = {judgement.verdict for judgement in judgements}
    if SLOWER in verdicts:
        return statuses.SOMETHING_SLOWER
    if failure or verdicts & {FAILED, LOST} or not verdicts & set(MEASURED):
        return statuses.COULD_NOT_MEASURE
    return statuses.NOTHING_SLOWER
