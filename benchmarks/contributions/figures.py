"""Checks a file of asv's results: its names are known, its figures agree with each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.contributions import texts
from benchmarks.contributions.errors import RefusedError
from benchmarks.contributions.known import Grid, Known
from benchmarks.measure import MIN_SAMPLES

#: asv's version of its results, and their columns in that version.
VERSION = 2
COLUMNS = [
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b",
    "stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
]  # fmt: skip

_KEYS = {
    *("commit_hash", "env_name", "date", "params", "python", "requirements", "env_vars"),
    *("result_columns", "results", "durations", "version"),
}

#: Most samples of a cell: many times what the suites take.
MOST_SAMPLES = 20_000

#: Largest size of a figure by its unit: a question is given ten minutes, and a ratio or a
#: share beyond a million is no measurement; no device has a terabyte of memory yet.
LIMITS = {"seconds": 600.0, "bytes": 1e12}
OTHER_LIMIT = 1e6

#: Least figure of an arm by its unit, where it is no difference. A time that no clock can tell
#: from nothing is no measurement, and whoever divides by it or takes its logarithm stops; the
#: CPU's share of a wait and the memory of a step may be nothing.
LEAST = {"seconds": 1e-10, "ratio": 1 / OTHER_LIMIT}
OTHER_LEAST = 0.0

#: asv rounds its statistics to five digits.
ROUNDED = 1e-4

#: A figure that is computed from others is computed in double precision.
EXACT = 1e-9

_HASH = re.compile(r"[0-9a-f]{40}")
_PARAMETER = re.compile(r"'([^']*)'")
_BENCHMARK_VERSION = re.compile(r"[0-9a-f]{1,64}")
_OTHER_DURATION = re.compile(r"<(setup_cache [A-Za-z0-9_]+:[0-9]+|build)>")

#: Last moment that asv could write: the year 2100, in milliseconds.
_LAST_MOMENT = 4_102_444_800_000


@dataclass(frozen=True)
class Cells:
    """One benchmark's figures.

    Attributes
    ----------
    params : list of list of str
    values : list of float or None
        NaN is None here: n/a.
    samples : list of (list of float) or None
    """

    params: list[list[str]]
    values: list[float | None]
    samples: list[list[float] | None]


def check(text: str, file: str, machine: Mapping[str, str], known: Known) -> str:
    """Check a results file; give its commit.

    Parameters
    ----------
    text, file : str
    machine : dict of str to str
        The fields of the machine that the file must be of.
    known : Known

    Raises
    ------
    RefusedError
    """
    data = texts.table(texts.parse(text, file), file)
    if data.get("version") != VERSION:
        raise RefusedError("version", f"{file} is of another version of asv")
    if data.keys() != _KEYS or data["result_columns"] != COLUMNS:
        raise RefusedError("schema", f"{file} has not the keys or columns of asv's results")
    commit = _check_origin(data, file, machine, known)
    results = texts.table(data["results"], f"results in {file}")
    cells = {name: _check_benchmark(name, row, known) for name, row in results.items()}
    _check_durations(data["durations"], file)
    rows = sum(
        _check_comparison(name, cells, _least(name, known)) for name in sorted(_classes(cells))
    )
    if not rows:
        raise RefusedError("figures", f"{file} holds no comparison that was measured or modelled")
    return commit


def _check_origin(data: dict[str, Any], file: str, machine: Mapping[str, str], known: Known) -> str:
    """Check whose results they are, and of which commit; give the commit."""
    commit, named = data["commit_hash"], texts.RESULT_FILE.fullmatch(file)
    if not isinstance(commit, str) or not _HASH.fullmatch(commit):
        raise RefusedError("schema", f"{file} names no commit")
    if named is None or not commit.startswith(named["commit"]) or data["env_name"] != named["env"]:
        raise RefusedError("path", f"{file} is not named after its commit and environment")
    if commit not in known.commits:
        raise RefusedError("commit", f"{commit} is no commit of main here")
    if data["date"] != known.commits[commit]:
        raise RefusedError("changed", f"{file} has another date than its commit")
    if data["env_vars"] != {}:
        raise RefusedError("schema", f"{file} was measured with variables of its own")
    requirements = texts.table(data["requirements"], "requirements")
    for key, value in requirements.items():
        texts.plain(value, f"the requirement {texts.plain(key, 'a requirement')}")
    expected = {**machine, "python": texts.plain(data["python"], "python"), **requirements}
    if data["params"] != expected:
        raise RefusedError("machine", f"{file} is of another machine than {texts.MACHINE_FILE}")
    return commit


def _check_benchmark(name: str, row: Any, known: Known) -> Cells:
    grid = known.grids.get(name.rpartition(".")[0])
    if name not in known.units or grid is None:
        raise RefusedError("benchmark", f"there is no benchmark {texts.shown(name)}")
    if not isinstance(row, list) or len(row) > len(COLUMNS):
        raise RefusedError("schema", f"{name} is no row of asv's")
    column = {**dict.fromkeys(COLUMNS), **dict(zip(COLUMNS, row, strict=False))}
    if column["profile"] is not None:
        raise RefusedError("schema", f"{name} has a profile, which is code when it is read")
    if not isinstance(column["version"], str) or not _BENCHMARK_VERSION.fullmatch(
        column["version"]
    ):
        raise RefusedError("schema", f"{name} has no version")
    for key in ("started_at", "duration"):
        if column[key] is not None:
            _number(column[key], f"{key} of {name}", 0, _LAST_MOMENT)
    params = _check_params(name, column["params"], grid)
    count = math.prod(len(axis) for axis in params)
    limit = LIMITS.get(known.units[name], OTHER_LIMIT)
    values = [
        None if value is None or _is_nan(value) else _number(value, name, -limit, limit)
        for value in _list(column["result"], count, name)
    ]
    samples = [
        None if some is None else _check_samples(some, name, limit)
        for some in _list(column["samples"], count, name)
    ]
    statistics = {key: _list(column[key], count, name) for key in COLUMNS if key[:6] == "stats_"}
    for index, some in enumerate(samples):
        given = {key: column[index] for key, column in statistics.items()}
        if some is not None:
            _check_statistics(name, values[index], some, given)
        elif any(value is not None for value in given.values()):
            raise RefusedError("figures", f"{name} has statistics without samples")
    return Cells(params, values, samples)


def _check_params(name: str, params: Any, grid: Grid) -> list[list[str]]:
    if not isinstance(params, list) or not all(isinstance(axis, list) for axis in params):
        raise RefusedError("schema", f"{name} has no parameters")
    known = (grid.workloads, grid.comparisons)
    if len(params) != len(known):
        raise RefusedError("schema", f"{name} has {len(params)} axes, not workload and comparison")
    for axis, allowed in zip(params, known, strict=True):
        _check_axis(name, axis, allowed)
    return params


def _check_axis(name: str, axis: Sequence[Any], allowed: frozenset[str]) -> None:
    """Hold workloads or comparisons against those that a class has in any mode."""
    seen = set()
    for value in axis:
        quoted = _PARAMETER.fullmatch(value) if isinstance(value, str) else None
        if quoted is None:
            raise RefusedError("text", f"{name} has the parameter {texts.shown(value)}")
        text = texts.plain(quoted[1], f"a parameter of {name}")
        if text not in allowed:
            raise RefusedError("benchmark", f"{name} has no parameter {texts.shown(text)}")
        if text in seen:
            raise RefusedError("schema", f"{name} has the parameter {texts.shown(text)} twice")
        seen.add(text)
    if not seen:
        raise RefusedError("schema", f"{name} has an axis without parameters")


def _check_samples(samples: Any, name: str, limit: float) -> list[float]:
    if not isinstance(samples, list) or not samples:
        raise RefusedError("schema", f"{name} has samples that are no list")
    if len(samples) > MOST_SAMPLES:
        raise RefusedError("too large", f"{name} has {len(samples)} samples in a cell")
    return [_number(value, f"a sample of {name}", -limit, limit) for value in samples]


def _check_statistics(
    name: str, value: float | None, samples: Sequence[float], given: Mapping[str, Any]
) -> None:
    """Hold asv's statistics of a cell against the samples that they are of."""
    if value is None or not _same(value, median(samples)):
        raise RefusedError("figures", f"a value of {name} is not the median of its samples")
    low, high = min(samples), max(samples)
    slack = ROUNDED * max(abs(low), abs(high))
    for key in ("stats_q_25", "stats_q_75"):
        if given[key] is not None:
            _number(given[key], f"{key} of {name}", low - slack, high + slack)
    # asv's interval may reach beyond the samples, or be endless where they are few.
    below, above = (given[key] for key in ("stats_ci_99_a", "stats_ci_99_b"))
    if below is not None and not _float(below, f"an interval of {name}") <= value + slack:
        raise RefusedError("figures", f"an interval of {name} begins above its value")
    if above is not None and not _float(above, f"an interval of {name}") >= value - slack:
        raise RefusedError("figures", f"an interval of {name} ends below its value")
    if given["stats_repeat"] not in (None, len(samples)):
        raise RefusedError("figures", f"{name} has another number of samples than it says")
    if given["stats_number"] not in (None, 1):
        raise RefusedError("figures", f"{name} has samples of several calls")


def _classes(cells: Mapping[str, Cells]) -> set[str]:
    return {name.rpartition(".")[0] for name in cells}


def _least(name: str, known: Known) -> float:
    """Give the least that a sample of a class's arms may be."""
    if known.grids[name].signed:
        return -math.inf
    return LEAST.get(known.units.get(f"{name}.track_arm", ""), OTHER_LEAST)


def _check_comparison(name: str, cells: Mapping[str, Cells], least: float) -> int:
    """Hold a class's ratios against its arms and baselines; give how many rows it has.

    Parameters
    ----------
    least : float
        The least that a sample of an arm or a baseline may be.
    """
    arm, baseline, ratio = (
        cells.get(f"{name}.{method}") for method in ("track_arm", "track_baseline", "track_ratio")
    )
    if arm is None or baseline is None or ratio is None:
        raise RefusedError("schema", f"{name} has not all of arm, baseline and ratio")
    if not arm.params == baseline.params == ratio.params:
        raise RefusedError("schema", f"{name} has other parameters in its arm than in its ratio")
    for index, (a, b, r) in enumerate(
        zip(arm.samples, baseline.samples, ratio.samples, strict=True)
    ):
        if min((*(a or ()), *(b or ())), default=least) < least:
            raise RefusedError("figures", f"{name} has a sample below {least:.4g}")
        _check_pairs(name, a, b, r)
        for given in (arm, baseline, ratio):
            if given.values[index] is not None and given.samples[index] is None:
                raise RefusedError("figures", f"{name} has a value without samples")
    if (bound := cells.get(f"{name}.track_bound")) is not None:
        if bound.params != arm.params:
            raise RefusedError("schema", f"{name} has other parameters in its bound than elsewhere")
        for value in bound.values:
            if value is not None and not 0 < value <= 1 + ROUNDED:
                raise RefusedError("figures", f"a bound of {name} is {value:.3g}")
    return sum(some is not None for some in arm.samples)


def _check_pairs(
    name: str,
    arm: Sequence[float] | None,
    baseline: Sequence[float] | None,
    ratio: Sequence[float] | None,
) -> None:
    if arm is None and baseline is None and ratio is None:
        return
    if arm is None or baseline is None or len(arm) != len(baseline):
        raise RefusedError("figures", f"{name} has samples of an arm without those of its baseline")
    if len(arm) < MIN_SAMPLES:
        raise RefusedError("figures", f"{name} has {len(arm)} pairs, too few for an interval")
    if min(baseline) <= 0:
        if ratio is not None:
            raise RefusedError("figures", f"{name} has a ratio where its baseline is not above 0")
        return
    if ratio is None or len(ratio) != len(arm):
        raise RefusedError("figures", f"{name} has not a ratio for each pair")
    for a, b, r in zip(arm, baseline, ratio, strict=True):
        if not _same(r, a / b):
            raise RefusedError("figures", f"a ratio of {name} is not arm over baseline")


def _check_durations(durations: Any, file: str) -> None:
    for key, value in texts.table(durations, f"durations in {file}").items():
        if not _OTHER_DURATION.fullmatch(key):
            raise RefusedError("text", f"{file} has a duration of {texts.shown(key)}")
        _number(value, f"a duration in {file}", 0, _LAST_MOMENT)


def _list(value: Any, count: int, name: str) -> list[Any]:
    """Give a column of a row; asv leaves out one that holds nothing."""
    if value is None:
        return [None] * count
    if not isinstance(value, list) or len(value) != count:
        raise RefusedError("schema", f"{name} has not a value for each of its cells")
    return value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError("schema", f"{where} is no number")
    try:
        return float(value)
    except OverflowError:
        raise RefusedError("figures", f"{where} is out of range") from None


def _number(value: Any, where: str, low: float, high: float) -> float:
    number = _float(value, where)
    if not low <= number <= high:  # also not a number
        raise RefusedError("figures", f"{where} is {number:.4g}, not from {low:.4g} to {high:.4g}")
    return number


def _same(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=EXACT, abs_tol=1e-300)
