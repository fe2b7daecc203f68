"""What the doctor says: the same for people and, as one object, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from asyncout.doctor import units
from asyncout.doctor.examination import Examination
from asyncout.doctor.facts import Facts
from asyncout.doctor.links import EFFICIENCY
from asyncout.doctor.predicting import Prediction
from asyncout.doctor.recommending import Recommendation
from asyncout.doctor.speeds import WAIT_S, Points, Speeds
from asyncout.doctor.validation import Validation
from asyncout.doctor.what_if import WORTH_SHARE, Answer
from asyncout.doctor.workloads import Workload
from asyncout.policy import CopyPolicy
from asyncout.virtual import CostProfile

#: Version of the object that ``--json`` prints.
FORMAT = 1

#: Facts that head the text; ``--json`` has all.
_HEADLINE = ("gpu", "driver", "torch", "cuda", "cpu", "host", "pcie_gen_now", "pcie_width_now")

#: What could not be told without a GPU.
_BLIND = (
    "whether pinned memory is to be had, copies are asynchronous and blocking events sleep",
    "bandwidth and latency of copies, and how late each wait ends",
    "PCIe generation and width, clocks, throttling and confidential computing",
)


@dataclass(frozen=True)
class Seen:
    """A look at a box, and what follows from it.

    Attributes
    ----------
    examination : Examination
    advice : Recommendation
    validations : list of Validation
    accepted : frozenset of str
        Findings that do not count.
    status : int
        The exit status.
    """

    examination: Examination
    advice: Recommendation
    validations: list[Validation]
    accepted: frozenset[str]
    status: int


@dataclass(frozen=True)
class Blind:
    """What can be said without having looked.

    Attributes
    ----------
    why : str
    facts : Facts
    profile : CostProfile
        Of another machine.
    advice : Recommendation
        On that machine.
    validations : list of Validation
    """

    why: str
    facts: Facts
    profile: CostProfile
    advice: Recommendation
    validations: list[Validation]


# --- for scripts ---------------------------------------------------------------------------


def data(seen: Seen) -> dict[str, object]:
    """Give the object of a look."""
    examination = seen.examination
    return {
        "format": FORMAT,
        "status": seen.status,
        "why_not": None,
        "probes_modelled": examination.modelled,
        "facts": examination.facts,
        "checks": {
            name: {"holds": check.holds, "question": check.question, "detail": check.detail}
            for name, check in examination.checks.items()
        },
        "speeds": asdict(examination.speeds),
        "findings": [
            {**asdict(finding), "accepted": finding.name in seen.accepted}
            for finding in examination.findings
        ],
        "unknown": examination.unknown,
        "profile": asdict(examination.profile),
        "recommendation": _advice_data(seen.advice),
        "model_errors": [asdict(one) for one in seen.validations],
    }


def blind_data(blind: Blind) -> dict[str, object]:
    """Give the object of a look that could not be had; it has the same keys."""
    return {
        "format": FORMAT,
        "status": 2,
        "why_not": blind.why,
        "probes_modelled": None,
        "facts": blind.facts,
        "checks": {},
        "speeds": None,
        "findings": [],
        "unknown": list(_BLIND),
        "profile": asdict(blind.profile),
        "recommendation": _advice_data(blind.advice),
        "model_errors": [asdict(one) for one in blind.validations],
    }


def what_if_data(
    profile: CostProfile, workload: Workload, answers: Sequence[Answer]
) -> dict[str, object]:
    """Give the object of ``--what-if``."""
    return {
        "format": FORMAT,
        "modelled": True,
        "profile": asdict(profile),
        "link_efficiency": EFFICIENCY,
        "workload": asdict(workload),
        "worth_share": WORTH_SHARE,
        "answers": [{**asdict(one), "gain": one.gain} for one in answers],
    }


def _advice_data(advice: Recommendation) -> dict[str, Any]:
    return {
        "modelled": True,
        "workload": asdict(advice.workload),
        "goal": advice.goal,
        "policy": asdict(advice.best.policy),
        "predicted": asdict(advice.best),
        "original": asdict(advice.original),
        "naive": asdict(advice.naive),
        "step_time_over_original": advice.best.step_s / advice.original.step_s,
        "step_time_over_naive": advice.best.step_s / advice.naive.step_s,
        "result_latency_over_original": (
            advice.best.result_latency_s / advice.original.result_latency_s
        ),
    }


# --- for people ----------------------------------------------------------------------------


def text(seen: Seen) -> str:
    """Say what was seen."""
    examination = seen.examination
    off = [f for f in examination.findings if f.name not in seen.accepted]
    title = "asyncout doctor"
    if examination.modelled:
        title += ": the VIRTUAL device, every figure is modelled"
    parts = [title, _facts(examination.facts), ""]
    parts.append(f"off: {len(off)}" if off else "nothing is off")
    for finding in examination.findings:
        accepted = " (accepted)" if finding.name in seen.accepted else ""
        parts.append(f"  {finding.name}{accepted}: {finding.sentence}")
    parts += [f"  cannot tell: {what}" for what in examination.unknown]
    parts += ["", "checks"]
    parts += [
        f"  {'yes' if check.holds else 'NO '}  {check.question} {check.detail}"
        for check in examination.checks.values()
    ]
    parts += ["", *_speeds(examination.speeds), ""]
    parts += _advice(seen.advice, "short probes of this box", seen.validations)
    return "\n".join(parts)


def blind_text(blind: Blind) -> str:
    """Say what can be said without having looked."""
    parts = ["asyncout doctor", _facts(blind.facts), "", f"could not look: {blind.why}"]
    parts += [f"  cannot tell: {what}" for what in _BLIND]
    parts.append("")
    source = f"the profile {blind.profile.machine}, which is NOT this box"
    parts += _advice(blind.advice, source, blind.validations)
    return "\n".join(parts)


def what_if_text(profile: CostProfile, workload: Workload, answers: Sequence[Answer]) -> str:
    """Say what other links would give."""
    header = (
        "link",
        "copies reach",
        "kernels",
        "as .cpu()",
        "one stream",
        "two streams",
        "gain",
        "worth it from",
        "fills the step at",
    )
    rows = [
        (
            one.link,
            units.rate(one.bytes_per_s),
            units.seconds(one.step_s),
            units.seconds(one.naive_s),
            units.seconds(one.one_stream_s),
            units.seconds(one.two_streams_s),
            units.share(one.gain),
            "no size" if one.worth_from_bytes is None else units.num_bytes(one.worth_from_bytes),
            units.num_bytes(one.fills_step_bytes),
        )
        for one in answers
    ]
    return "\n".join(
        [
            f"MODELLED from the profile {profile.machine}: a step with {_named(workload)}",
            *units.table(header, rows),
            "",
            f"copies reach: the link's specified rate times {EFFICIENCY:.3f}, the share measured "
            "on an H200 at PCIe 5 x16.",
            "gain: what the second stream saves of a step's time. worth it from: the least output, "
            f"a power of two of bytes, for which that is {units.share(WORTH_SHARE)}.",
            "fills the step at: the output whose copy lasts as long as the kernels.",
        ]
    )


def _facts(facts: Facts) -> str:
    return ", ".join(f"{name} {facts[name]}" for name in _HEADLINE if name in facts)


def _named(workload: Workload) -> str:
    size = units.num_bytes(workload.num_bytes)
    return f"{workload.name} ({size} in {workload.tensors} tensors)"


def _speeds(speeds: Speeds) -> list[str]:
    pinned = dict(speeds.pinned_to_host)
    copies = [
        (units.num_bytes(size), *_speed(pinned, size), *_speed(speeds.pageable_to_host, size))
        for size, _ in speeds.pageable_to_host
    ]
    waits = [
        (name, units.seconds(cost.late_s), units.share(cost.cpu_share))
        for name, cost in speeds.waits.items()
    ]
    lines = ["copies: pinned on the device, pageable as long as the call"]
    lines += units.table(("bytes", "pinned to host", "", "pageable to host", ""), copies)
    lines.append(f"waits of {units.seconds(WAIT_S)}")
    lines += units.table(("wait", "back after", "CPU of the wait"), waits)
    return lines


def _speed(points: Points | dict[int, float], size: int) -> tuple[str, str]:
    time = dict(points).get(size)
    if not time:
        return "-", "-"
    return units.seconds(time), units.rate(size / time)


def _advice(advice: Recommendation, source: str, validations: list[Validation]) -> list[str]:
    rows = [
        _prediction("recommended", advice.best),
        _prediction("original", advice.original),
        _prediction("as .cpu() does", advice.naive),
    ]
    header = ("", "step", "result latency", "CPU a step", "policy")
    gain = 1 - advice.best.step_s / advice.original.step_s
    plain = 1 - advice.best.step_s / advice.naive.step_s
    late = 1 - advice.best.result_latency_s / advice.original.result_latency_s
    lines = [
        f"recommended for {_named(advice.workload)}, kernels of "
        f"{units.seconds(advice.workload.step_s)}, goal {advice.goal}",
        f"  {_spell(advice.best.policy)}",
        f"  gain to expect (modelled): {units.share(gain)} of a step's time and {units.share(late)}"
        f" of the result latency against the original, {units.share(plain)} of a step's time "
        "against .cpu()",
        *(f"  {line}" for line in units.table(header, rows)),
        f"  MODELLED on the virtual device from {source}; Python's own time is not in it.",
    ]
    for (machine, commit), those in groupby(validations, lambda one: (one.machine, one.commit)):
        origin = f"{machine} at {commit[:8]}"
        lines.append(f"  the model's error where it was fitted from full results ({origin}):")
        errors = [
            (
                one.metric,
                units.share(one.median_error),
                units.share(one.worst_error),
                str(one.predictions),
            )
            for one in those
        ]
        table = units.table(("metric", "median", "worst", "predictions"), errors)
        lines += [f"    {line}" for line in table]
    if not validations:
        lines.append("  the model's error is not known: no validation is there")
    return lines


def _prediction(name: str, prediction: Prediction) -> tuple[str, ...]:
    return (
        name,
        units.seconds(prediction.step_s),
        units.seconds(prediction.result_latency_s),
        units.seconds(prediction.cpu_s),
        " ".join(asdict(prediction.policy).values()),
    )


def _spell(policy: CopyPolicy) -> str:
    return f"CopyPolicy({', '.join(f'{k}={v!r}' for k, v in asdict(policy).items())})"
