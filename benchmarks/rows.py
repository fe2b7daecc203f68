"""What grids make of samples, and asv's classes show: a row a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.measure import PairedSamples


@dataclass(frozen=True)
class Row:
    """One comparison at one workload.

    Attributes
    ----------
    metric : str
    workload : str
    comparison : str
        "arm / baseline"; see :func:`comparison`.
    samples : PairedSamples
    bound : float or None
        The least ratio that there could be, where theory gives one.
    """

    metric: str
    workload: str
    comparison: str
    samples: PairedSamples
    bound: float | None = None


def comparison(arm: str, baseline: str) -> str:
    """Name a comparison, as parameters and reports write it."""
    return f"{arm} / {baseline}"
