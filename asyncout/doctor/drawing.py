"""The break-even curves as a picture: plain SVG, so that nothing has to be installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from asyncout.doctor import units
from asyncout.doctor.what_if import WORTH_SHARE, Curve
from asyncout.doctor.workloads import Workload

#: Size of the picture and of the margins around the axes, pixels.
_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 130, 60, 60

#: Colours that people with colour blindness can tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")

#: Most that a second stream can save: where the copy lasts as long as the kernels.
_MOST_GAIN = 0.5

#: Gains that have a line across.
_GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)

#: Every so many powers of two have a label below.
_LABEL_EVERY = 4


def draw(path: Path, curves: Sequence[Curve], workload: Workload) -> None:
    """Write the picture of some links' curves.

    Parameters
    ----------
    path : Path
    curves : sequence of Curve
    workload : Workload
        Its step length and number of tensors are in the title.
    """
    path.write_text(svg(curves, workload), encoding="utf-8")


def svg(curves: Sequence[Curve], workload: Workload) -> str:
    """Give the picture as text."""
    sizes = sorted({size for curve in curves for size, _ in curve.points})
    x, y = _axes(sizes[0], sizes[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        _words(_LEFT, 24, "What a second stream saves of a step (modelled)", "start", 17),
        _words(
            _LEFT,
            44,
            f"{units.seconds(workload.step_s)} of kernels, {workload.tensors} tensors a step; "
            f"dashed: {units.share(WORTH_SHARE)}",
            "start",
        ),
    ]
    for gain in _GRID:
        parts.append(_line(_LEFT, y(gain), _WIDTH - _RIGHT, y(gain), "#ddd"))
        parts.append(_words(_LEFT - 8, y(gain) + 4, units.share(gain), "end"))
    worth = y(WORTH_SHARE)
    parts.append(_line(_LEFT, worth, _WIDTH - _RIGHT, worth, "#555", ' stroke-dasharray="5 4"'))
    for size in sizes[::_LABEL_EVERY]:
        parts.append(_line(x(size), y(0), x(size), y(0) + 6, "#555"))
        parts.append(_words(x(size), y(0) + 22, units.num_bytes(size), "middle"))
    parts.append(_words(_WIDTH / 2, _HEIGHT - 14, "bytes of a step's output", "middle"))
    for index, curve in enumerate(curves):
        parts += _curve(curve, _COLOURS[index % len(_COLOURS)], index, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _axes(low: int, high: int) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Give the two scales: powers of two across, shares upwards."""
    span = math.log2(high / low)

    def x(size: float) -> float:
        return _LEFT + math.log2(size / low) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(gain: float) -> float:
        return _HEIGHT - _BOTTOM - gain / _MOST_GAIN * (_HEIGHT - _TOP - _BOTTOM)

    return x, y


def _curve(
    curve: Curve,
    colour: str,
    index: int,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    points = " ".join(f"{x(size):.1f},{y(gain):.1f}" for size, gain in curve.points)
    # Names beside the axes, not at the curves' ends, where they would lie on each other.
    row = _TOP + 20 * index
    return [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
        _line(_WIDTH - _RIGHT + 12, row, _WIDTH - _RIGHT + 30, row, colour, ' stroke-width="2"'),
        _words(_WIDTH - _RIGHT + 36, row + 4, curve.link, "start"),
    ]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'
    )


def _words(x: float, y: float, text: str, anchor: str, size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
