"""The command line of the fit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from asyncout.doctor import units, validation
from asyncout.errors import ProfileError
from asyncout.virtual import CostProfile
from asyncout.virtual.profile import DEFAULT_PROFILE
from benchmarks import records, results
from benchmarks.fit import recommendations, recommendations_text
from benchmarks.fit.fitting import fit, fitted_name
from benchmarks.fit.observed import Observed, observe
from benchmarks.fit.twin import Twin
from benchmarks.fit.validating import (
    POLICY_STEP_TIME,
    REASONS,
    TARGET_MEDIAN,
    TARGET_WORST,
    Predicted,
    summarise,
    validate,
    without_copies,
)
from benchmarks.grids import streams

#: File beside a machine's results that ``--recommendations --save`` adds a line to.
RECOMMENDATIONS = "recommendations"

#: Arms of a workload that are named where the model is wrong; more are counted.
FEW_ARMS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, fit and validate, or look at recommendations; give the exit status.

    0: done; 1: there are no such results, or they cannot be read; 2: the errors of step time
    are above what the model is to reach.
    """
    options = _parser().parse_args(arguments)
    if options.recommendations:
        return _recommendations(options)
    try:
        observed = observe(results.read(options.results, options.machine, options.commit))
        base = CostProfile.load(options.base)
    except (results.ResultsError, ProfileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    twin = Twin()
    if options.validate:
        return _validate(observed, base, twin, options.save)
    profile = fit(observed, base, twin)
    if options.out is None:
        print(profile.as_json())
    else:
        profile.to_json(options.out)
        print(f"wrote {options.out}")
    return 0


def _validate(observed: Observed, base: CostProfile, twin: Twin, save: bool) -> int:
    predictions = validate(observed, base, twin)
    summary = summarise(observed, predictions)
    print(
        f"{observed.machine} at {observed.commit[:8]}: every other workload of question 1 and size "
        "of question 2 predicted (MODELLED) from a fit on the rest, and the other way round"
    )
    rows = [
        (
            one.metric,
            one.workload,
            one.arm,
            units.seconds(one.measured),
            units.seconds(one.predicted),
            f"{one.error:+.1%}",
        )
        for one in sorted(predictions, key=lambda one: one.metric)
        if one.metric not in POLICY_STEP_TIME.values()  # hundreds
    ]
    header = ("metric", "workload", "arm", "measured", "predicted", "error")
    print("\n".join([*units.table(header, rows), ""]))
    for one in summary:
        print(
            f"{one.metric}: median error {units.share(one.median_error)}, worst "
            f"{units.share(one.worst_error)} of {one.predictions} predictions"
        )
    middle, worst = without_copies(observed)
    print(
        f"for comparison, step time of a model in which copies cost nothing: median error "
        f"{units.share(middle)}, worst {units.share(worst)}"
    )
    _explain(predictions)
    if save:
        print(f"wrote {validation.save(summary)}")
    (step,) = [one for one in summary if one.metric == streams.STEP_TIME]
    reached = step.median_error <= TARGET_MEDIAN and step.worst_error <= TARGET_WORST
    return 0 if reached else 2


def _recommendations(options: argparse.Namespace) -> int:
    name = options.profile or fitted_name(options.machine)
    try:
        gains = results.read(options.results, options.machine, options.commit)
        blocks = recommendations.observe(gains)
        profile = CostProfile.load(name)
    except (results.ResultsError, ProfileError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    told = recommendations_text.Told(
        machine=options.machine,
        commit=gains[0].commit,
        origin=Path(name).name,
        profile=profile,
        outcomes=tuple(recommendations.assess(profile, blocks)),
    )
    print(recommendations_text.as_text(told))
    if options.save:
        record = recommendations_text.as_record(told)
        path = records.append(options.results, told.machine, RECOMMENDATIONS, record)
        print(f"\nadded to {path}")
    return 0


def _explain(predictions: Sequence[Predicted]) -> None:
    """Say where the model is wrong and why."""
    wrong = [one for one in predictions if abs(one.error) > TARGET_WORST]
    if wrong:
        print(f"\nwhere the model is off by more than {units.share(TARGET_WORST)}, and why")
    for metric in dict.fromkeys(one.metric for one in wrong):
        arms: dict[str, list[str]] = {}
        for one in wrong:
            if one.metric == metric:
                arms.setdefault(one.workload, []).append(one.arm)
        rows = [f"{workload}, {_listed(those)}" for workload, those in arms.items()]
        print(f"  {metric}: {REASONS.get(metric, 'not known')}: {'; '.join(rows)}")


def _listed(arms: Sequence[str]) -> str:
    return " and ".join(arms) if len(arms) <= FEW_ARMS else f"{len(arms)} policies"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit",
        description="Fit a cost profile for the virtual device from a machine's results.",
    )
    parser.add_argument("--machine", required=True, metavar="NAME", help="folder in results/")
    parser.add_argument("--commit", metavar="HASH", help="this commit; default: the newest")
    parser.add_argument("--results", type=Path, default=records.RESULTS, help="asv's folder")
    parser.add_argument(
        "--base",
        default=DEFAULT_PROFILE,
        metavar="NAME_OR_FILE",
        help="profile for what the results do not tell; default: %(default)s",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it; default: print it")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="predict each half of the rows from a fit on the other; status 2 if it is too far off",
    )
    parser.add_argument(
        "--recommendations",
        action="store_true",
        help="how often does the doctor recommend the policy that question 4 found best?",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME_OR_FILE",
        help="with --recommendations: what the doctor knows of the machine, such as a file that "
        "`python -m asyncout.doctor --save-profile FILE` wrote there; default: the shipped one "
        "that was fitted from the machine's results, NAME-fitted",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="with --validate: keep the errors, for the doctor to show; with --recommendations: "
        f"add a line to results/NAME/{RECOMMENDATIONS}.jsonl",
    )
    return parser
