"""Question 5 as a picture: the library's own cost over that of the technique's original."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.results import Gain

#: Metrics of a step that every output pays, in the order in which a step meets them.
METRICS = ("enqueue", "get_output after arrival", "result latency")

DEFAULT, PRESET = "asyncout, default", "asyncout, original preset"
LOOKS = {DEFAULT: ("o", look.BLUE), PRESET: ("D", look.ORANGE)}

#: Inches of one workload's row, and of one metric's heading.
ROW, HEADING = 0.27, 0.3

#: Share of a row by which either policy's point lies off its middle.
APART = 0.16

#: Ticks of the ratio, as far as they lie in what is shown.
RATIO_TICKS = {
    0.125: "⅛",
    0.25: "¼",
    0.5: "½",
    1.0: "same",
    2.0: "2×",
    4.0: "4×",
    8.0: "8×",
    16.0: "16×",
}


def draw(gains: Sequence[Gain]) -> Picture | None:
    """Draw a row per metric and workload with both policies' ratios; None without any."""
    found = {metric: rows.of_metric(gains, 5, metric) for metric in METRICS}
    found = {metric: some for metric, some in found.items() if some}
    if not found:
        return None
    message = _message(found)
    lines = sum(len({gain.workload for gain in some}) for some in found.values())
    figure, (axes,) = look.figure(
        message,
        "Host time over that of the technique as its original does it, in one interleaved run. "
        "Left of the line costs less. get_output is read long after arrival here; in a loop that "
        "waits, part of it is hidden behind the wait, and result latency is what counts.",
        rows.footer(next(iter(found.values()))),
        ROW * lines + HEADING * len(found) + 0.5,
    )
    at, ticks = 0.0, []
    for metric, some in found.items():
        axes.text(
            -0.01, at, metric, weight="bold", ha="right", va="center",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
        at += HEADING / ROW
        for workload in dict.fromkeys(gain.workload for gain in some):
            _row(axes, at, [gain for gain in some if gain.workload == workload])
            ticks.append((at, workload))
            at += 1
    axes.axvline(1, color=look.INK, linewidth=1.1)
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(at - 0.4, -0.6)
    axes.set_xscale("log")
    look.plain_log_ticks(axes.xaxis, RATIO_TICKS)
    axes.set_xlabel("time over the original's  (left: costs less, right: costs more)")
    look.legend(
        axes,
        {
            arm: {"marker": marker, "color": colour, "linestyle": "none"}
            for arm, (marker, colour) in LOOKS.items()
        },
        loc="upper right",
    )
    listed = "; ".join(
        f"{metric}, {gain.workload}: {gain.ratio:.2g}"
        for metric, some in found.items()
        for gain in some
        if gain.arm == DEFAULT
    )
    return Picture(
        "library",
        figure,
        message,
        f"Ratios of the library's host time to the original's. Default policy: {listed}.",
    )


def _row(axes: Any, at: float, some: Sequence[Gain]) -> None:
    for gain in some:
        marker, colour = LOOKS[gain.arm]
        place = at + (APART if gain.arm == PRESET else -APART)
        ratio, low, high = gain.ratio, gain.low, gain.high
        assert ratio is not None
        assert low is not None
        assert high is not None
        axes.errorbar(
            [ratio],
            [place],
            xerr=[[ratio - low], [high - ratio]],
            marker=marker,
            markersize=6,
            color=colour,
            ecolor=look.INK,
            elinewidth=1.1,
            capsize=2.5,
        )


def _message(found: dict[str, list[Gain]]) -> str:
    parts = []
    for metric, some in found.items():
        ratios = sorted(gain.ratio for gain in some if gain.arm == DEFAULT and gain.ratio)
        if ratios:
            ends = dict.fromkeys(f"{ratio:.2g}" for ratio in (ratios[0], ratios[-1]))
            parts.append(f"{metric} {'–'.join(ends)}")
    return f"The default policy's cost, the original's being 1: {', '.join(parts)}"
