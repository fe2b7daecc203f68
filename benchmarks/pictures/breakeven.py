"""Where each technique begins to pay: modelled curves with the measured points on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncout.virtual import CostProfile
from benchmarks import names
from benchmarks.grids import streams as question1
from benchmarks.pictures import look, model, rows, waits
from benchmarks.pictures.look import Picture
from benchmarks.pictures.model import Curve
from benchmarks.results import Gain

#: Share of the time that a technique must save to be called worth it.
WORTH = 0.01

#: Inches of the panels.
HEIGHT = 3.3

#: Line of each curve of a panel, in order; the last ones are the longer steps.
LINES = ((look.SKY, ":"), (look.GREEN, "-."), (look.BLUE, "-"), (look.PURPLE, "--"))

#: Marker of the measured points that belong to each of the waits.
WAIT_LOOKS = {"spin": ("^", look.ORANGE, "--"), "hybrid": ("o", look.BLUE, "-")}

TIME_TICKS = {
    1e-6: "1 µs",
    1e-5: "10 µs",
    1e-4: "0.1 ms",
    1e-3: "1 ms",
    1e-2: "10 ms",
    1e-1: "100 ms",
}
SIZE_TICKS = {4096.0: "4 KiB", 262144.0: "256 KiB", float(16 << 20): "16 MiB"}

#: A measured point: x, share saved, and the share's interval.
Point = tuple[float, float, float, float]


def draw(gains: Sequence[Gain], profile: CostProfile) -> Picture:
    """Draw a panel per technique.

    Parameters
    ----------
    gains : sequence of Gain
        Measured ones of the machine that the profile describes; a panel whose rows are
        missing shows its curve alone.
    profile : CostProfile
    """
    streams, memory = model.second_stream(profile), model.pinned_memory(profile)
    waiting = model.not_blocking(profile)
    message = _message(streams, waiting)
    owner = rows.footer(gains) if gains else "nothing measured"
    figure, (left, middle, right) = look.figure(
        message,
        "Time saved by each technique. Lines are MODELLED: the virtual device with the profile "
        f"{profile.machine}. Points are measured on the machine below, with 95 % intervals. The "
        f"dashed level is {rows.percent(WORTH)}.",
        f"lines: modelled, profile {profile.machine} · points: {owner}",
        HEIGHT,
        panels=3,
    )
    for curve, (colour, line) in zip(streams, LINES, strict=True):
        left.plot(curve.x, _percent(curve.saved), color=colour, linestyle=line, label=curve.label)
    step = f"{question1.COMPUTE_S * 1e3:g} ms step"
    _points(left, stream_points(gains), "s", look.INK, f"measured, {step}")
    left.set_title("Second stream")
    left.set_xlabel("the copy's own time")
    left.set_ylabel("time saved, %")

    middle.plot(memory[0].x, _percent(memory[0].saved), color=look.BLUE, label="modelled")
    _points(middle, memory_points(gains), "s", look.INK, "measured")
    middle.set_title("Pinned memory")
    middle.set_xlabel("size of the copy")

    measured = wait_points(gains)
    for curve in waiting:
        marker, colour, line = WAIT_LOOKS[curve.label]
        right.plot(curve.x, _percent(curve.saved), color=colour, linestyle=line, label=curve.label)
        _points(right, measured.get(curve.label, []), marker, colour, f"{curve.label}, measured")
    right.set_title("Not blocking while waiting")
    right.set_xlabel("time to the event")

    for axes, ticks in ((left, TIME_TICKS), (middle, SIZE_TICKS), (right, TIME_TICKS)):
        axes.set_xscale("log")
        least, most = axes.get_xlim()
        look.plain_log_ticks(
            axes.xaxis, {at: text for at, text in ticks.items() if least <= at <= most}
        )
        axes.set_xlim(least, most)
        if axes is middle:  # it may cost, or save nearly all: both are seen on a plain axis
            axes.axhline(0, color=look.GREY, linewidth=0.8)
            axes.set_ylim(top=119)
        else:
            axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
            axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
            axes.set_ylim(-0.3, 900)
        axes.axhline(100 * WORTH, color=look.GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.legend(loc="upper right" if axes is right else "upper left", fontsize=7.5, ncols=1)
    alt = (
        "Three panels of modelled curves with measured points: the share of time saved by a second "
        "stream against the copy's own time, by pinned memory against size, and by spin and hybrid "
        "waits against the time to the event."
    )
    return Picture("breakeven", figure, message, alt)


def stream_points(gains: Sequence[Gain]) -> list[Point]:
    """Give question 1's workloads by their copy's own time.

    The copy alone is not among the rows; it is exposed time over its share, of one stream,
    where it is nearly all exposed. Those behind real kernels are left out: the curves know
    kernels that only take time.
    """
    by_name = {(gain.metric, gain.workload): gain for gain in gains if gain.question == 1}
    found = []
    for gain in rows.of_metric(gains, 1, question1.STEP_TIME):
        time = by_name.get((question1.EXPOSED_TIME, gain.workload))
        share = by_name.get((question1.EXPOSED_SHARE, gain.workload))
        is_real = gain.workload.endswith(names.REAL_KERNELS)
        if not is_real and time and share and share.baseline_value > 0:
            found.append((time.baseline_value / share.baseline_value, *rows.saved(gain)))
    return found


def memory_points(gains: Sequence[Gain]) -> list[Point]:
    """Give question 2's copy times by size."""
    return [
        (float(names.SIZES[gain.workload]), *rows.saved(gain))
        for gain in rows.of_metric(gains, 2, "copy time")
    ]


def wait_points(gains: Sequence[Gain]) -> dict[str, list[Point]]:
    """Give, for each wait, the share of step and wake-up together that block loses to it.

    The interval is that of the ratio of wake-ups, at block's median wake-up.
    """
    found: dict[str, list[Point]] = {}
    for gain in rows.of_metric(gains, 3, waits.WAKE_UP):
        seconds, late = names.WAITS[gain.workload], gain.baseline_value
        shares = [share * late / (seconds + late) for share in rows.saved(gain)]
        found.setdefault(gain.arm, []).append((seconds, shares[0], shares[1], shares[2]))
    return found


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _points(axes: Any, points: Sequence[Point], marker: str, colour: str, label: str) -> None:
    if not points:
        return
    axes.errorbar(
        [x for x, _, _, _ in points],
        [100 * share for _, share, _, _ in points],
        yerr=[
            [100 * (share - low) for _, share, low, _ in points],
            [100 * (high - share) for _, share, _, high in points],
        ],
        fmt=marker,
        color=colour,
        ecolor=look.INK,
        elinewidth=1,
        capsize=2,
        markersize=5,
    )
    axes.plot([], [], marker, color=colour, label=label, markersize=5)


def _message(streams: Sequence[Curve], waiting: Sequence[Curve]) -> str:
    parts = []
    middle = next(c for c in streams if c.label == f"{question1.COMPUTE_S * 1e3:g} ms step")
    if crossed := middle.crossings(WORTH):
        parts.append(
            f"a second stream saves {rows.percent(WORTH)} of a {middle.label} from "
            f"{rows.short(crossed[0])} of copying"
        )
    hybrid = next(curve for curve in waiting if curve.label == "hybrid")
    if hybrid.saved[-1] < WORTH and (crossed := hybrid.crossings(WORTH)):
        parts.append(f"the hybrid wait as much up to steps of {rows.short(crossed[-1])}")
    return "Modelled: " + (", ".join(parts) or "what each technique saves")
