"""Whether the machine was quiet enough to be measured; if not, discard and say so.

Pure, knows no device. A slow or drifting machine is no reason by itself: drift cancels
in the ratios of rounds. What is discarded is what no pairing can mend. Of a GPU's clocks
judges :mod:`benchmarks.clocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from benchmarks.dependence import inflation
from benchmarks.measure import MIN_SAMPLES, median_interval

#: Fewer samples than this say too little of the machine to discard them: they are kept,
#: and their interval is wide enough to say how little they say.
MIN_JUDGED = 2 * MIN_SAMPLES

#: Distance of the quartiles, as a share of the median, above which a baseline is noise.
#: The host's microseconds on a quiet virtual machine reach 0.7, the GPU's own 0.1.
MAX_SPREAD = 1.0

#: Change of the baseline's median from the first third of the rounds to the last above
#: which it was not one machine that was measured. Cold microseconds drift by up to a half
#: while caches and clocks settle, and cancel.
MAX_DRIFT = 0.6

#: How often a measurement is repeated before its rows are given up: noise that comes back
#: three times is the machine's, not a moment's.
ATTEMPTS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Judgement:
    """Whether to keep what was measured.

    Attributes
    ----------
    reasons : tuple of str
        Why not; empty when it is to be kept.
    """

    reasons: tuple[str, ...] = ()

    @property
    def discard(self) -> bool:
        """Whether there is a reason to discard it."""
        return bool(self.reasons)

    def __add__(self, other: Judgement) -> Judgement:
        """Give the reasons of both."""
        return Judgement((*self.reasons, *other.reasons))

    def __str__(self) -> str:
        return f"to be discarded: {'; '.join(self.reasons)}" if self.reasons else "kept"


def judge_baseline(samples: Sequence[float]) -> Judgement:
    """Judge a machine by the baseline's samples, in the order in which they were taken.

    Parameters
    ----------
    samples : sequence of float
        Times; a baseline that is not above zero throughout is a difference, whose spread
        has no scale, and is not judged.
    """
    if len(samples) < MIN_JUDGED or min(samples) <= 0:
        return Judgement()
    reasons = []
    ordered, quarter = sorted(samples), len(samples) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / median(samples)
    if spread > MAX_SPREAD:
        reasons.append(
            f"the machine is noisy: the middle half of the baseline spans {spread:.0%} of its "
            f"median (limit {MAX_SPREAD:.0%})"
        )
    third = len(samples) // 3
    if third >= MIN_SAMPLES:
        first, last = samples[:third], samples[-third:]
        drift = median(last) / median(first) - 1
        if abs(drift) > MAX_DRIFT and _apart(first, last):
            reasons.append(
                f"the baseline drifted by {drift:+.0%} while it was measured (limit "
                f"{MAX_DRIFT:.0%})"
            )
    return Judgement(tuple(reasons))


def judge_rounds(ratios: Sequence[float]) -> Judgement:
    """Judge by the ratios, round by round, whether the rounds are many enough.

    Samples that depend on each other say as much as fewer that do not; when those are
    fewer than an interval needs, there is none that would hold.
    """
    if len(ratios) < MIN_JUDGED:
        return Judgement()
    worth = len(ratios) / inflation(ratios)
    if worth >= MIN_SAMPLES:
        return Judgement()
    return Judgement(
        (
            f"slow and fast spells: {len(ratios)} rounds say as much as {worth:.0f} independent "
            f"ones (at least {MIN_SAMPLES} are needed)",
        )
    )


def measure_steadily(
    measure: Callable[[], T],
    judge: Callable[[T], Judgement],
    say: Callable[[str], None],
    attempts: int = ATTEMPTS,
) -> T | None:
    """Measure until a judgement lets the result stand.

    Parameters
    ----------
    measure : callable
    judge : callable
        Judges what `measure` gave.
    say : callable
        Is told, in a sentence, of each result that was discarded.
    attempts : int
        How often to measure at most.

    Returns
    -------
    object or None
        What `measure` gave; None when no attempt was fit to be kept.
    """
    for attempt in range(1, attempts + 1):
        result = measure()
        judgement = judge(result)
        if not judgement.discard:
            return result
        say(f"{judgement} (attempt {attempt} of {attempts})")
    return None


def _apart(first: Sequence[float], last: Sequence[float]) -> bool:
    """Whether the intervals of both medians leave a gap: a drift that noise does not make."""
    (low, high), (other_low, other_high) = median_interval(first), median_interval(last)
    return high < other_low or other_high < low
