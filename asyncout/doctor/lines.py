"""Straight lines through measured times, by relative error: small sizes count as large ones do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncout.errors import ProfileError

#: Least part of a time that a fixed cost must leave for what grows with the size.
LEAST_REST = 0.05


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit ``seconds = fixed + per_unit * size``.

    Parameters
    ----------
    points : sequence of (size, seconds)
        Two or more sizes, seconds above 0.

    Returns
    -------
    fixed, per_unit : float
        Of the least sum of squared relative errors. `fixed` is at least 0.

    Raises
    ------
    ProfileError
        Fewer than two different sizes: they have no line.
    """
    if len({size for size, _ in points}) < 2:
        raise ProfileError(f"a line needs two different sizes; got {[size for size, _ in points]}")
    sizes, seconds = (np.array(column, float) for column in zip(*points, strict=True))
    # Scaled, or bytes and seconds are too far apart for the solver.
    scale = sizes.max()
    matrix = np.stack([1 / seconds, sizes / scale / seconds], axis=1)
    fixed, per_unit = np.linalg.lstsq(matrix, np.ones(len(points)), rcond=None)[0]
    if fixed < 0:
        return 0.0, fit_slope(points, 0.0)
    return float(fixed), float(per_unit / scale)


def fit_slope(points: Sequence[tuple[float, float]], fixed: float) -> float:
    """Fit ``per_unit`` of the same line where `fixed` is known already.

    A time that `fixed` alone would explain says nothing of the size and is left out.
    """
    telling = [(size, t) for size, t in points if size > 0 and t - fixed > LEAST_REST * t]
    if not telling:
        raise ProfileError("every time is explained by the fixed cost; take larger sizes")
    above = sum(size * (t - fixed) / t**2 for size, t in telling)
    below = sum(size**2 / t**2 for size, t in telling)
    return above / below
