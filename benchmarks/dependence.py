"""How far samples that were taken one after the other depend on each other.

A machine has slow and fast spells: what is slow now is likely to be slow in the next
round too, also in the ratio of two arms when a spell concerns one of them. So many
samples then say less than so many independent ones, and an interval that does not know
it is too narrow. Pure; knows neither devices nor verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

#: Lags that are looked at, as a share of the sample count: an estimate over fewer than
#: two thirds of the pairs is mostly noise.
LAG_SHARE = 1 / 3


def inflation(values: Sequence[float]) -> float:
    """Estimate how many dependent samples say as much as one independent sample.

    Only whether a sample lies above or below the median counts, as it does for the
    median's rank interval, so outliers and skew change nothing.

    Parameters
    ----------
    values : sequence of float
        In the order in which they were taken.

    Returns
    -------
    float
        1 for independent samples, and never less: samples that alternate say more, but
        a measurement must not gain from what nobody can explain. At most the count.

    Notes
    -----
    It is the variance of the count of samples below the median, over what it would be
    for independent ones: 1 plus twice the sum of the autocorrelations of the signs. The
    sum ends with the first two neighbouring lags that are not positive together, as
    later ones are noise. Estimated around their own median, signs look less correlated
    than they are; the last step undoes that to first order.
    """
    count = len(values)
    middle = median(values)
    signs = [int(value > middle) - int(value < middle) for value in values]
    mean = sum(signs) / count
    centred = [sign - mean for sign in signs]
    variance = sum(sign * sign for sign in centred)
    if variance == 0:
        return 1.0
    total, lag = -1.0, 0
    while lag + 1 <= count * LAG_SHARE:
        pair = sum(_product(centred, at) for at in (lag, lag + 1)) / variance
        if pair <= 0:
            break
        total += 2 * pair
        lag += 2
    total = max(1.0, total)
    return min(total / max(1 - total / count, 0.5), float(count)) if total > 1 else 1.0


def _product(centred: Sequence[float], lag: int) -> float:
    return sum(a * b for a, b in zip(centred, centred[lag:], strict=False))
