"""Where each technique begins to pay: modelled curves with the measured points on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from asyncout.doctor.workloads import SHAPES
from asyncout.virtual import CostProfile
from benchmarks import names
from benchmarks.fit.fitting import fitted_commit
from benchmarks.grids import factorial as question4
from benchmarks.grids import streams as question1
from benchmarks.pictures import look, model, rows, waits
from benchmarks.pictures.look import Picture
from benchmarks.pictures.model import Curve
from benchmarks.results import Gain

#: Share of the time that a technique must save to be called worth it.
WORTH = 0.01

#: Inches of the panels.
HEIGHT = 3.6

#: Colour, line and marker of each step length, the same in every panel that has it.
STEP_LOOKS: dict[float, tuple[str, Any, str]] = {
    0.1e-3: (look.SKY, ":", "v"),
    0.5e-3: (look.GREEN, "-.", "^"),
    2e-3: (look.BLUE, "-", "o"),
    10e-3: (look.PURPLE, "--", "s"),
    30e-3: (look.RED, (0, (5, 1, 1, 1, 1, 1)), "D"),
}

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
SIZE_TICKS = {64.0: "64 B", 16384.0: "16 KiB", float(4 << 20): "4 MiB"}

#: Percent within which the vertical axes are linear; above, a decade is a decade, so that both
#: 1 % and 80 % can be read. The last is left free for the legends.
LINEAR, TOP = 1.0, 3000.0

#: Percent down to which a panel shows at least what is lost.
LOSS = -2.0

#: A measured point: x, share saved, and the share's interval.
Point = tuple[float, float, float, float]


@dataclass(frozen=True)
class Block:
    """A pipelined block of question 4: what pinned memory saved there, and what the model says.

    Attributes
    ----------
    seconds : float
        Of a step's kernels.
    point : Point
        By the bytes of the workload's output.
    modelled : float
        Share that is saved by the model, for as many bytes in as many tensors.
    pinned_error, pageable_error : float
        Modelled step time over the measured one with that memory, less 1.
    """

    seconds: float
    point: Point
    modelled: float
    pinned_error: float
    pageable_error: float


def draw(gains: Sequence[Gain], profile: CostProfile, origin: str) -> Picture:
    """Draw a panel per technique.

    Parameters
    ----------
    gains : sequence of Gain
        Measured ones of the machine that the profile describes; a panel whose rows are
        missing shows its curves alone.
    profile : CostProfile
    origin : str
        Name of the profile's file.
    """
    streams, memory = model.second_stream(profile), model.pinned_memory(profile)
    waiting, blocks = model.not_blocking(profile), memory_blocks(gains, profile)
    message = _message(streams, waiting, blocks)
    owner = rows.footer(gains) if gains else "nothing measured"
    commit = fitted_commit(profile)
    fitted = f"fitted at {commit}" if commit else "not fitted"
    figure, (left, middle, right) = look.figure(
        message,
        "Time saved by each technique. Lines are MODELLED: the virtual device with the profile "
        "named below. Points are measured, with 95 % intervals. Pinned memory is averaged over "
        "all levels of the other axes; its lines are of one tensor, its points no part of the fit. "
        f"The dashed level is {rows.percent(WORTH)}." + _missed(blocks),
        f"lines: modelled, profile {origin}, {fitted} · points: {owner}",
        HEIGHT,
        panels=3,
    )
    for curve, seconds in zip(streams, model.STEPS_S, strict=True):
        colour, line, _ = STEP_LOOKS[seconds]
        left.plot(curve.x, _percent(curve.saved), color=colour, linestyle=line, label=curve.label)
    _points(left, stream_points(gains), "s", look.INK)
    if stream_points(gains):
        step = model.step_label(question1.COMPUTE_S)
        left.plot([], [], "s", color=look.INK, label=f"measured, {step}", markersize=5)
    left.set_title("Second stream")
    left.set_xlabel("the copy's own time")
    left.set_ylabel("time saved, %")

    for curve, seconds in zip(memory, names.STEP_LENGTHS.values(), strict=True):
        colour, line, marker = STEP_LOOKS[seconds]
        points = [block.point for block in blocks if block.seconds == seconds]
        middle.plot(curve.x, _percent(curve.saved), color=colour, linestyle=line)
        _points(middle, points, marker, colour)
        both = {"linestyle": line, "marker": marker if points else None, "markersize": 5}
        middle.plot([], [], color=colour, label=curve.label, **both)
    middle.set_title("Pinned memory")
    middle.set_xlabel("bytes of the step's output")

    measured = wait_points(gains)
    for curve in waiting:
        marker, colour, line = WAIT_LOOKS[curve.label]
        right.plot(curve.x, _percent(curve.saved), color=colour, linestyle=line, label=curve.label)
        if points := measured.get(curve.label, []):
            _points(right, points, marker, colour)
            label = f"{curve.label}, measured"
            right.plot([], [], marker, color=colour, label=label, markersize=5)
    right.set_title("Not blocking while waiting")
    right.set_xlabel("time to the event")

    for axes, ticks in ((left, TIME_TICKS), (middle, SIZE_TICKS), (right, TIME_TICKS)):
        axes.set_xscale("log")
        least, most = axes.get_xlim()
        look.plain_log_ticks(
            axes.xaxis, {at: text for at, text in ticks.items() if least <= at <= most}
        )
        axes.set_xlim(least, most)
        axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
        axes.set_yticks([-1, 0, 1, 10, 100], ["-1", "0", "1", "10", "100"])
        axes.minorticks_off()  # none where a legend is
        axes.set_ylim(min(LOSS, 2 * axes.dataLim.y0), TOP)
        axes.axhline(0, color=look.GREY, linewidth=0.8)
        axes.axhline(100 * WORTH, color=look.GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.legend(loc="upper right" if axes is right else "upper left", fontsize=7.5, ncols=1)
    alt = (
        "Three panels of modelled curves with measured points: the share of time saved by a "
        "second stream against the copy's own time, of a pipelined step by pinned memory against "
        "the bytes of its output, and by spin and hybrid waits against the time to the event."
    )
    return Picture("breakeven", figure, message, alt + _missed(blocks))


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


def memory_blocks(gains: Sequence[Gain], profile: CostProfile) -> list[Block]:
    """Give question 4's pipelined blocks, beside what the model says of each."""
    found = []
    for gain in rows.of_metric(gains, 4, question4.STEP_TIME, "pinned"):
        workload, loop, length = names.block_parts(gain.workload)
        if loop != "pipelined" or workload not in SHAPES:
            continue
        (num_bytes, tensors), seconds = SHAPES[workload], names.STEP_LENGTHS[length]
        pinned, pageable = model.step_by_memory(profile, num_bytes, tensors, seconds)
        found.append(
            Block(
                seconds=seconds,
                point=(float(num_bytes), *rows.saved(gain)),
                modelled=1 - pinned / pageable,
                pinned_error=pinned / gain.arm_value - 1,
                pageable_error=pageable / gain.baseline_value - 1,
            )
        )
    return found


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


def _points(axes: Any, points: Sequence[Point], marker: str, colour: str) -> None:
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


def _missed(blocks: Sequence[Block]) -> str:
    """Say how far off the model's step times are under question 4's points, which memory it is."""
    if not blocks:
        return ""
    pinned = max((block.pinned_error for block in blocks), key=abs)
    pageable = max((block.pageable_error for block in blocks), key=abs)
    said = (
        f" In the loops of the measured points the model's step times are off by up to "
        f"{_signed(pinned)} with pinned memory and {_signed(pageable)} with pageable"
    )
    if pageable < -abs(pinned):
        said += (
            ": a pageable copy holds the host, and what the host then does by itself before the "
            "next launch is not in the model"
        )
    return said + "."


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{rows.percent(share)}"


def _message(streams: Sequence[Curve], waiting: Sequence[Curve], blocks: Sequence[Block]) -> str:
    parts = []
    middle = next(c for c in streams if c.label == model.step_label(question1.COMPUTE_S))
    if crossed := middle.crossings(WORTH):
        parts.append(
            f"a second stream saves {rows.percent(WORTH)} of a {middle.label} from "
            f"{rows.short(crossed[0])} of copying"
        )
    hybrid = next(curve for curve in waiting if curve.label == "hybrid")
    if hybrid.saved[-1] < WORTH and (crossed := hybrid.crossings(WORTH)):
        parts.append(f"the hybrid wait as much up to steps of {rows.short(crossed[-1])}")
    said = "Modelled: " + (", ".join(parts) or "what each technique saves")
    if blocks:
        saved = median(block.point[1] for block in blocks)
        modelled = median(block.modelled for block in blocks)
        said += (
            f"; pinned memory {rows.percent(modelled)} at the median of {len(blocks)} loops, where "
            f"{rows.percent(saved)} was measured"
        )
    return said
