"""Gains in plain words: sentences and changes, from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.results import CANNOT_TELL, Gain

#: A comparison: metric, arm, baseline.
Comparison = tuple[str, str, str]

#: What each question's headline speaks of, where it was measured: what a reader asks first,
#: and for the policies the one that is the default.
LEADS: dict[int, tuple[Comparison, ...]] = {
    1: (("step time", "two streams", "one stream"),),
    2: (("copy time", "pinned", "pageable"),),
    3: (("wake-up latency", "hybrid", "block"),),
    4: (("step time by policy", "default", "original"),),
    5: (
        ("result latency", "asyncout, default", "original"),
        ("enqueue", "asyncout, default", "original"),
    ),
    6: (("output ready beside an offload", "same direction", "alone"),),
}

#: Below this ratio "one so-many-th" says more than a percentage.
TINY = 0.1

#: From this ratio on "so many times" says more than a percentage.
HUGE = 2.0

#: Changes smaller than this share are called none.
NEGLIGIBLE = 0.0005


def comparison_of(gain: Gain) -> Comparison:
    """Give which comparison a row is of."""
    return gain.metric, gain.arm, gain.baseline


def by_comparison(gains: Sequence[Gain]) -> dict[Comparison, list[Gain]]:
    """Sort rows by their comparison, in the order in which they come."""
    found: dict[Comparison, list[Gain]] = {}
    for gain in gains:
        found.setdefault(comparison_of(gain), []).append(gain)
    return found


def headline(question: int, gains: Sequence[Gain]) -> str:
    """Give the sentence that answers a question, from one machine's rows of it."""
    groups = by_comparison(gains)
    for lead in LEADS.get(question, ()):
        if any(gain.ratio is not None for gain in groups.get(lead, ())):
            return sentence(groups[lead])
    return sentence(next(iter(groups.values())))


def sentence(gains: Sequence[Gain]) -> str:
    """Say what the rows of one comparison come to, its best and its worst."""
    metric, arm, baseline = comparison_of(gains[0])
    subject, other = f"{capital(metric)} with {_quoted(arm)}", _quoted(baseline)
    rated = [gain for gain in gains if gain.ratio is not None]
    if not rated:
        return f"{subject} has no ratio to {other}, whose figures are not clearly above zero."
    best = min(rated, key=lambda gain: gain.ratio or 0)
    worst = max(rated, key=lambda gain: gain.ratio or 0)
    if best is worst:
        return f"{subject} is {best.ratio:.3g} of that with {other} ({best.workload})."
    return (
        f"{subject} is {best.ratio:.3g} of that with {other} at best ({best.workload}) "
        f"and {worst.ratio:.3g} at worst ({worst.workload})."
    )


def verdicts(gains: Sequence[Gain]) -> str:
    """Count the verdicts of rows, in words."""
    counted = Counter(gain.verdict for gain in gains)
    parts = [
        f"{counted[verdict]} {said}"
        for verdict, said in (("faster", "faster"), ("slower", "slower"), (CANNOT_TELL, "open"))
        if counted[verdict]
    ]
    return f"{len(gains)} {'row' if len(gains) == 1 else 'rows'}: {', '.join(parts)}."


def change(ratio: float | None) -> str:
    """Say what a ratio means: "41 % less", "1/43", "4.8 times as much"."""
    if ratio is None:
        return "–"
    if ratio <= 0:
        return "less than nothing"
    if ratio < TINY:
        return f"1/{1 / ratio:.3g} of it"
    if ratio >= HUGE:
        return f"{ratio:.3g} times as much"
    if abs(ratio - 1) < NEGLIGIBLE:
        return "the same"
    return f"{abs(1 - ratio) * 100:.2g} % {'less' if ratio < 1 else 'more'}"


def _quoted(name: str) -> str:
    """Give an arm's name so that one of several words cannot run into its sentence."""
    return f"“{name}”" if "," in name else name


def capital(text: str) -> str:
    """Begin a text with a capital letter, and leave the rest."""
    return text[:1].upper() + text[1:]
