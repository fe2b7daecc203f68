"""Do two runs of the suite say the same? ``python -m benchmarks.agreement FOLDER FOLDER``.

Pairs the verdicts of two full runs, comparison by comparison, whatever code they measured:
the same commit measured twice into two results folders, or two commits of one folder
(``--commits A B``) between which nothing was to change. A verdict that went from faster to
slower, or back, is an error of the method. One that went to or from "cannot tell" is
borderline, unless the two intervals have nothing in common: then something did change.

0: no verdict flipped, and fewer than 2 % changed otherwise; 1: more than that; 2: there was
nothing to compare.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from asyncout.doctor import units
from benchmarks import records, results
from benchmarks.measure import CANNOT_TELL
from benchmarks.report import human
from benchmarks.results import Dates, Gain, ResultsError

#: What two runs are to reach: flipped verdicts at most, and a share of other changes below.
MOST_FLIPS, CHANGED_BELOW = 0, 0.02

#: What became of a comparison's verdict.
SAME, FLIPPED, CHANGED = "same", "flipped", "changed"

#: Exit statuses. Whatever goes wrong is :data:`NOTHING_TO_COMPARE`, never one of the others.
REACHED, NOT_REACHED, NOTHING_TO_COMPARE = 0, 1, 2

#: File beside a machine's results that ``--save`` adds a line to.
FILE = "agreement"

#: Digits of a commit that are shown.
SHORT_HASH = 8

#: What makes two rows the same comparison.
Key = tuple[str, str, str, str]


class AgreementError(ResultsError):
    """Two runs cannot be compared; the message says why and what to do."""


@dataclass(frozen=True)
class Pair:
    """One comparison in both runs.

    Attributes
    ----------
    first, second : Gain
    """

    first: Gain
    second: Gain

    @property
    def name(self) -> str:
        """Metric, workload and comparison."""
        one = self.first
        return f"{one.metric}, {one.workload}, {one.arm} / {one.baseline}"

    @property
    def outcome(self) -> str:
        """:data:`SAME`, :data:`FLIPPED`, or :data:`CHANGED` to or from "cannot tell"."""
        verdicts = {self.first.verdict, self.second.verdict}
        if len(verdicts) == 1:
            return SAME
        return CHANGED if CANNOT_TELL in verdicts else FLIPPED

    @property
    def is_disjoint(self) -> bool | None:
        """Whether the intervals of the ratios have nothing in common; None without a ratio."""
        a, b = self.first, self.second
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return None
        return a.high < b.low or b.high < a.low

    @property
    def log_difference(self) -> float | None:
        """How far apart the ratios are, as a logarithm without its sign; None without one."""
        a, b = self.first.ratio, self.second.ratio
        if a is None or b is None or min(a, b) <= 0:  # of a share that may be below zero
            return None
        return abs(math.log(a / b))

    @property
    def is_identical(self) -> bool:
        """Whether both hold the same samples, as far as their summaries tell."""
        a, b = self.first, self.second
        return (a.arm_value, a.baseline_value, a.arm_interval, a.baseline_interval) == (
            b.arm_value,
            b.baseline_value,
            b.arm_interval,
            b.baseline_interval,
        )


@dataclass(frozen=True)
class Agreement:
    """What two runs say of each other.

    Attributes
    ----------
    pairs : tuple of Pair
        At least one.
    only_first, only_second : tuple of Gain
        Comparisons that the other run lacks.
    """

    pairs: tuple[Pair, ...]
    only_first: tuple[Gain, ...]
    only_second: tuple[Gain, ...]

    def of(self, outcome: str) -> list[Pair]:
        """List the pairs with an outcome."""
        return [pair for pair in self.pairs if pair.outcome == outcome]

    @property
    def disjoint(self) -> list[Pair]:
        """Changed verdicts whose intervals have nothing in common: no borderline cases."""
        return [pair for pair in self.of(CHANGED) if pair.is_disjoint]

    @property
    def changed_share(self) -> float:
        """Share of verdicts that went to or from "cannot tell"."""
        return len(self.of(CHANGED)) / len(self.pairs)

    @property
    def is_reached(self) -> bool:
        """Whether the runs agree as well as they are to."""
        return len(self.of(FLIPPED)) <= MOST_FLIPS and self.changed_share < CHANGED_BELOW


def compare(first: Iterable[Gain], second: Iterable[Gain]) -> Agreement:
    """Pair two runs, each of one machine at one commit.

    Raises
    ------
    AgreementError
        A run is empty, of several machines or commits, or has a comparison twice; the runs
        are of two machines, have no comparison in common, or are one run.
    """
    one, other = _by_key(first, "first"), _by_key(second, "second")
    machines = sorted({gain.machine for run in (one, other) for gain in run.values()})
    if len(machines) > 1:
        raise AgreementError(f"runs of several machines: {', '.join(machines)}; choose one")
    pairs = tuple(Pair(one[key], other[key]) for key in one if key in other)
    if not pairs:
        raise AgreementError("the two runs have no comparison in common; measure both in full")
    # Virtual time gives the same figures each time; a clock does not.
    measured = [pair for pair in pairs if not pair.first.modelled]
    if measured and all(pair.is_identical for pair in measured):
        raise AgreementError(
            "both runs hold the same samples: the same run is given twice, or copied; its "
            "agreement would say nothing"
        )
    return Agreement(
        pairs,
        tuple(gain for key, gain in one.items() if key not in other),
        tuple(gain for key, gain in other.items() if key not in one),
    )


def _by_key(gains: Iterable[Gain], which: str) -> dict[Key, Gain]:
    found: dict[Key, Gain] = {}
    runs = set()
    for gain in gains:
        key = gain.benchmark, gain.workload, gain.arm, gain.baseline
        runs.add((gain.machine, gain.commit))
        if len(runs) > 1:
            named = ", ".join(f"{machine} at {commit}" for machine, commit in sorted(runs))
            raise AgreementError(
                f"the {which} run is of several machines or commits ({named}); name one machine "
                "and whole commits"
            )
        if key in found:
            raise AgreementError(
                f"the {which} run has {gain.metric}, {gain.workload}, {gain.arm} / "
                f"{gain.baseline} twice, from several environments; keep one environment's file "
                "in its folder"
            )
        found[key] = gain
    if not found:
        raise AgreementError(
            f"the {which} run has no such rows: measure on a GPU, or compare modelled rows with "
            "--modelled"
        )
    return found


def log_differences(pairs: Iterable[Pair]) -> list[tuple[float, Pair]]:
    """Give how far apart the ratios are, smallest first, of the pairs that have ratios."""
    found = [(pair.log_difference, pair) for pair in pairs]
    return sorted(
        ((value, pair) for value, pair in found if value is not None), key=lambda item: item[0]
    )


def as_text(agreement: Agreement, dates: tuple[Dates, Dates]) -> str:
    """Give a table for a terminal: counts by metric, then what changed, by name."""
    pairs, one = agreement.pairs, agreement.pairs[0]
    kind = "MODELLED in virtual time" if one.first.modelled else "measured"
    runs = [
        f"{gain.commit[:SHORT_HASH]} ({when.measured or 'date unknown'})"
        for gain, when in zip((one.first, one.second), dates, strict=True)
    ]
    header = (
        "metric",
        "in both",
        SAME,
        FLIPPED,
        CHANGED,
        "disjoint",
        "median |ln|",
        "worst |ln|",
    )
    by_metric = sorted(pairs, key=lambda pair: (pair.first.question, pair.first.metric))
    rows = [
        _counts(f"{question}. {metric}", list(some))
        for (question, metric), some in groupby(
            by_metric, key=lambda pair: (pair.first.question, pair.first.metric)
        )
    ]
    lines = [
        f"{one.first.machine}, {kind}: {runs[0]} and {runs[1]}",
        "",
        *units.table(header, [*rows, _counts("all", pairs)]),
        'changed: to or from "cannot tell"; disjoint: of these, intervals with nothing in common; '
        "|ln|: of one run's ratio over the other's",
    ]
    lines += _listed("flipped from faster to slower, or back: errors", agreement.of(FLIPPED))
    changed = agreement.of(CHANGED)
    share = units.share(agreement.changed_share)
    title = f'changed to or from "cannot tell": {len(changed)} of {len(pairs)} ({share})'
    if changed:
        real = units.share(len(agreement.disjoint) / len(changed))
        title += f", of these {len(agreement.disjoint)} ({real}) with disjoint intervals"
    lines += _listed(title, changed)
    lines += _notes(agreement)
    aim = f"no verdict flipped, and below {units.share(CHANGED_BELOW)} changed otherwise"
    lines += ["", f"aim ({aim}): {'reached' if agreement.is_reached else 'NOT reached'}"]
    return "\n".join(lines)


def _counts(name: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    outcomes = Counter(pair.outcome for pair in pairs)
    disjoint = sum(pair.outcome == CHANGED and bool(pair.is_disjoint) for pair in pairs)
    apart = [value for value, _ in log_differences(pairs)]
    counts = (len(pairs), *(outcomes[outcome] for outcome in (SAME, FLIPPED, CHANGED)), disjoint)
    logs = (f"{median(apart):.4f}", f"{apart[-1]:.4f}") if apart else ("-", "-")
    return (name, *map(str, counts), *logs)


def _listed(title: str, pairs: Sequence[Pair]) -> list[str]:
    header = ("comparison", "first", "second", "intervals")
    words = {True: "disjoint", False: "overlap", None: "no ratio"}
    rows = [
        (pair.name, _said(pair.first), _said(pair.second), words[pair.is_disjoint])
        for pair in pairs
    ]
    return ["", f"{title}{'' if rows else ' (none)'}", *(units.table(header, rows) if rows else ())]


def _said(gain: Gain) -> str:
    if gain.ratio is None:
        values = [human(value, gain.unit) for value in (gain.arm_value, gain.baseline_value)]
        return f"{gain.verdict}, {values[0]} against {values[1]}"
    return f"{gain.verdict}, {gain.ratio:.4g} [{gain.low:.4g}, {gain.high:.4g}]"


def _notes(agreement: Agreement) -> list[str]:
    lines = []
    one = agreement.pairs[0]
    if one.first.commit != one.second.commit:
        lines += ["", "two commits: what the code changed between them counts as well"]
    apart = log_differences(agreement.pairs)
    if apart:
        worst, pair = apart[-1]
        lines += ["", f"ratios furthest apart, by a factor of {math.exp(worst):.3g}: {pair.name}"]
    for which, gains in (("first", agreement.only_first), ("second", agreement.only_second)):
        if gains:
            named = [f"{name} {count}" for name, count in _by_benchmark(gains).items()]
            lines.append(f"only in the {which} run: {len(gains)} ({', '.join(named)})")
    identical = _identical(agreement)
    if identical:
        lines.append(
            f"the same samples in both runs: {identical} of {len(agreement.pairs)} comparisons, "
            "which were measured once and agree for no other reason"
        )
    return lines


def _by_benchmark(gains: Iterable[Gain]) -> dict[str, int]:
    return dict(Counter(gain.benchmark for gain in gains))


def _identical(agreement: Agreement) -> int:
    return sum(pair.is_identical and not pair.first.modelled for pair in agreement.pairs)


def as_record(agreement: Agreement, dates: tuple[Dates, Dates]) -> dict[str, Any]:
    """Give all of it as one line of a result file."""
    pairs, one = agreement.pairs, agreement.pairs[0]
    changed, disjoint = agreement.of(CHANGED), agreement.disjoint
    apart = log_differences(pairs)
    return {
        "machine": one.first.machine,
        "modelled": one.first.modelled,
        "first": {"commit": one.first.commit, **asdict(dates[0])},
        "second": {"commit": one.second.commit, **asdict(dates[1])},
        "in_both": len(pairs),
        "only_in_first": _by_benchmark(agreement.only_first),
        "only_in_second": _by_benchmark(agreement.only_second),
        "same_samples": _identical(agreement),
        "flipped": [_pair_record(pair) for pair in agreement.of(FLIPPED)],
        "changed": [_pair_record(pair) for pair in changed],
        "changed_share": agreement.changed_share,
        "disjoint": len(disjoint),
        "disjoint_share_of_changed": len(disjoint) / len(changed) if changed else None,
        "median_log_difference": median(value for value, _ in apart) if apart else None,
        "worst_log_difference": apart[-1][0] if apart else None,
        "worst_log_difference_at": apart[-1][1].name if apart else None,
        "aim": {"most_flips": MOST_FLIPS, "changed_below": CHANGED_BELOW},
        "reached": agreement.is_reached,
    }


def _pair_record(pair: Pair) -> dict[str, Any]:
    of_both = ("question", "benchmark", "metric", "workload", "arm", "baseline")
    of_each = ("verdict", "ratio", "low", "high", "arm_value", "baseline_value")
    return {
        **{key: getattr(pair.first, key) for key in of_both},
        "disjoint": pair.is_disjoint,
        "first": {key: getattr(pair.first, key) for key in of_each},
        "second": {key: getattr(pair.second, key) for key in of_each},
    }


def main(arguments: Sequence[str] | None = None, kept_in: Path = records.RESULTS) -> int:
    """Do what the command line asks for; give the exit status.

    Parameters
    ----------
    arguments : sequence of str
    kept_in : Path
        Results folder that ``--save`` writes to.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options, kept_in)
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOTHING_TO_COMPARE
    except Exception:  # Python's own status for it is 1, and would say that the aim was missed
        traceback.print_exc()
        return NOTHING_TO_COMPARE


def _run(options: argparse.Namespace, kept_in: Path) -> int:
    places = _places(options.folders, options.commits)
    first, second = (
        [
            gain
            for gain in results.read(folder, options.machine, commit)
            if gain.modelled == options.modelled
        ]
        for folder, commit in places
    )
    agreement = compare(first, second)
    found = agreement.pairs[0]
    before, after = (
        results.dates(folder, gain.machine, gain.commit)
        for (folder, _), gain in zip(places, (found.first, found.second), strict=True)
    )
    print(as_text(agreement, (before, after)))
    if options.save:
        record = as_record(agreement, (before, after))
        print(f"added to {records.append(kept_in, found.first.machine, FILE, record)}")
    return REACHED if agreement.is_reached else NOT_REACHED


def _places(
    folders: Sequence[Path], commits: Sequence[str] | None
) -> list[tuple[Path, str | None]]:
    """Give folder and commit of each run; without commits each folder's newest.

    Raises
    ------
    AgreementError
        These are not two runs.
    """
    if len(folders) > 2 or (len(folders) == 1 and commits is None):
        raise AgreementError(
            f"results folders: {len(folders)}, commits: {len(commits or ())}; two runs are two "
            "folders, or one folder and --commits A B"
        )
    both = [folders[0], folders[-1]]
    if commits is not None and both[0] == both[1] and commits[0] == commits[1]:
        raise AgreementError("a run is compared with itself; its agreement would say nothing")
    names = (None, None) if commits is None else commits
    return list(zip(both, names, strict=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agreement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="results folders, such as results"
    )
    parser.add_argument(
        "--commits",
        nargs=2,
        metavar=("A", "B"),
        help="commits of the two runs, in one folder or one of each; default: a folder's newest",
    )
    parser.add_argument("--machine", metavar="NAME", help="default: the only one with results")
    parser.add_argument(
        "--modelled",
        action="store_true",
        help="compare the modelled rows instead of the measured ones; needs no GPU",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help=f"add a line to results/NAME/{FILE}.jsonl",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
