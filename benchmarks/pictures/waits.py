"""Question 3 as a picture: how late each wait wakes, against the CPU time that it burns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.report import human
from benchmarks.results import Gain

WAKE_UP, CPU_SHARE = "wake-up latency", "CPU burnt per wait"

#: Inches of the panel.
HEIGHT = 3.5

LOOKS = {"block": ("s", look.RED), "spin": ("^", look.ORANGE), "hybrid": ("o", look.BLUE)}

WHAT = {
    "block": "block: asleep in the driver",
    "spin": "spin: running on a core",
    "hybrid": "hybrid: asleep, then spinning",
}

#: Ticks of both axes, as far as they lie in what is shown.
CPU_TICKS = {0.001: "0.1 %", 0.003: "0.3 %", 0.01: "1 %", 0.03: "3 %", 0.1: "10 %", 0.3: "30 %",
             1.0: "100 %"}  # fmt: skip
LATE_TICKS = {
    seconds * 1e-6: f"{seconds} µs" for seconds in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
}


@dataclass(frozen=True)
class Point:
    """One wait of one length: medians and their intervals."""

    wait: str
    length: str
    late: float
    late_interval: tuple[float, float]
    cpu: float
    cpu_interval: tuple[float, float]


def points(gains: Sequence[Gain]) -> list[Point]:
    """Collect each wait's two values at each length, wherever it was arm or baseline."""
    late, cpu = (_values(rows.of_metric(gains, 3, metric)) for metric in (WAKE_UP, CPU_SHARE))
    return [
        Point(wait, length, *late[wait, length], *cpu[wait, length])
        for wait, length in late
        if (wait, length) in cpu
    ]


def _values(found: Sequence[Gain]) -> dict[tuple[str, str], tuple[float, tuple[float, float]]]:
    values = {}
    for gain in found:
        for name, value, interval in (
            (gain.arm, gain.arm_value, gain.arm_interval),
            (gain.baseline, gain.baseline_value, gain.baseline_interval),
        ):
            values[name, gain.workload] = value, interval or (value, value)
    return values


def draw(gains: Sequence[Gain]) -> Picture | None:
    """Draw a point per wait and length; None without such rows."""
    found = points(gains)
    if not found:
        return None
    message = _message(found)
    figure, (axes,) = look.figure(
        message,
        "Each point is one way to wait for an event of a kernel of the length beside it. Towards "
        "the lower left is better: awake soon after the GPU is done, the core free meanwhile.",
        rows.footer(rows.of_metric(gains, 3, WAKE_UP)),
        HEIGHT,
    )
    for wait, (marker, colour) in LOOKS.items():
        some = [point for point in found if point.wait == wait]
        axes.errorbar(
            [point.cpu for point in some],
            [point.late for point in some],
            xerr=_arms([(point.cpu, point.cpu_interval) for point in some]),
            yerr=_arms([(point.late, point.late_interval) for point in some]),
            marker=marker,
            markersize=7,
            color=colour,
            linewidth=0.9,
            linestyle=":",
            ecolor=look.INK,
            elinewidth=1,
            capsize=2.5,
        )
        for point in some:
            # Spinning points lie below each other: their lengths go to the left.
            to_left = point.cpu > 0.5
            axes.annotate(
                point.length,
                (point.cpu, point.late),
                (-9 if to_left else 9, 5 if not to_left else 0),
                textcoords="offset points",
                ha="right" if to_left else "left",
                va="center" if to_left else "bottom",
                fontsize=8.5,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    look.plain_log_ticks(axes.xaxis, CPU_TICKS)
    look.plain_log_ticks(axes.yaxis, LATE_TICKS)
    least = min(point.cpu_interval[0] for point in found)
    axes.set_xlim(max(least, 1e-4) / 1.3, 1.5)
    axes.set_xlabel("CPU time burnt, share of the wait")
    axes.set_ylabel("wake-up after the GPU is done")
    axes.margins(y=0.12)
    look.legend(
        axes,
        {
            WHAT[wait]: {"marker": marker, "color": colour, "linestyle": "none", "markersize": 7}
            for wait, (marker, colour) in LOOKS.items()
        },
        loc="upper right",
    )
    listed = "; ".join(
        f"{point.wait} {point.length}: {human(point.late, 'seconds')} late, "
        f"{rows.percent(point.cpu)} of a core"
        for point in found
    )
    return Picture("waits", figure, message, f"Wake-up latency against CPU time. {listed}.")


def _arms(values: Sequence[tuple[float, tuple[float, float]]]) -> list[list[float]]:
    """Give the lengths of the error bars below and above."""
    return [
        [max(0.0, value - low) for value, (low, _) in values],
        [max(0.0, high - value) for value, (_, high) in values],
    ]


def _message(found: Sequence[Point]) -> str:
    lengths = list(dict.fromkeys(point.length for point in found))
    length = lengths[len(lengths) // 2]
    at = {point.wait: point for point in found if point.length == length}
    if set(at) != set(LOOKS):
        return f"How late each wait wakes, and what it burns, after {length}"
    late = {wait: rows.short(point.late) for wait, point in at.items()}
    return (
        f"After {length}, hybrid is back in {late['hybrid']} for {rows.percent(at['hybrid'].cpu)} "
        f"of a core; block takes {late['block']}, spin {late['spin']} and a whole core"
    )
