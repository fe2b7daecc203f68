"""What question 4 says over all of its blocks, as tables; its rows are too many to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean

from benchmarks.measure import FASTER, SLOWER
from benchmarks.results import Gain

QUESTION = 4

#: Metrics of the grid: what an axis does, and what each policy takes.
EFFECT, EACH = "step time by policy", "step time of each policy"

#: The default policy by its levels, as the rows of each policy name it.
DEFAULT = "dual-pinned-hybrid-batched"

EFFECT_HEADER = (
    "metric",
    "effect",
    "mean ratio",
    "best block",
    "worst block",
    "faster",
    "slower",
    "blocks",
)
BEST_HEADER = ("block", "best policy", "ratio to the original", "default policy", "as good")


@dataclass(frozen=True)
class Table:
    """A table with its title.

    Attributes
    ----------
    title : str
    header : tuple of str
    rows : list of tuple of str
    """

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(gains: Sequence[Gain]) -> list[Table]:
    """Give the tables that the blocks of one run allow."""
    # A ratio that is not above zero is of no step, and has no part in a geometric mean.
    chosen = [g for g in gains if g.question == QUESTION and g.ratio is not None and g.ratio > 0]
    made = (
        Table(
            "4. Over all blocks",
            EFFECT_HEADER,
            _effects([gain for gain in chosen if gain.metric != EACH]),
        ),
        Table(
            "4. The best policy of each block",
            BEST_HEADER,
            _best([gain for gain in chosen if gain.metric == EACH]),
        ),
    )
    return [table for table in made if table.rows]


def telling(gains: Sequence[Gain]) -> Sequence[Gain]:
    """Give those rows that a headline may count: of question 4, what the axes do."""
    effects = [gain for gain in gains if gain.metric == EFFECT]
    return effects or gains


def _effects(gains: list[Gain]) -> list[tuple[str, ...]]:
    """Give one row per effect.

    The mean is geometric; blocks count alike, whatever their steps last.
    """

    def effect(gain: Gain) -> tuple[str, str, str]:
        return gain.metric, gain.arm, gain.baseline

    order = list(dict.fromkeys(effect(gain) for gain in gains))
    rows = []
    for (metric, arm, baseline), some in groupby(
        sorted(gains, key=lambda gain: order.index(effect(gain))), key=effect
    ):
        blocks = sorted(some, key=_ratio)
        mean = geometric_mean(map(_ratio, blocks))
        verdicts = [gain.verdict for gain in blocks]
        rows.append(
            (
                metric,
                f"{arm} / {baseline}",
                f"{mean:.3g}",
                f"{_ratio(blocks[0]):.3g} ({blocks[0].workload})",
                f"{_ratio(blocks[-1]):.3g} ({blocks[-1].workload})",
                str(verdicts.count(FASTER)),
                str(verdicts.count(SLOWER)),
                str(len(blocks)),
            )
        )
    return rows


def _best(gains: list[Gain]) -> list[tuple[str, ...]]:
    """Give one row per block: its best policy, and whether the default is as good.

    As good: the interval of its ratio overlaps the best one's.
    """
    by_block: dict[str, list[Gain]] = {}
    for gain in gains:
        by_block.setdefault(gain.workload, []).append(gain)
    rows = []
    for block, some in by_block.items():
        best = min(some, key=_ratio)
        default = next((gain for gain in some if gain.arm == DEFAULT), None)
        if default is None or default.low is None or best.high is None:
            continue
        rows.append(
            (
                block,
                best.arm,
                best.figures,
                default.figures,
                "yes" if default.low <= best.high else "no",
            )
        )
    return rows


def _ratio(gain: Gain) -> float:
    return math.inf if gain.ratio is None else gain.ratio
