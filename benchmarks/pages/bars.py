"""A ratio as a small drawing: a bar from 1 to the ratio, on a logarithmic scale."""

from __future__ import annotations

import math

from benchmarks.pages.markup import Markup, tag

WIDTH, HEIGHT = 120, 14

#: The scale ends a factor of ten to either side of 1; what lies beyond ends there too.
DECADES = 1.0

#: Height of the bar.
THICKNESS = 8


def bar(ratio: float, low: float, high: float) -> Markup:
    """Draw a ratio and its interval; the table beside says the same in figures."""
    middle, end, first, last = (_x(value) for value in (1.0, ratio, low, high))
    top = (HEIGHT - THICKNESS) / 2
    return tag(
        "svg",
        tag("line", class_="axis", x1=middle, x2=middle, y1=0, y2=HEIGHT),
        tag(
            "rect",
            class_="less" if ratio < 1 else "more",
            x=min(middle, end),
            y=top,
            width=round(abs(end - middle), 1),
            height=THICKNESS,
        ),
        tag("line", class_="interval", x1=first, x2=last, y1=HEIGHT / 2, y2=HEIGHT / 2),
        class_="bar",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        aria_hidden="true",
        focusable="false",
    )


def _x(ratio: float) -> float:
    decades = math.log10(ratio) if ratio > 0 else -DECADES
    clipped = max(-DECADES, min(DECADES, decades))
    return round(WIDTH / 2 * (1 + clipped / DECADES), 1)
