"""Reads gains back from asv's own result files."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import benchmarks
from benchmarks import measure, suite
from benchmarks.measure import PairedSamples

#: Verdict of a comparison whose interval holds no change, or that has none.
CANNOT_TELL = "cannot tell"


class ResultsError(ValueError):
    """A results folder or file cannot be read; the message says which and what to do."""


@dataclass(frozen=True)
class Gain:
    """One comparison at one workload, on one machine, at one commit.

    Attributes
    ----------
    question : int
    workload, arm, baseline, metric, unit : str
    arm_value, baseline_value : float
        Medians, in `unit`.
    ratio, low, high : float or None
        Median of arm over baseline, pair by pair, and its 95 % interval; under 1 is a
        gain. None where the baseline is not above zero throughout.
    bound : float or None
        The least ratio that there could be.
    verdict : {"faster", "slower", "cannot tell"}
    pairs : int
    machine, commit : str
    modelled : bool
    benchmark : str
        asv's class, such as "bench_waits.WakeUp".
    arm_interval, baseline_interval : (float, float) or None
        95 % intervals of the medians, in `unit`; they hold the drift that cancels in the
        ratio, so a verdict never comes from them.
    """

    question: int
    workload: str
    arm: str
    baseline: str
    metric: str
    unit: str
    arm_value: float
    baseline_value: float
    ratio: float | None
    low: float | None
    high: float | None
    bound: float | None
    verdict: str
    pairs: int
    machine: str
    commit: str
    modelled: bool
    benchmark: str = ""
    arm_interval: tuple[float, float] | None = None
    baseline_interval: tuple[float, float] | None = None

    @property
    def figures(self) -> str:
        """Write the ratio with its interval; a dash where there is none."""
        if self.ratio is None:
            return "–"
        return f"{self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Dates:
    """When a commit was made and when it was measured, in UTC as ISO 8601 writes it.

    Attributes
    ----------
    committed : str
    measured : str or None
        When its first benchmark started; None where asv noted none.
    """

    committed: str
    measured: str | None


def machines(folder: Path) -> list[str]:
    """List the machines that have results in `folder`.

    Raises
    ------
    ResultsError
        A machine's file is cut, or is another machine's.
    """
    found = []
    for path in sorted(folder.glob("*/machine.json")):
        name = path.parent.name
        try:
            is_its_own = json.loads(path.read_text(encoding="utf-8"))["machine"] == name
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(
                f"{path} is cut or no file of a machine ({type(error).__name__}: {error}); restore "
                "it, or delete its folder"
            ) from error
        if not is_its_own:
            raise ResultsError(f"{path} is of another machine than its folder; rename the folder")
        found.append(name)
    return found


def read(folder: Path, machine: str | None = None, commit: str | None = None) -> list[Gain]:
    """Read the gains of each machine's newest commit, or of one machine or commit.

    Raises
    ------
    ResultsError
        There is no such folder, machine or commit, or a file is cut, foreign or of
        another version.
    """
    known = machines(folder)
    if not known:
        raise ResultsError(f"no results in {folder}: run `make bench` first")
    if machine is not None and machine not in known:
        raise ResultsError(f"no machine {machine!r} in {folder}; there are {', '.join(known)}")
    classes = grid_classes()
    found: list[Gain] = []
    for name in known if machine is None else [machine]:
        for results in _newest(folder / name, commit):
            found += _gains(results, name, classes)
    if commit is not None and not found:
        raise ResultsError(f"no results of commit {commit!r} in {folder}")
    return found


def dates(folder: Path, machine: str, commit: str) -> Dates:
    """Say when a commit was made, and measured on a machine.

    Raises
    ------
    ResultsError
        There are no such results, or a file cannot be read.
    """
    runs = _newest(folder / machine, commit)
    if not runs:
        raise ResultsError(f"no results of commit {commit!r} on {machine} in {folder}")
    started = [start for run in runs for start in run.started_at.values() if start]
    return Dates(_utc(runs[0].date), _utc(min(started)) if started else None)


def _utc(milliseconds: float) -> str:
    """Write a time as asv keeps it: milliseconds since 1970."""
    when = datetime.fromtimestamp(milliseconds / 1e3, timezone.utc)
    return when.isoformat(timespec="seconds")


def _newest(folder: Path, commit: str | None) -> list[Any]:
    """Load the results of one commit, the newest unless named, in each environment."""
    loaded = [_load(path) for path in sorted(folder.glob("*.json")) if path.name != "machine.json"]
    if commit is not None:
        named = [results for results in loaded if results.commit_hash.startswith(commit)]
        if len(found := sorted({results.commit_hash for results in named})) > 1:
            raise ResultsError(f"{commit!r} may be any of {', '.join(found)}; give more digits")
        return named
    # Of commits of one second one is as new as the other; never both as one run.
    _, newest = max(((results.date, results.commit_hash) for results in loaded), default=(0, ""))
    return [results for results in loaded if results.commit_hash == newest]


def _load(path: Path) -> Any:
    from asv import util  # type: ignore[import-untyped]
    from asv.results import Results  # type: ignore[import-untyped]

    try:
        return Results.load(str(path), machine_name=path.parent.name)
    except (OSError, util.UserError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(
            f"{path} is cut, foreign or of another version of asv: {error}; delete it or measure "
            "that commit again"
        ) from error


def grid_classes() -> dict[str, type[suite.Grid]]:
    """Find the classes whose benchmarks are comparisons, by the name that asv gives them."""
    found = {}
    for info in pkgutil.iter_modules(benchmarks.__path__):
        if info.name.startswith("bench_"):
            module = importlib.import_module(f"benchmarks.{info.name}")
            for name, value in vars(module).items():  # in the order in which they are shown
                is_class = inspect.isclass(value) and value.__module__ == module.__name__
                if is_class and issubclass(value, suite.Grid) and not name.startswith("_"):
                    found[f"{info.name}.{name}"] = value
    return found


def _gains(results: Any, machine: str, classes: dict[str, type[suite.Grid]]) -> Iterator[Gain]:
    measured = results.get_all_result_keys()
    for name, grid in classes.items():
        key = f"{name}.track_arm"
        if key not in measured:
            continue  # a class that this commit's run did not have
        params = results.get_result_params(key)
        arms = results.get_result_samples(key, params)
        baselines = results.get_result_samples(f"{name}.track_baseline", params)
        bounds = _values(results, f"{name}.track_bound", params)
        for index, (workload, comparison) in enumerate(product(*params)):
            if arms[index] is None or baselines[index] is None:
                continue
            pairs = PairedSamples(tuple(arms[index]), tuple(baselines[index]))
            arm, baseline = (part.strip() for part in _plain(comparison).split(" / "))
            yield Gain(
                question=grid.question,
                workload=_plain(workload),
                arm=arm,
                baseline=baseline,
                metric=grid.metric,
                unit=grid.unit,
                bound=bounds[index] if bounds else None,
                pairs=len(pairs.arm),
                machine=machine,
                commit=results.commit_hash,
                modelled=grid.modelled,
                benchmark=name,
                arm_interval=measure.dependent_interval(pairs.arm),
                baseline_interval=measure.dependent_interval(pairs.baseline),
                **_compare(pairs, grid.least_effect),
            )


def _plain(parameter: str) -> str:
    """Give a text parameter without the quotes that asv stores it with."""
    return parameter.strip("'\"")


def _values(results: Any, key: str, params: Any) -> list[float | None] | None:
    if key not in results.get_all_result_keys():
        return None
    return [
        None if value is None or math.isnan(value) else value
        for value in results.get_result_value(key, params)
    ]


def _compare(pairs: PairedSamples, least_effect: float) -> dict[str, Any]:
    if min(pairs.baseline) > 0:
        compared = measure.compare(pairs, least_effect)
        return {
            "arm_value": compared.arm,
            "baseline_value": compared.baseline,
            "ratio": compared.ratio,
            "low": compared.low,
            "high": compared.high,
            "verdict": compared.verdict,
        }
    # A difference may be zero or less, and then has no ratio, of which the least effect would
    # be a share; its sign still tells.
    low, high = measure.dependent_interval(
        [a - b for a, b in zip(pairs.arm, pairs.baseline, strict=True)]
    )
    verdict = "faster" if high < 0 else "slower" if low > 0 else CANNOT_TELL
    return {
        "arm_value": median(pairs.arm),
        "baseline_value": median(pairs.baseline),
        "ratio": None,
        "low": None,
        "high": None,
        "verdict": verdict,
    }
