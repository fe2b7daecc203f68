"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

#: Shares below this are rounding of sums, not gains.
_NOTHING = 1e-6


def seconds(value: float) -> str:
    """Write a time in a unit of its size."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def num_bytes(value: float) -> str:
    """Write a size in a binary unit."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def rate(bytes_per_s: float) -> str:
    """Write a bandwidth as links are sold: 1e9 bytes per second."""
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def share(value: float) -> str:
    """Write a share of one in percent."""
    if abs(value) < _NOTHING:
        return "0 %"
    return f"{value * 100:.3g} %"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align columns."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
