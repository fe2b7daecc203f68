"""What is off with a box: one clear sentence each, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from asyncout.doctor.checks import Check
from asyncout.doctor.facts import Facts, throttle_reasons
from asyncout.doctor.facts.host import numbers_in


@dataclass(frozen=True)
class Finding:
    """One thing that is off.

    Attributes
    ----------
    name : str
        As ``--accept`` takes it.
    sentence : str
    """

    name: str
    sentence: str


def find(facts: Facts, checks: Mapping[str, Check]) -> list[Finding]:
    """List what is off, most harmful first."""
    found = []
    for name, look in _LOOKS.items():
        sentence = look(facts, checks)
        if sentence:
            found.append(Finding(name, sentence))
    return found


def unknown(facts: Facts) -> list[str]:
    """List what the facts do not tell, of what :func:`find` looks at."""
    gaps = {
        "PCIe generation and width, so whether the link is below its maximum": "pcie_gen_now",
        "the clocks' state, so whether the GPU is throttled": "clock_reasons",
        "whether the GPU is in confidential computing mode": "gpu_confidential",
        "whether this is a virtual machine": "host",
    }
    return [what for what, fact in gaps.items() if fact not in facts]


def names() -> list[str]:
    """List the names of all that can be off."""
    return list(_LOOKS)


def _pinned(_facts: Facts, checks: Mapping[str, Check]) -> str:
    if checks["pinned_memory"].holds:
        return ""
    return (
        "Pinned memory was asked for and pageable memory was given, so every copy holds the host; "
        "check the limit on locked memory (ulimit -l) and whether this is WSL or a container "
        "without it."
    )


def _held(facts: Facts, checks: Mapping[str, Check]) -> str:
    if checks["asynchronous_copy"].holds or not checks["pinned_memory"].holds:
        return ""
    why = "confidential computing does this" if _is_confidential(facts) else "CUDA_LAUNCH_BLOCKING"
    return (
        "A copy into pinned memory holds the host until it is done "
        f"({why}, or a tool that makes every call wait, can be why); "
        "use submit='thread', or switch off what makes it wait."
    )


def _same_stream(_facts: Facts, checks: Mapping[str, Check]) -> str:
    check = checks["separate_stream"]
    if check.holds:
        return ""
    return (
        f"Copies will not overlap kernels: {check.detail}; make the copy stream first and keep it, "
        "and see that CUDA_LAUNCH_BLOCKING and CUDA_DEVICE_MAX_CONNECTIONS are not set."
    )


def _blocking(_facts: Facts, checks: Mapping[str, Check]) -> str:
    check = checks["blocking_flag"]
    if check.holds:
        return ""
    return (
        f"A thread that waits for a blocking event does not sleep ({check.detail}), so "
        "wait='block' costs a core as wait='spin' does; use wait='hybrid', which sleeps by itself."
    )


def _batched(_facts: Facts, checks: Mapping[str, Check]) -> str:
    check = checks["batched_call"]
    if check.holds:
        return ""
    return (
        f"copies='batched' gains less here: {check.detail}; a driver of CUDA 13 or later has the "
        "call."
    )


def _confidential(facts: Facts, _checks: Mapping[str, Check]) -> str:
    if not _is_confidential(facts):
        return ""
    return (
        "Confidential computing is on: every copy to the host goes through encrypted buffers and "
        "holds the host when it is issued, pinned or not; use submit='thread'."
    )


def _is_confidential(facts: Facts) -> bool:
    return facts.get("gpu_confidential") == "on" or "host_confidential" in facts


def _wsl(facts: Facts, _checks: Mapping[str, Check]) -> str:
    if "wsl" not in facts:
        return ""
    return (
        "This is the Windows Subsystem for Linux: pinned memory is scarce there and every driver "
        "call slow; measure on plain Linux before you conclude anything."
    )


def _generation(facts: Facts, _checks: Mapping[str, Check]) -> str:
    return _below_maximum(facts, "pcie_gen", "PCIe runs at generation {now} of {most}")


def _width(facts: Facts, _checks: Mapping[str, Check]) -> str:
    return _below_maximum(facts, "pcie_width", "PCIe runs {now} wide, of {most}")


def _below_maximum(facts: Facts, fact: str, words: str) -> str:
    now, most = facts.get(f"{fact}_now"), facts.get(f"{fact}_max")
    if now is None or most is None or _number(now) >= _number(most):
        return ""
    return (
        f"{words.format(now=now, most=most)} with the GPU busy, so large copies take longer than "
        "they need to; check slot, riser and firmware settings."
    )


def _number(text: str) -> int:
    """Read "5" or "16x"."""
    digits = text.rstrip("x")
    return int(digits) if digits.isdigit() else 0


def _throttled(facts: Facts, _checks: Mapping[str, Check]) -> str:
    reasons = throttle_reasons(facts)
    if not reasons:
        return ""
    plain = ", ".join(reason.partition("reason_")[2].replace("_", " ") for reason in reasons)
    return (
        f"The GPU is held back ({plain}), so times here say little of what it can do; look at its "
        "cooling and its power limit, and measure again."
    )


def _numa(facts: Facts, _checks: Mapping[str, Check]) -> str:
    usable, local = facts.get("cpu_affinity", ""), facts.get("gpu_cpus", "")
    if not usable or not local or numbers_in(usable) & numbers_in(local):
        return ""
    return (
        f"This process may use processors {usable} and the GPU hangs on those of node "
        f"{facts['gpu_numa_node']} ({local}), so copies and calls cross between sockets; bind it "
        f"there (numactl -N {facts['gpu_numa_node']} -m {facts['gpu_numa_node']})."
    )


def _virtual_machine(facts: Facts, _checks: Mapping[str, Check]) -> str:
    if facts.get("host") != "vm":
        return ""
    return (
        "This is a virtual machine: a thread that sleeps may wake hundreds of microseconds late; "
        "compare the waits below, and accept this finding where it is what you run on."
    )


_LOOKS: dict[str, Callable[[Facts, Mapping[str, Check]], str]] = {
    "pinned_memory": _pinned,
    "copies_hold_the_host": _held,
    "same_stream": _same_stream,
    "blocking_flag": _blocking,
    "batched_call": _batched,
    "confidential_computing": _confidential,
    "wsl": _wsl,
    "pcie_generation": _generation,
    "pcie_width": _width,
    "throttled": _throttled,
    "numa": _numa,
    "virtual_machine": _virtual_machine,
}
