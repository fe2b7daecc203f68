"""The asv side of a question: its grid is measured once, and looked up by parameter.

A module of benchmarks has one class with a ``setup_cache``, which measures all of the
question in one process (arms interleaved, one CUDA context), and small subclasses that
name what is shown of it. asv shares an inherited ``setup_cache`` among subclasses.

Sample lists keep their order through asv, so that whoever reads the results takes
each ratio pair by pair.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from benchmarks.rows import Row

#: How long measuring one question may take before asv gives up on it, seconds.
SETUP_TIMEOUT_S = 600

#: The same for a grid that is measured whole in a night.
NIGHT_TIMEOUT_S = 6 * 3600


#: Rows of a question by (metric, workload, comparison), measured or modelled.
Cache = dict[bool, dict[tuple[str, str, str], Row]]


def collect(name: str) -> Cache:
    """Measure a question on the GPU, if there is one, and on the virtual device.

    Parameters
    ----------
    name : str
        A module of :mod:`benchmarks.grids`.

    Returns
    -------
    dict
        By ``modelled``; without a GPU there are no measured rows, and none of what an
        older commit of the library lacks.
    """
    from benchmarks import lacking

    cache: Cache = {False: {}, True: {}}
    with lacking.left_out(name):
        _measure(importlib.import_module(f"benchmarks.grids.{name}"), cache)
    return cache


def _measure(question: Any, cache: Cache) -> None:
    from benchmarks import devices, lacking
    from benchmarks.grids.plans import measure_question
    from benchmarks.runner import progress

    try:
        measured = devices.cuda_device()
    except devices.NoDeviceError as error:
        progress.report(f"measured rows are n/a: {error}")
    else:
        cache[False] = _by_key(measure_question(question, measured))
    with lacking.left_out("modelled rows"):
        cache[True] = _by_key(measure_question(question, devices.virtual_device()))


def _by_key(rows: Iterable[Row]) -> dict[tuple[str, str, str], Row]:
    return {(row.metric, row.workload, row.comparison): row for row in rows}


class Grid(ABC):
    """What is shown of one metric of a question. Abstract, so asv does not collect it.

    Attributes
    ----------
    question : int
    metric : str
    unit : str
        Of the two arms.
    modelled : bool
    least_effect : float
        Changes up to this share are no verdict.
    signed : bool
        Whether the arms are differences of two times, which may be zero or less.
    params : (list of str, list of str)
        Workloads and comparisons; the same on every machine.
    """

    question: ClassVar[int]
    metric: ClassVar[str]
    unit: ClassVar[str] = "seconds"
    modelled: ClassVar[bool] = False
    least_effect: ClassVar[float] = 0.0
    signed: ClassVar[bool] = False
    params: ClassVar[tuple[Sequence[str], Sequence[str]]]
    param_names = ("workload", "comparison")
    version = "1"

    @abstractmethod
    def setup_cache(self) -> Cache:
        """Measure all of the question."""

    def _row(self, cache: Cache, workload: str, comparison: str) -> Row | None:
        return cache[self.modelled].get((self.metric, workload, comparison))

    def track_arm(self, cache: Cache, workload: str, comparison: str) -> Any:
        """Give the arm's samples; n/a where the row was not measured."""
        row = self._row(cache, workload, comparison)
        return math.nan if row is None else _as_samples(row.samples.arm)

    def track_baseline(self, cache: Cache, workload: str, comparison: str) -> Any:
        """Give the baseline's samples, in the order of the arm's."""
        row = self._row(cache, workload, comparison)
        return math.nan if row is None else _as_samples(row.samples.baseline)

    def track_ratio(self, cache: Cache, workload: str, comparison: str) -> Any:
        """Give arm over baseline, pair by pair."""
        row = self._row(cache, workload, comparison)
        if row is None or min(row.samples.baseline) <= 0:
            return math.nan  # a difference that is not clearly above zero has no ratio
        return _as_samples(row.samples.ratios)

    # asv asks the method first, then the class.
    track_ratio.unit = "ratio"  # type: ignore[attr-defined]


class BoundedGrid(Grid):
    """A grid whose rows have a bound."""

    def track_bound(self, cache: Cache, workload: str, comparison: str) -> float:
        """Give the least ratio that there could be."""
        row = self._row(cache, workload, comparison)
        return math.nan if row is None or row.bound is None else row.bound

    track_bound.unit = "ratio"  # type: ignore[attr-defined]


def _as_samples(values: Sequence[float]) -> dict[str, Any]:
    # asv gives such a value a median and an interval, as it does for its own timings.
    return {"samples": list(values), "number": 1}
