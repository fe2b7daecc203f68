"""What a machine's results say, by what the model has to explain: medians, in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from asyncout.policy import ORIGINAL
from benchmarks import names
from benchmarks.grids import factorial, library, memory, streams, waits
from benchmarks.results import Gain, ResultsError

#: (workload, arm) → seconds or share.
Values = dict[tuple[str, str], float]


@dataclass
class Observed:
    """Medians of one machine at one commit; keys are (workload, arm) of the suites.

    Attributes
    ----------
    machine, commit : str
    steps, exposed, shares : Values
        Question 1: step time, exposed copy time, and its share of the copy's own time.
    copies : Values
        Question 2: copy time.
    late, burnt : Values
        Question 3: wake-up latency, and CPU time over the wait's wall time.
    policies : Values
        Question 4: step time of each policy, by block and the policy's levels.
    enqueues, latencies : Values
        Question 5: host time to construct an output, and result latency.
    """

    machine: str
    commit: str
    steps: Values = field(default_factory=dict)
    exposed: Values = field(default_factory=dict)
    shares: Values = field(default_factory=dict)
    copies: Values = field(default_factory=dict)
    late: Values = field(default_factory=dict)
    burnt: Values = field(default_factory=dict)
    policies: Values = field(default_factory=dict)
    enqueues: Values = field(default_factory=dict)
    latencies: Values = field(default_factory=dict)

    @property
    def alone(self) -> dict[str, float]:
        """Device time of each workload's copies: question 1 stores their exposed share.

        Of the loop on one stream, whose exposed time is far above its noise.
        """
        return {
            workload: self.exposed[workload, arm] / share
            for (workload, arm), share in self.shares.items()
            if arm == streams.ONE and share > 0
        }


_WHERE = {
    streams.STEP_TIME: "steps",
    streams.EXPOSED_TIME: "exposed",
    streams.EXPOSED_SHARE: "shares",
    memory.COPY_TIME: "copies",
    waits.WAKE_UP: "late",
    waits.CPU_SHARE: "burnt",
    factorial.EACH: "policies",
    library.ENQUEUE: "enqueues",
    library.LATENCY: "latencies",
}

#: What a profile cannot be fitted without, by the question that gives it.
_NEEDED = {"steps": 1, "shares": 1, "copies": 2, "late": 3, "burnt": 3, "enqueues": 5}


def observe(gains: Iterable[Gain]) -> Observed:
    """Sort one machine's measured rows.

    Raises
    ------
    ResultsError
        They are of several machines or commits, or a question is missing.
    """
    measured = [gain for gain in gains if not gain.modelled]
    runs = {(gain.machine, gain.commit) for gain in measured}
    if len(runs) != 1:
        raise ResultsError(
            f"a profile is fitted from one machine's results at one commit; these are of "
            f"{len(runs)}: name a machine with measured results, and a commit"
        )
    ((machine, commit),) = runs
    observed = Observed(machine, commit)
    for gain in measured:
        where = _WHERE.get(gain.metric)
        if gain.workload.endswith(names.REAL_KERNELS):
            continue  # virtual kernels only take time
        if where is not None:
            values: Values = getattr(observed, where)
            values[gain.workload, gain.arm] = gain.arm_value
            # The original's preset is one of question 4's policies, under a name of its own.
            is_preset = gain.metric == factorial.EACH and gain.baseline == factorial.BASELINE
            baseline = factorial.policy_name(ORIGINAL) if is_preset else gain.baseline
            values[gain.workload, baseline] = gain.baseline_value
    missing = sorted({q for name, q in _NEEDED.items() if not getattr(observed, name)})
    if missing:
        raise ResultsError(
            f"{machine} at {commit[:8]} has no results of question "
            f"{', '.join(map(str, missing))}: measure all of them with `make bench`"
        )
    return observed
