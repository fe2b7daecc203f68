"""What is said, and kept, of the doctor's recommendations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from asyncout.doctor import units
from asyncout.virtual import CostProfile
from benchmarks.fit.recommendations import NEGLIGIBLE, Outcome, Ratio, Summary, summarise


@dataclass(frozen=True)
class Told:
    """What there is to tell.

    Attributes
    ----------
    machine, commit : str
        Whose results they are.
    origin : str
        Name of the profile, or of its file.
    profile : CostProfile
    outcomes : tuple of Outcome
    """

    machine: str
    commit: str
    origin: str
    profile: CostProfile
    outcomes: tuple[Outcome, ...]


def as_text(told: Told) -> str:
    """Give a table for each loop, and what it comes to."""
    lines = [
        f"{told.machine} at {told.commit[:8]}: policies that the doctor recommends beside those "
        "that question 4 measured",
        f"the doctor's profile: {told.origin}, of {told.profile.machine}: {told.profile.source}",
    ]
    for summary in summarise(told.outcomes):
        some = [one for one in told.outcomes if one.loop == summary.loop]
        lines += ["", *_loop(summary, some)]
    return "\n".join(lines)


def _loop(summary: Summary, outcomes: Sequence[Outcome]) -> list[str]:
    header = (
        "block",
        "recommended",
        "measured best",
        "regret",
        "as good",
        "predicted (MODELLED)",
        "measured",
    )
    rows = [
        (
            one.block,
            one.recommended,
            "the same" if one.is_exact else one.best,
            units.share(one.regret),
            "yes" if one.is_as_good else "NO",
            f"{one.predicted:.3f}",
            _ratio(one.measured),
        )
        for one in sorted(outcomes, key=lambda one: -one.regret)
    ]
    found = [
        f"the measured best: {summary.exact} of {summary.blocks} blocks; as good as that "
        f"(intervals overlap, or a regret below {units.share(NEGLIGIBLE)}): {summary.as_good}",
        f"regret: median {units.share(summary.median_regret)}, worst "
        f"{units.share(summary.worst_regret)} ({summary.worst_regret_block})",
        f"for comparison, always the default policy: as good in {summary.default_as_good}; regret: "
        f"median {units.share(summary.default_median_regret)}, worst "
        f"{units.share(summary.default_worst_regret)}",
        f"error of the predicted ratio: median {units.share(summary.median_error)}, worst "
        f"{units.share(summary.worst_error)} ({summary.worst_error_block})",
    ]
    if summary.wants_thread:
        found.append(
            f"in {summary.wants_thread} blocks the doctor would rather have a worker thread, which "
            "question 4 does not measure: its choice among the others is shown"
        )
    return [
        f"{summary.loop} loop, goal {summary.goal}; step time as a ratio to the original preset's",
        *units.table(header, rows),
        *found,
    ]


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def as_record(told: Told) -> dict[str, Any]:
    """Give all of it as one line of a result file."""
    derived = ("is_exact", "is_as_good", "regret", "default_regret", "error")
    return {
        "machine": told.machine,
        "commit": told.commit,
        "profile": {
            "origin": told.origin,
            "machine": told.profile.machine,
            "source": told.profile.source,
        },
        "negligible_regret": NEGLIGIBLE,
        "summary": [asdict(one) for one in summarise(told.outcomes)],
        "blocks": [
            {**asdict(one), **{name: getattr(one, name) for name in derived}}
            for one in told.outcomes
        ],
    }
