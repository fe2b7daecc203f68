"""Picks the rows that a picture needs out of the gains of one run."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Gain

#: Characters of a commit's hash that are shown.
SHORT_HASH = 8

#: Between a number and its unit: lines do not break there.
GAP = "\u00a0"


def of_metric(
    gains: Sequence[Gain], question: int, metric: str, arm: str | None = None
) -> list[Gain]:
    """Give the rows of one metric that have a ratio, in their own order, or of one arm."""
    return [
        gain
        for gain in gains
        if gain.question == question
        and gain.metric == metric
        and gain.ratio is not None
        and arm in (None, gain.arm)
    ]


def saved(gain: Gain) -> tuple[float, float, float]:
    """Give the share that the arm saves, and its interval: 0.4 is two fifths less time."""
    assert gain.ratio is not None
    assert gain.low is not None
    assert gain.high is not None
    return 1 - gain.ratio, 1 - gain.high, 1 - gain.low


def factor(gain: Gain) -> tuple[float, float, float]:
    """Give how many times faster the arm is, and its interval."""
    assert gain.ratio is not None
    assert gain.low is not None
    assert gain.high is not None
    return 1 / gain.ratio, 1 / gain.high, 1 / gain.low


def footer(gains: Sequence[Gain]) -> str:
    """Say whose numbers these are."""
    first = gains[0]
    kind = "MODELLED in virtual time, not measured" if first.modelled else "measured"
    return f"{kind} · {first.machine} · commit {first.commit[:SHORT_HASH]} · bars: 95 % intervals"


def percent(share: float) -> str:
    """Write a share with two digits that count: 0.52 %, 4.9 %, 41 %."""
    value = 100 * share
    return f"{value:.2g}{GAP}%" if abs(value) < 99.5 else f"{value:.0f}{GAP}%"


def short(seconds: float) -> str:
    """Write a time as whole units, or with one decimal below ten: 30 µs, 147 µs, 1.4 ms."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
    scale, unit = next((pair for pair in units if seconds >= pair[0]), units[-1])
    value = seconds / scale
    return f"{value:.0f}{GAP}{unit}" if value >= 9.95 else f"{value:.2g}{GAP}{unit}"


def times(value: float) -> str:
    """Write a factor with two digits that count: 1.5×, 43×, 1,500×."""
    return f"{value:.2g}×" if value < 99.5 else f"{float(f'{value:.2g}'):,.0f}×"
