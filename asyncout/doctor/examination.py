"""The whole look at a box: facts, checks, speeds, and the profile that they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from asyncout.doctor import findings
from asyncout.doctor.box import Box
from asyncout.doctor.checks import Check, run_checks
from asyncout.doctor.facts import Facts, gpu_facts, host_facts
from asyncout.doctor.findings import Finding
from asyncout.doctor.fitting import fit_profile
from asyncout.doctor.speeds import Speeds, measure_speeds
from asyncout.virtual import CostProfile

#: Kernel time while facts are read, seconds: an idle GPU lets its clocks and its link sleep,
#: and reading takes a second at most.
LOAD_S = 1.5


@dataclass(frozen=True)
class Examination:
    """What was seen of a box.

    Attributes
    ----------
    modelled : bool
        Whether the box was the virtual device.
    facts : Facts
        Read while the GPU was busy.
    checks : dict of str to Check
    speeds : Speeds
    profile : CostProfile
        Fitted from the speeds.
    findings : list of Finding
        What is off.
    unknown : list of str
        What could not be told.
    """

    modelled: bool
    facts: Facts
    checks: dict[str, Check]
    speeds: Speeds
    profile: CostProfile
    findings: list[Finding]
    unknown: list[str]

    @property
    def copies_hold(self) -> bool:
        """Whether copies hold the host whatever the memory."""
        return not self.checks["asynchronous_copy"].holds


def examine(box: Box, base: CostProfile, read_facts: Callable[[], Facts]) -> Examination:
    """Look at a box.

    Parameters
    ----------
    box : Box
    base : CostProfile
        What is not measured is taken from it.
    read_facts : callable
        Reads the facts of the box's machine.
    """
    checks = run_checks(box)
    speeds = measure_speeds(box, copies_hold=not checks["asynchronous_copy"].holds)
    box.busy(LOAD_S)
    facts = read_facts()
    box.synchronize()
    name = facts.get("gpu") or facts.get("cuda_device") or "this box"
    profile = fit_profile(
        speeds, base, name, "short probes of asyncout.doctor; what they lack is of " + base.machine
    )
    return Examination(
        modelled=box.modelled,
        facts=facts,
        checks=checks,
        speeds=speeds,
        profile=profile,
        findings=findings.find(facts, checks),
        unknown=findings.unknown(facts),
    )


def facts_here() -> Facts:
    """Read this machine's facts in this process, which has torch already."""
    return {
        **host_facts(),
        "torch": torch.__version__,
        **({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        **gpu_facts(),
    }
