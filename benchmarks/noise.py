"""Which metrics are steady enough to track: ``python -m benchmarks.noise``.

Reads the results of several runs of the same code, the same commit measured again into
other folders or commits that changed nothing, and says of each metric how much it
differs between runs, as an absolute value and as a ratio to its baseline. What is steady
is tracked by value, what is steady only beside its baseline as a ratio, the rest not at
all; the thresholds of regressions follow from the spread.

Runs are given by their results folders (``asv run`` with ``results_dir`` set) and, within
a folder, by their commits.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import results
from benchmarks.results import Gain, ResultsError

#: Between-run spread up to which a metric is tracked. Step detection needs noise of about a
#: hundredth to see a tenth early.
STEADY = 0.02

#: Fewest runs that say anything of a spread. Five have a chance of 1 in 16 of all lying on
#: one side of the median.
MIN_RUNS = 5

#: Spreads that a step must exceed to be a regression: the difference of two single runs is
#: within 2.8 of their standard deviations 95 times in 100; four leave room for its own error.
SPREADS_IN_THRESHOLD = 4

#: No threshold is below this: smaller steps are not worth a maintainer's day.
LEAST_THRESHOLD = 0.05

#: Thresholds are rounded up to whole hundredths, so that they can be read.
THRESHOLD_STEP = 0.01

#: Standard deviations of a normal distribution in its median absolute deviation.
MAD_TO_DEVIATION = 1.4826

#: Decisions.
ABSOLUTE, RATIO, DROP = "absolute", "ratio", "drop"

#: asv's benchmark methods, by what they give.
ARM_METHOD, BASELINE_METHOD, RATIO_METHOD = "track_arm", "track_baseline", "track_ratio"

#: Methods that are never tracked: a baseline is no code of the library, and a bound is theory.
UNTRACKED = (BASELINE_METHOD, "track_bound")

OK, NO_RESULTS = 0, 1


class NoiseError(ResultsError):
    """There are too few runs, one of them is there twice, or they are of several machines."""


@dataclass(frozen=True)
class Noise:
    """How one comparison differs between runs.

    Attributes
    ----------
    benchmark : str
        asv's class, such as "bench_waits.WakeUp".
    workload, comparison : str
    modelled : bool
    runs : int
    arm, baseline, ratio : float
        Between-run spread, relative to the median; nan where there is no ratio.
    decision : {"absolute", "ratio", "drop"}
    threshold : float or None
        Step that counts as a regression; None when it is not tracked.
    """

    benchmark: str
    workload: str
    comparison: str
    modelled: bool
    runs: int
    arm: float
    baseline: float
    ratio: float
    decision: str
    threshold: float | None


def spread(values: Sequence[float]) -> float:
    """Give the relative spread of one figure per run: robust standard deviation over median.

    The larger of the median absolute deviation, scaled to a standard deviation, and a
    quarter of the range: a metric that mostly repeats and now and then jumps is not steady.

    Returns
    -------
    float
        nan when the median is not above zero: shares of it mean nothing.
    """
    middle = median(values)
    if middle <= 0:
        return math.nan
    deviation = MAD_TO_DEVIATION * median(abs(value - middle) for value in values)
    return max(deviation, (max(values) - min(values)) / 4) / middle


def decide(arm: float, ratio: float, steady: float = STEADY) -> tuple[str, float | None]:
    """Decide how to track a metric, from its spreads; give the decision and the threshold."""
    for decision, found in ((ABSOLUTE, arm), (RATIO, ratio)):
        if found <= steady:  # nan is not
            steps = SPREADS_IN_THRESHOLD * found / THRESHOLD_STEP
            return decision, max(LEAST_THRESHOLD, math.ceil(steps - 1e-9) * THRESHOLD_STEP)
    return DROP, None


def analyse(runs: Sequence[Sequence[Gain]], steady: float = STEADY) -> list[Noise]:
    """Say how much each comparison differs between runs.

    Parameters
    ----------
    runs : sequence of sequence of Gain
        One list a run.
    steady : float
        Largest spread that is tracked.

    Raises
    ------
    NoiseError
        Fewer than :data:`MIN_RUNS`, one of them twice, or of several machines.
    """
    if len(runs) < MIN_RUNS:
        raise NoiseError(
            f"{len(runs)} runs say nothing of the noise between runs; measure the same code "
            f"{MIN_RUNS} times or more"
        )
    machines = {gain.machine for run in runs for gain in run}
    if len(machines) > 1:
        raise NoiseError(f"runs of several machines: {', '.join(sorted(machines))}; choose one")
    measured = [tuple(gain.arm_value for gain in run if not gain.modelled) for run in runs]
    if any(measured) and len(set(measured)) < len(runs):
        raise NoiseError("the same run is given twice; its spread of 0 would pass for steadiness")
    found: dict[tuple[str, str, str], list[Gain]] = defaultdict(list)
    for run in runs:
        for gain in run:
            found[gain.benchmark, gain.workload, f"{gain.arm} / {gain.baseline}"].append(gain)
    # A metric that some runs lack is no basis for a threshold.
    whole = {key: gains for key, gains in found.items() if len(gains) == len(runs)}
    return [_noise(key, gains, steady) for key, gains in whole.items()]


def _noise(key: tuple[str, str, str], gains: Sequence[Gain], steady: float) -> Noise:
    ratios = [gain.ratio for gain in gains if gain.ratio is not None]
    arm = spread([gain.arm_value for gain in gains])
    ratio = spread(ratios) if len(ratios) == len(gains) else math.nan
    decision, threshold = decide(arm, ratio, steady)
    benchmark, workload, comparison = key
    return Noise(
        benchmark=benchmark,
        workload=workload,
        comparison=comparison,
        modelled=gains[0].modelled,
        runs=len(gains),
        arm=arm,
        baseline=spread([gain.baseline_value for gain in gains]),
        ratio=ratio,
        decision=decision,
        threshold=threshold,
    )


def configuration(noises: Iterable[Noise]) -> dict[str, dict[str, float | None]]:
    """Give what belongs into asv.conf.json, in place of what it has of these two keys.

    Returns
    -------
    dict
        ``regressions_thresholds``: by benchmark method, the largest threshold of its tracked
        rows; ``regressions_first_commits``: None for what is not tracked.
    """
    thresholds: dict[str, float | None] = {}
    untracked: dict[str, float | None] = {rf".*\.{method}": None for method in UNTRACKED}
    methods: dict[tuple[str, str], list[Noise]] = defaultdict(list)
    for noise in noises:
        for method in (ARM_METHOD, RATIO_METHOD):
            methods[noise.benchmark, method].append(noise)
    for (benchmark, method), rows in methods.items():
        wanted = ABSOLUTE if method == ARM_METHOD else RATIO
        name = re.escape(f"{benchmark}.{method}")
        tracked = [row.threshold for row in rows if row.decision == wanted]
        if not tracked:
            untracked[name] = None
            continue
        # asv takes the largest threshold of all patterns that match, so there is one a method.
        thresholds[name] = round(max(value for value in tracked if value is not None), 2)
        for row in rows:
            if row.decision != wanted:
                parameters = f"('{row.workload}', '{row.comparison}')"
                untracked[name + re.escape(parameters)] = None
    return {"regressions_thresholds": thresholds, "regressions_first_commits": untracked}


def as_text(noises: Sequence[Noise]) -> str:
    """Give a table for a terminal: measured rows first, with what is dropped named at the end."""
    heading = ("benchmark", "workload", "comparison", "value", "baseline", "ratio", "track")
    rows = [heading]
    for noise in sorted(noises, key=lambda n: n.modelled):
        track = noise.decision
        if noise.threshold is not None:
            track += f", from {noise.threshold:.0%}"
        shown = (_percent(value) for value in (noise.arm, noise.baseline, noise.ratio))
        rows.append((noise.benchmark, noise.workload, noise.comparison, *shown, track))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heading))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    counts = {d: sum(n.decision == d for n in noises) for d in (ABSOLUTE, RATIO, DROP)}
    runs = noises[0].runs if noises else 0
    lines.append(
        f"between-run spread over {runs} runs; tracked by value: {counts[ABSOLUTE]}, "
        f"as a ratio: {counts[RATIO]}, not at all: {counts[DROP]}"
    )
    return "\n".join(lines)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def as_object(noises: Sequence[Noise]) -> dict[str, Any]:
    """Give the rows and the configuration that follows; a spread that is none is null."""
    rows = [
        {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(noise).items()
        }
        for noise in noises
    ]
    return {"rows": rows, "configuration": configuration(noises)}


def read_runs(
    folders: Sequence[Path], machine: str | None, commits: Sequence[str]
) -> list[list[Gain]]:
    """Read a run from each folder and commit; without commits each folder's newest.

    Raises
    ------
    ResultsError
        There are no such results, or a file cannot be read.
    """
    names: Sequence[str | None] = commits or (None,)
    return [results.read(folder, machine, name) for folder in folders for name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        noises = analyse(
            read_runs(options.folders, options.machine, options.commits), options.steady
        )
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_RESULTS
    print(as_text(noises))
    print("\nfor asv.conf.json, in place of its own:")
    print(json.dumps(configuration(noises), indent=4))
    if options.json is not None:
        options.json.write_text(json.dumps(as_object(noises), indent=1) + "\n", encoding="utf-8")
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.noise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="results folders, such as results"
    )
    parser.add_argument("--machine", help="default: the only one that has results")
    parser.add_argument(
        "--commits",
        nargs="+",
        default=(),
        metavar="HASH",
        help="commits of each folder that are runs of the same code; default: its newest",
    )
    parser.add_argument(
        "--steady",
        type=float,
        default=STEADY,
        metavar="SHARE",
        help=f"largest spread that is tracked; default: {STEADY}",
    )
    parser.add_argument("--json", type=Path, help="write all of it to a file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
