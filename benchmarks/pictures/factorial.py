"""Question 4 as a picture: what each axis of the policy saves of a step, by the output's size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from asyncout.doctor.workloads import SHAPES
from benchmarks import names
from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.results import Gain

METRIC = "step time by policy"

#: A panel an axis: its title, and the levels that are compared.
PANELS = (
    ("A second stream", "dual", "single"),
    ("Pinned memory", "pinned", "pageable"),
    ("The hybrid wait", "hybrid", "block"),
    ("One batched call", "batched", "per_tensor"),
)

#: Colour and marker of each step length.
LENGTHS = dict(
    zip(
        names.STEP_LENGTHS,
        (
            {"color": look.ORANGE, "marker": "^"},
            {"color": look.BLUE, "marker": "o"},
            {"color": look.GREEN, "marker": "s"},
            {"color": look.PURPLE, "marker": "D"},
        ),
        strict=True,
    )
)

HEIGHT = 3.2

#: Percent within which the vertical axis is linear, and its ends; the lowest decade is left
#: free for the legend.
LINEAR, LEAST, MOST = 1.0, -130.0, 130.0

SIZE_TICKS = {16.0: "16 B", 4096.0: "4 KiB", float(1 << 20): "1 MiB", float(128 << 20): "128 MiB"}


def draw(gains: Sequence[Gain]) -> Picture | None:
    """Draw a panel per axis with a point per block; None without such rows."""
    found = [
        gain for gain in rows.of_metric(gains, 4, METRIC) if _parts(gain.workload)[0] in SHAPES
    ]
    panels = [
        [gain for gain in found if (gain.arm, gain.baseline) == (level, reference)]
        for _, level, reference in PANELS
    ]
    if not all(panels):
        return None
    message = _message(panels)
    figure, axes = look.figure(
        message,
        "Step time saved by each axis of the policy, averaged over all levels of the others: a "
        "point is a workload in a loop. Filled: each output is read while the next step computes. "
        "Hollow: it is read before the next step is launched. Bars: 95 % intervals.",
        rows.footer(found),
        HEIGHT,
        panels=len(PANELS),
    )
    for place, (panel, (title, level, reference), points) in enumerate(
        zip(axes, PANELS, panels, strict=True)
    ):
        for gain in points:
            _point(panel, gain)
        panel.axhline(0, color=look.GREY, linewidth=0.8)
        panel.set_xscale("log")
        look.plain_log_ticks(panel.xaxis, SIZE_TICKS)
        panel.tick_params(axis="x", labelrotation=45)
        panel.set_xlim(8, 512 << 20)
        panel.set_yscale("symlog", linthresh=LINEAR, linscale=0.7)
        panel.set_yticks([-10, -1, 0, 1, 10, 100], ["-10", "-1", "0", "1", "10", "100"])
        panel.set_ylim(LEAST, MOST)
        panel.set_title(title)
        panel.set_xlabel(f"bytes of the output\n{level} / {reference}")
        if place:
            panel.tick_params(axis="y", labelleft=False)
    axes[0].set_ylabel("step time saved, %")
    looks = {
        f"{length} steps": {**drawn, "linestyle": "none", "markersize": 5}
        for length, drawn in LENGTHS.items()
    }
    look.legend(axes[-1], looks, loc="lower left", fontsize=7, ncols=2, columnspacing=0.8)
    alt = "Four panels of points, step time saved by size of the output. " + "; ".join(
        f"{title}: {rows.percent(_middle(points))} at the median, up to "
        f"{rows.percent(max(rows.saved(gain)[0] for gain in points))}"
        for (title, _, _), points in zip(PANELS, panels, strict=True)
    )
    return Picture("factorial", figure, message, f"{alt}.")


def _point(panel: Any, gain: Gain) -> None:
    workload, loop, length = _parts(gain.workload)
    share, low, high = (100 * value for value in rows.saved(gain))
    drawn = LENGTHS[length]
    panel.errorbar(
        [SHAPES[workload][0]],
        [share],
        yerr=[[share - low], [high - share]],
        fmt=drawn["marker"],
        color=drawn["color"],
        markerfacecolor=drawn["color"] if loop == "pipelined" else look.PAPER,
        ecolor=look.GREY,
        elinewidth=0.8,
        markersize=5,
    )


def _parts(block: str) -> tuple[str, str, str]:
    """Give a block's workload, loop and step length."""
    workload, loop, length = block.rsplit(", ", 2)
    return workload, loop, length


def _middle(gains: Sequence[Gain]) -> float:
    shares = sorted(rows.saved(gain)[0] for gain in gains)
    return shares[len(shares) // 2]


def _message(panels: Sequence[Sequence[Gain]]) -> str:
    means = [1 - geometric_mean(gain.ratio or math.inf for gain in some) for some in panels]
    listed = ", ".join(
        f"{title[0].lower()}{title[1:]} {rows.percent(mean)}"
        for (title, _, _), mean in zip(PANELS, means, strict=True)
    )
    return f"Of a step's time, on average over {len(panels[0])} loops: {listed}"
