"""Question 1 as a picture: what a second stream saves of a step, and what it could save."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.results import Gain

METRIC = "step time"

#: Inches of one workload's bar with its gap.
ROW = 0.33


def draw(gains: Sequence[Gain]) -> Picture | None:
    """Draw a bar per workload with its bound; None without such rows."""
    found = rows.of_metric(gains, 1, METRIC)
    if not found:
        return None
    found.sort(key=lambda gain: rows.saved(gain)[0])
    shares = [rows.saved(gain) for gain in found]
    message = _message(found)
    figure, (axes,) = look.figure(
        message,
        "Step time saved by copying on a second stream instead of the main one, in a loop that "
        "reads each output while the next step computes. The tick is the bound: all of the shorter "
        "of computation and copy, each taken alone, without the gaps between them.",
        rows.footer(found),
        height=ROW * len(found) + 0.55,
    )
    places = range(len(found))
    values = [100 * share for share, _, _ in shares]
    errors = [
        [100 * (share - low) for share, low, _ in shares],
        [100 * (high - share) for share, _, high in shares],
    ]
    axes.barh(places, values, height=0.58, color=look.BLUE)
    axes.errorbar(
        values, places, xerr=errors, fmt="none", ecolor=look.INK, elinewidth=1.2, capsize=2.5
    )
    for place, gain, (share, _, high) in zip(places, found, shares, strict=True):
        right = 100 * max(high, share)
        text = rows.percent(share)
        if gain.bound is not None:
            most = 1 - gain.bound
            axes.plot([100 * most] * 2, [place - 0.38, place + 0.38], color=look.RED, linewidth=2)
            right = max(right, 100 * most)
            text += f"  (bound {rows.percent(most)})"
        axes.annotate(
            text, (right, place), (6, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_yticks(places, [gain.workload for gain in found])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("step time saved, %")
    axes.axvline(0, color=look.GREY, linewidth=0.8)
    least, most = axes.get_xlim()
    axes.set_xlim(least, most + 0.12 * (most - least))  # room for the longest bar's label
    listed = "; ".join(
        f"{gain.workload}: {rows.percent(share)}"
        for gain, (share, _, _) in zip(found, shares, strict=True)
    )
    return Picture(
        "streams", figure, message, f"Bars of the step time that a second stream saves. {listed}."
    )


def _message(found: Sequence[Gain]) -> str:
    least, most = found[0], found[-1]
    text = (
        f"A second stream saves up to {rows.percent(rows.saved(most)[0])} of a step "
        f"({most.workload})"
    )
    share = rows.saved(least)[0]
    if least is most:
        return text
    verb = "costs " if share < 0 else ""
    return f"{text}, and {verb}{rows.percent(abs(share))} with {least.workload}"
