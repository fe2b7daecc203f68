"""Question 2 as a picture: pinned and pageable memory by the size of the copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import names
from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.report import human
from benchmarks.results import Gain

COPY_TIME, HOST_HELD = "copy time", "host held by the call"

#: Inches of the panels.
HEIGHT = 3.1

#: Ticks of an axis of seconds, as far as they lie in what is shown.
TIME_TICKS = {
    1e-6: "1 µs",
    1e-5: "10 µs",
    1e-4: "100 µs",
    1e-3: "1 ms",
    1e-2: "10 ms",
    1e-1: "100 ms",
    1.0: "1 s",
}

#: Least factor between two sizes whose names fit side by side.
TICK_GAP = 64

#: Marker and colour of each metric's gain, and of each kind of memory.
GAIN_LOOKS = {COPY_TIME: ("o", look.BLUE), HOST_HELD: ("s", look.ORANGE)}
KIND_LOOKS = {"pinned": ("o", look.BLUE, "-"), "pageable": ("^", look.RED, "--")}


def draw(gains: Sequence[Gain]) -> Picture | None:
    """Draw both kinds' times and the gain, by size; None without such rows."""
    copies, held = (rows.of_metric(gains, 2, metric) for metric in (COPY_TIME, HOST_HELD))
    if not copies or not held:
        return None
    message = _message(copies, held)
    figure, (left, middle, right) = look.figure(
        message,
        "A copy from the GPU to host memory of either kind. Copy time: from the call until the "
        "bytes are there, the GPU idle before. Host held: time inside the call, with 1 ms of "
        "kernels ahead of the copy.",
        rows.footer(copies),
        HEIGHT,
        panels=3,
    )
    _times(left, copies, "Copy time")
    _times(middle, held, "Time the call holds the host")
    look.legend(
        left,
        {
            kind: {"marker": marker, "color": colour, "linestyle": line}
            for kind, (marker, colour, line) in KIND_LOOKS.items()
        },
        loc="upper left",
    )
    for metric, found in ((COPY_TIME, copies), (HOST_HELD, held)):
        marker, colour = GAIN_LOOKS[metric]
        factors = [rows.factor(gain) for gain in found]
        right.errorbar(
            [names.SIZES[gain.workload] for gain in found],
            [value for value, _, _ in factors],
            yerr=[
                [value - low for value, low, _ in factors],
                [high - value for value, _, high in factors],
            ],
            marker=marker,
            color=colour,
            ecolor=look.INK,
            elinewidth=1,
            capsize=2.5,
        )
    right.axhline(1, color=look.GREY, linewidth=0.9)
    right.set_title("Times faster when pinned")
    right.set_yscale("log")
    look.plain_log_ticks(right.yaxis, {1: "1×", 10: "10×", 100: "100×", 1000: "1,000×"})
    look.legend(
        right,
        {
            metric.split(" by ")[0]: {"marker": marker, "color": colour}
            for metric, (marker, colour) in GAIN_LOOKS.items()
        },
        loc="upper left",
    )
    for axes in (left, middle, right):
        axes.set_xscale("log")
        look.plain_log_ticks(axes.xaxis, _size_ticks(copies))
        axes.set_xlabel("size of the copy")
    listed = "; ".join(
        f"{gain.workload}: {human(gain.arm_value, gain.unit)} pinned, "
        f"{human(gain.baseline_value, gain.unit)} pageable"
        for gain in copies
    )
    return Picture(
        "memory",
        figure,
        message,
        f"Lines by size of the copy, for pinned and pageable memory. Copy time at {listed}.",
    )


def _times(axes: Any, found: Sequence[Gain], title: str) -> None:
    sizes = [names.SIZES[gain.workload] for gain in found]
    for kind in KIND_LOOKS:
        marker, colour, line = KIND_LOOKS[kind]
        values, intervals = [], []
        for gain in found:
            is_arm = gain.arm == kind
            value = gain.arm_value if is_arm else gain.baseline_value
            interval = gain.arm_interval if is_arm else gain.baseline_interval
            values.append(value)
            intervals.append(interval or (value, value))
        axes.errorbar(
            sizes,
            values,
            yerr=[
                [max(0.0, value - low) for value, (low, _) in zip(values, intervals, strict=True)],
                [
                    max(0.0, high - value)
                    for value, (_, high) in zip(values, intervals, strict=True)
                ],
            ],
            marker=marker,
            color=colour,
            linestyle=line,
            ecolor=look.INK,
            elinewidth=1,
            capsize=2.5,
        )
    axes.set_title(title)
    axes.set_yscale("log")
    look.plain_log_ticks(axes.yaxis, TIME_TICKS)


def _size_ticks(found: Sequence[Gain]) -> dict[float, str]:
    """Give the largest size, and those below it whose names do not touch."""
    shown: dict[float, str] = {}
    for gain in reversed(found):
        size = names.SIZES[gain.workload]
        if not shown or size <= min(shown) / TICK_GAP:
            shown[size] = gain.workload
    return shown


def _message(copies: Sequence[Gain], held: Sequence[Gain]) -> str:
    small, large = copies[0], copies[-1]
    return (
        f"Pinned memory copies {rows.times(rows.factor(small)[0])} as fast at {small.workload} and "
        f"{rows.times(rows.factor(large)[0])} at {large.workload}; its call returns in "
        f"{rows.short(held[-1].arm_value)} instead of "
        f"{rows.short(held[-1].baseline_value)}"
    )
