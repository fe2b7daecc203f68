"""What question 4 says over all of its blocks: one line per effect, for the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from benchmarks.measure import FASTER, SLOWER
from benchmarks.results import Gain

QUESTION = 4

TITLE = "4. Over all blocks"
HEADER = (
    "metric",
    "effect",
    "mean ratio",
    "best block",
    "worst block",
    "faster",
    "slower",
    "blocks",
)


def summarise(gains: Sequence[Gain]) -> list[tuple[str, ...]]:
    """Give one row per effect, of the blocks in one run.

    The mean is geometric; blocks count alike, whatever their steps last.
    """

    def effect(gain: Gain) -> tuple[str, str, str]:
        return gain.metric, gain.arm, gain.baseline

    chosen = [gain for gain in gains if gain.question == QUESTION and gain.ratio is not None]
    order = list(dict.fromkeys(effect(gain) for gain in chosen))
    chosen.sort(key=lambda gain: order.index(effect(gain)))
    rows = []
    for (metric, arm, baseline), some in groupby(chosen, key=effect):
        blocks = sorted(some, key=lambda gain: gain.ratio or math.inf)
        ratios = [gain.ratio for gain in blocks if gain.ratio is not None]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        verdicts = [gain.verdict for gain in blocks]
        rows.append(
            (
                metric,
                f"{arm} / {baseline}",
                f"{mean:.3g}",
                f"{ratios[0]:.3g} ({blocks[0].workload})",
                f"{ratios[-1]:.3g} ({blocks[-1].workload})",
                str(verdicts.count(FASTER)),
                str(verdicts.count(SLOWER)),
                str(len(blocks)),
            )
        )
    return rows
