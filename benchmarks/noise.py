"""Which metrics are steady enough to track: ``python -m benchmarks.noise``.

Reads the results of several runs of the same code, the same commit measured again into
other folders or commits that changed nothing, and says of each metric how much it
differs between runs, as an absolute value and as a ratio to its baseline. What is steady
is tracked by value, what is wild alone but not beside its baseline as a ratio, the rest
not at all; the thresholds of regressions follow from the spread.

Runs are given by their results folders (``asv run`` with ``results_dir`` set) and, within
a folder, by their commits. Each ``--commits`` is a group of runs of one code; several
groups of different code add up, as each is compared with its own median only: those of
``make planted ARGS="--keep FOLDER"`` are the commits up to the first plant, from it to
the second, and from that on.
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

#: Between-run spread up to which a metric is tracked by value. Step detection needs noise
#: of about a hundredth to see a tenth early.
STEADY = 0.02

#: Spread up to which a ratio is tracked: its threshold is then a doubling, which a wait that
#: oversleeps or a copy that holds the host makes. What needs more than that shows nothing.
STEADY_RATIO = 0.25

#: Runs beyond one a group that say something of a spread. Five runs of one code have a chance
#: of 1 in 16 of all lying on one side of the median.
MIN_FREEDOM = 4

#: Spreads that a step must exceed to be a regression: the difference of two single runs is
#: within 2.8 of their standard deviations 95 times in 100; four leave room for its own error.
SPREADS_IN_THRESHOLD = 4

#: A threshold is the least of these that is wide enough: a step below the first is not worth
#: a maintainer's day, and few of them can be read.
THRESHOLDS = (0.1, 0.2, 0.5, 1.0)

#: Standard deviations of a normal distribution in its median absolute deviation.
MAD_TO_DEVIATION = 1.4826

#: What floating point may add to a product.
ROUNDING = 1e-9

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
    values : tuple of float
        The arm's, one of each run.
    ratios : tuple of (float or None)
        To the baseline, one of each run.
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
    values: tuple[float, ...]
    ratios: tuple[float | None, ...]
    arm: float
    baseline: float
    ratio: float
    decision: str
    threshold: float | None


def spread(groups: Sequence[Sequence[float]]) -> float:
    """Give the relative spread of one figure per run: a robust standard deviation.

    Each value counts as a share of its group's median. The larger of their median absolute
    deviation, scaled to a standard deviation, and a quarter of their range: a metric that
    mostly repeats and now and then jumps is not steady. Wider by what the groups' own
    medians hide.

    Returns
    -------
    float
        nan when a median is not above zero: shares of it mean nothing.
    """
    middles = [median(group) for group in groups]
    if min(middles) <= 0:
        return math.nan
    shares = [
        value / middle for group, middle in zip(groups, middles, strict=True) for value in group
    ]
    deviation = MAD_TO_DEVIATION * median(abs(share - 1) for share in shares)
    hidden = math.sqrt(len(shares) / (len(shares) - len(groups)))
    return hidden * max(deviation, (max(shares) - min(shares)) / 4)


def decide(arm: float, ratio: float) -> tuple[str, float | None]:
    """Decide how to track a metric, from its spreads; give the decision and the threshold."""
    for decision, found, most in ((ABSOLUTE, arm, STEADY), (RATIO, ratio, STEADY_RATIO)):
        if found <= most:  # nan is not
            needed = SPREADS_IN_THRESHOLD * found - ROUNDING
            return decision, next(step for step in THRESHOLDS if step >= needed)
    return DROP, None


def analyse(groups: Sequence[Sequence[Sequence[Gain]]]) -> list[Noise]:
    """Say how much each comparison differs between runs.

    Parameters
    ----------
    groups : sequence of sequence of sequence of Gain
        Runs of one code each; a run is one list.

    Raises
    ------
    NoiseError
        Too few runs, one of them twice, or runs of several machines.
    """
    runs = [run for group in groups for run in group]
    if min(map(len, groups)) < 2 or len(runs) - len(groups) < MIN_FREEDOM:
        sizes = " + ".join(str(len(group)) for group in groups)
        raise NoiseError(
            f"{sizes} runs say nothing of the noise between runs; measure the same code "
            f"{MIN_FREEDOM + 1} times or more, or several codes at least twice each and "
            f"{MIN_FREEDOM} times more than there are codes"
        )
    machines = {gain.machine for run in runs for gain in run}
    if len(machines) > 1:
        raise NoiseError(f"runs of several machines: {', '.join(sorted(machines))}; choose one")
    if not any(runs):
        raise NoiseError("the runs have no such benchmark")
    measured = [tuple(gain.arm_value for gain in run if not gain.modelled) for run in runs]
    some = [values for values in measured if values]
    if len(set(some)) < len(some):
        raise NoiseError("the same run is given twice; its spread of 0 would pass for steadiness")
    found: dict[tuple[str, str, str], list[list[Gain]]] = defaultdict(lambda: [[] for _ in groups])
    for place, group in enumerate(groups):
        for run in group:
            for gain in run:
                key = gain.benchmark, gain.workload, f"{gain.arm} / {gain.baseline}"
                found[key][place].append(gain)
    # A metric that some runs lack is no basis for a threshold.
    sizes_of_all = [len(group) for group in groups]
    return [
        _noise(key, by_group)
        for key, by_group in found.items()
        if [len(group) for group in by_group] == sizes_of_all
    ]


def _noise(key: tuple[str, str, str], groups: Sequence[Sequence[Gain]]) -> Noise:
    gains = [gain for group in groups for gain in group]
    arm = spread([[gain.arm_value for gain in group] for group in groups])
    ratio = math.nan
    if all(gain.ratio is not None for gain in gains):
        ratio = spread([[gain.ratio or 0.0 for gain in group] for group in groups])
    decision, threshold = decide(arm, ratio)
    benchmark, workload, comparison = key
    return Noise(
        benchmark=benchmark,
        workload=workload,
        comparison=comparison,
        modelled=gains[0].modelled,
        values=tuple(gain.arm_value for gain in gains),
        ratios=tuple(gain.ratio for gain in gains),
        arm=arm,
        baseline=spread([[gain.baseline_value for gain in group] for group in groups]),
        ratio=ratio,
        decision=decision,
        threshold=threshold,
    )


def configuration(noises: Iterable[Noise]) -> dict[str, dict[str, float | None]]:
    """Give what belongs into asv.conf.json, in place of what it has of these two keys.

    Returns
    -------
    dict
        ``regressions_thresholds``: the least one for all, and larger ones for the rows that
        need them, as asv takes the largest whose pattern matches;
        ``regressions_first_commits``: None for what is not tracked.
    """
    thresholds: dict[str, float | None] = {".*": THRESHOLDS[0]}
    untracked: dict[str, float | None] = {rf".*\.{method}": None for method in UNTRACKED}
    untracked[rf".*Modelled\.{RATIO_METHOD}"] = None  # virtual time is as steady as its code
    methods: dict[tuple[str, str], list[Noise]] = defaultdict(list)
    for noise in noises:
        for method in (ARM_METHOD,) if noise.modelled else (ARM_METHOD, RATIO_METHOD):
            methods[noise.benchmark, method].append(noise)
    for (benchmark, method), rows in methods.items():
        wanted = ABSOLUTE if method == ARM_METHOD else RATIO
        tracked = [row for row in rows if row.decision == wanted]
        name = _pattern(f"{benchmark}.{method}")
        if not tracked:
            untracked[name] = None
            continue
        # What was not measured here is taken to be like the wildest of its kind.
        if len(tracked) < len(rows):
            untracked[f"{name}(?!{_of_rows(tracked)})"] = None
        most = max(row.threshold or 0.0 for row in tracked)
        for threshold in THRESHOLDS[1:]:
            those = [row for row in tracked if row.threshold == threshold]
            if threshold == most:
                less = [row for row in tracked if row not in those]
                thresholds[f"{name}(?!{_of_rows(less)})" if less else name] = threshold
            elif those:
                thresholds[name + _of_rows(those)] = threshold
    return {"regressions_thresholds": thresholds, "regressions_first_commits": untracked}


def _of_rows(rows: Iterable[Noise]) -> str:
    """Give a pattern for the parameters of these rows in asv's names."""
    parameters = (f"'{row.workload}', '{row.comparison}'" for row in rows)
    return rf"\((?:{'|'.join(map(_pattern, parameters))})\)"


def _pattern(text: str) -> str:
    return re.escape(text).replace(r"\ ", " ")  # a space is none of re's characters here


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
    runs = len(noises[0].values) if noises else 0
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


def read_groups(
    folders: Sequence[Path], machine: str | None, commits: Sequence[Sequence[str]]
) -> list[list[list[Gain]]]:
    """Read a run from each folder and commit; without commits each folder's newest.

    Raises
    ------
    ResultsError
        There are no such results, or a file cannot be read.
    """
    groups: Sequence[Sequence[str | None]] = commits or ((None,),)
    return [
        [results.read(folder, machine, name) for folder in folders for name in group]
        for group in groups
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        groups = read_groups(options.folders, options.machine, options.commits)
        noises = analyse(
            [
                [[one for one in run if options.bench.match(one.benchmark)] for run in group]
                for group in groups
            ]
        )
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_RESULTS
    print(as_text(noises))
    print("\nfor asv.conf.json, beside what other runs and what was written by hand need:")
    print(json.dumps(configuration(noises), indent=4))
    if options.json is not None:
        try:
            options.json.write_text(json.dumps(as_object(noises), indent=1) + "\n", "utf-8")
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            return NO_RESULTS
    return OK


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


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
        action="append",
        default=[],
        metavar="HASH",
        help="commits of each folder that are runs of the same code, as often as there are "
        "codes; default: a folder's newest",
    )
    parser.add_argument(
        "--bench",
        type=_regex,
        default=re.compile(""),
        metavar="REGEX",
        help="only benchmarks whose name begins so, such as 'bench_streams', where commits "
        "changed nothing for these; default: all",
    )
    parser.add_argument("--json", type=Path, help="write all of it to a file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
