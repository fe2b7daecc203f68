"""The doctor's command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asyncout.doctor import findings, report, validation, workloads
from asyncout.doctor.box import Box, CudaBox, VirtualBox
from asyncout.doctor.drawing import draw
from asyncout.doctor.examination import examine, facts_here
from asyncout.doctor.facts import Facts
from asyncout.doctor.facts.host import host_facts
from asyncout.doctor.recommending import DEFAULT_GOAL, GOALS, recommend
from asyncout.doctor.what_if import answer, curves
from asyncout.doctor.workloads import Workload
from asyncout.errors import DeviceUnavailableError, ProfileError
from asyncout.virtual import CostProfile

#: The profile for what is not measured here: fitted from committed results, so that the model's
#: error on it is known.
BASE_PROFILE = "h200-pcie5-vm16-fitted"

#: Exit statuses.
FINE, SOMETHING_IS_OFF, COULD_NOT_LOOK = 0, 1, 2


@dataclass(frozen=True)
class Patient:
    """Whom the doctor looks at.

    Attributes
    ----------
    box : callable
        Makes the box; raises DeviceUnavailableError where there is none.
    facts : callable
        Reads its machine's facts.
    """

    box: Callable[[], Box] = CudaBox
    facts: Callable[[], Facts] = facts_here


#: The virtual device: it runs on this host, and what a GPU would tell is not there.
VIRTUAL = Patient(box=VirtualBox, facts=host_facts)


def main(arguments: Sequence[str] | None = None, patient: Patient | None = None) -> int:
    """Do what the command line asks for; give the exit status.

    0: all is fine; 1: something is off, and was not accepted; 2: the doctor could not look,
    for want of a GPU or of sense in the command line. With ``--what-if``, 0.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        base = CostProfile.load(options.profile)
        workload = _workload(options)
        known = validation.known()
    except (ProfileError, ValueError) as error:
        parser.error(str(error))
    if options.what_if:
        return _what_if(options, base, workload)
    if patient is None:
        patient = VIRTUAL if options.virtual else Patient()
    try:
        box = patient.box()
        examination = examine(box, base, patient.facts)
    except Exception as error:
        # A device that fails in the middle of a probe is one that could not be looked at.
        why = str(error) if isinstance(error, DeviceUnavailableError) else f"{error!r}"
        advice = recommend(base, workload, options.goal)
        seen = report.Blind(why, patient.facts(), base, advice, known)
        _print(options, report.blind_data(seen), report.blind_text(seen))
        return COULD_NOT_LOOK
    if options.save_profile is not None:
        examination.profile.to_json(options.save_profile)
    advice = recommend(
        examination.profile, workload, options.goal, copies_hold=examination.copies_hold
    )
    accepted = frozenset(options.accept)
    is_off = any(finding.name not in accepted for finding in examination.findings)
    status = SOMETHING_IS_OFF if is_off else FINE
    told = report.Seen(examination, advice, known, accepted, status)
    _print(options, report.data(told), report.text(told))
    return status


def _what_if(options: argparse.Namespace, base: CostProfile, workload: Workload) -> int:
    answers = answer(base, workload)
    if options.svg is not None:
        draw(options.svg, curves(base, workload), workload)
    _print(
        options,
        report.what_if_data(base, workload, answers),
        report.what_if_text(base, workload, answers),
    )
    return FINE


def _print(options: argparse.Namespace, data: dict[str, object], text: str) -> None:
    if options.json:
        print(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(text)
    sys.stdout.flush()


def _workload(options: argparse.Namespace) -> Workload:
    """Give the workload that the options describe; raises ValueError."""
    step_s = options.step_ms * 1e-3
    if options.bytes is None:
        if options.tensors is not None:
            raise ValueError("--tensors goes with --bytes")
        return workloads.named(options.workload or workloads.DEFAULT_WORKLOAD, step_s)
    if options.workload is not None:
        raise ValueError("give --workload or --bytes, not both")
    unnamed = Workload("", options.bytes, options.tensors or 1, step_s)
    return replace(unnamed, name=f"{unnamed.num_bytes} bytes in {unnamed.tensors} tensors")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m asyncout.doctor",
        description="Look at this box: what it does of what asynchronous copies rest on, how "
        "fast, and which policy should suit a workload (modelled). Exit status: 0 all is fine, "
        "1 something is off, 2 could not look.",
    )
    parser.add_argument("--json", action="store_true", help="print one object for scripts")
    parser.add_argument(
        "--workload",
        metavar="NAME",
        help=f"one of {', '.join(map(repr, workloads.SHAPES))}; "
        f"default: {workloads.DEFAULT_WORKLOAD!r}",
    )
    parser.add_argument("--bytes", type=int, help="bytes that a step brings to the host")
    parser.add_argument("--tensors", type=int, help="in how many tensors; default: 1")
    parser.add_argument(
        "--step-ms",
        type=float,
        default=workloads.DEFAULT_STEP_S * 1e3,
        help="kernel time of a step; default: %(default)s",
    )
    parser.add_argument(
        "--goal", choices=tuple(GOALS), default=DEFAULT_GOAL, help="what matters most"
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        choices=findings.names(),
        metavar="FINDING",
        help="let this not count in the exit status; again for each of several: "
        + ", ".join(findings.names()),
    )
    parser.add_argument(
        "--profile",
        default=BASE_PROFILE,
        metavar="NAME_OR_FILE",
        help="cost profile for what is not measured, and for --what-if; default: %(default)s",
    )
    parser.add_argument(
        "--save-profile", type=Path, metavar="FILE", help="write the profile fitted to this box"
    )
    parser.add_argument(
        "--what-if",
        action="store_true",
        help="do not look; say what the workload would gain on other links (modelled)",
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="with --what-if: draw the gain by size"
    )
    parser.add_argument(
        "--virtual", action="store_true", help="look at the virtual device (modelled)"
    )
    return parser
