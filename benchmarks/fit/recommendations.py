"""The doctor's recommendations beside the policies that question 4 found best.

In each block of question 4 all policies without a worker thread were measured, interleaved.
The doctor knows only a profile of the box, of which no row of question 4 is a part. What
its choice costs is the *regret*: the measured step time under the recommended policy over
that under the best one, less 1.

The best of 24 measured policies is in part the luckiest, so a recommended one also counts as
good where the two intervals overlap, or where the regret is too small to matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from asyncout.doctor import workloads
from asyncout.doctor.predicting import Prediction, predict_all
from asyncout.doctor.recommending import choose
from asyncout.policy import DEFAULT, ORIGINAL
from asyncout.virtual import CostProfile
from benchmarks import names
from benchmarks.grids import factorial
from benchmarks.results import Gain, ResultsError

#: What to ask the doctor for, by the loop that was measured.
GOALS = {"pipelined": "throughput", "synchronous": "latency"}

#: Regret below which nobody would choose again.
NEGLIGIBLE = 0.005


@dataclass(frozen=True)
class Ratio:
    """Step time under a policy over the original preset's, with its interval."""

    ratio: float
    low: float
    high: float


#: Of the preset that all others are compared with.
UNITY = Ratio(1.0, 1.0, 1.0)

#: Ratios of all policies of a block, by their levels joined by "-".
Block = Mapping[str, Ratio]


@dataclass(frozen=True)
class Outcome:
    """What the doctor recommends for a block, and what was measured there.

    Attributes
    ----------
    block, loop, goal : str
    recommended, best : str
        Policies by their levels: the doctor's, and the one with the least measured ratio.
    predicted : float
        Step time under the recommended policy over the original preset's. Modelled.
    measured, best_measured : Ratio
        The same as measured, of the recommended and of the best policy.
    default_measured : Ratio
        Of the policy that an output uses when it is given none.
    wants_thread : bool
        Whether the doctor would rather have a worker thread, which these blocks lack.
    """

    block: str
    loop: str
    goal: str
    recommended: str
    best: str
    predicted: float
    measured: Ratio
    best_measured: Ratio
    default_measured: Ratio
    wants_thread: bool

    @property
    def is_exact(self) -> bool:
        """Whether the doctor recommends the best policy."""
        return self.recommended == self.best

    @property
    def regret(self) -> float:
        """Measured step time of the recommended policy over the best one's, less 1."""
        return _regret(self.measured, self.best_measured)

    @property
    def is_as_good(self) -> bool:
        """Whether the recommended policy cannot be told from the best one, or hardly."""
        return _is_as_good(self.measured, self.best_measured)

    @property
    def default_regret(self) -> float:
        """Regret of using the default policy instead, whatever the block."""
        return _regret(self.default_measured, self.best_measured)

    @property
    def is_default_as_good(self) -> bool:
        """Whether the default policy would have been as good as the best one."""
        return _is_as_good(self.default_measured, self.best_measured)

    @property
    def error(self) -> float:
        """Predicted ratio over the measured one, less 1."""
        return self.predicted / self.measured.ratio - 1


def _regret(chosen: Ratio, best: Ratio) -> float:
    return chosen.ratio / best.ratio - 1


def _is_as_good(chosen: Ratio, best: Ratio) -> bool:
    return chosen.low <= best.high or _regret(chosen, best) < NEGLIGIBLE


@dataclass(frozen=True)
class Summary:
    """What the doctor's recommendations are worth over the blocks of a loop.

    Attributes
    ----------
    loop, goal : str
    blocks : int
    exact, as_good, default_as_good : int
        Blocks where the doctor recommends the best policy; one as good; where the default
        policy is as good.
    median_regret, worst_regret, default_median_regret, default_worst_regret : float
    worst_regret_block : str
    median_error, worst_error : float
        Of predicted over measured ratio, less 1, without its sign.
    worst_error_block : str
    wants_thread : int
        Blocks where the doctor would rather have a worker thread.
    """

    loop: str
    goal: str
    blocks: int
    exact: int
    as_good: int
    default_as_good: int
    median_regret: float
    worst_regret: float
    worst_regret_block: str
    default_median_regret: float
    default_worst_regret: float
    median_error: float
    worst_error: float
    worst_error_block: str
    wants_thread: int


def observe(gains: Iterable[Gain]) -> dict[str, Block]:
    """Sort the measured rows of one machine at one commit: each block's policies.

    Raises
    ------
    ResultsError
        They are of several machines or commits, there are none, or a block lacks a policy.
    """
    rows = [gain for gain in gains if gain.metric == factorial.EACH and not gain.modelled]
    if not rows:
        raise ResultsError(
            f"no measured rows {factorial.EACH!r}: measure question 4 on a GPU with `make bench`"
        )
    runs = {(gain.machine, gain.commit) for gain in rows}
    if len(runs) > 1:
        raise ResultsError(
            f"recommendations are compared with one machine's results at one commit; these are "
            f"of {len(runs)}: name a machine and a commit"
        )
    original = factorial.policy_name(ORIGINAL)
    blocks: dict[str, dict[str, Ratio]] = {}
    for gain in rows:
        if gain.ratio is None or gain.low is None or gain.high is None:
            raise ResultsError(f"{gain.workload}: {gain.arm} has no ratio to the original's time")
        policies = blocks.setdefault(gain.workload, {original: UNITY})
        policies[gain.arm] = Ratio(gain.ratio, gain.low, gain.high)
    for block, policies in blocks.items():
        if policies.keys() != factorial.POLICIES.keys():
            wrong = sorted(policies.keys() ^ factorial.POLICIES.keys())
            raise ResultsError(
                f"{block}: policies missing or unknown: {', '.join(wrong)}; measure it again"
            )
    return dict(blocks)


def assess(profile: CostProfile, blocks: Mapping[str, Block]) -> list[Outcome]:
    """Ask the doctor for each block, and lay its choice beside the measured best."""

    @cache  # both loops of a workload and a step length rest on the same predictions
    def predictions(workload: str, step_s: float) -> list[Prediction]:
        return predict_all(profile, workloads.named(workload, step_s))

    outcomes = []
    for block, measured in blocks.items():
        workload, loop, length = names.block_parts(block)
        goal, step_s = GOALS[loop], names.STEP_LENGTHS[length]
        everything = predictions(workload, step_s)
        by_policy = {one.policy: one for one in everything}
        chosen = choose([by_policy[policy] for policy in factorial.POLICIES.values()], goal)
        recommended = factorial.policy_name(chosen.policy)
        best = min(measured, key=lambda name: measured[name].ratio)
        times = [
            predicted_step_s(one, loop, step_s, profile, factorial.steps_of_sample(step_s))
            for one in (chosen, by_policy[ORIGINAL])
        ]
        outcomes.append(
            Outcome(
                block=block,
                loop=loop,
                goal=goal,
                recommended=recommended,
                best=best,
                predicted=times[0] / times[1],
                measured=measured[recommended],
                best_measured=measured[best],
                default_measured=measured[factorial.policy_name(DEFAULT)],
                wants_thread=choose(everything, goal).policy.submit == "thread",
            )
        )
    return outcomes


def predicted_step_s(
    prediction: Prediction, loop: str, step_s: float, profile: CostProfile, steps: int
) -> float:
    """Give the time of a step of a loop of question 4, as the model has it.

    A loop that waits for each step's results launches a kernel, which runs, and has them
    when they are there; nothing of that overlaps. So it is with the first step of a
    pipelined loop; each one more takes what the model says of a loop without an end.
    """
    alone = profile.call_kernel_s + step_s + prediction.result_latency_s
    if loop == "pipelined":
        return (alone + (steps - 1) * prediction.step_s) / steps
    return alone


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """Give one summary for each loop that was measured."""
    by_loop: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.loop, []).append(outcome)
    return [_summary(by_loop[loop]) for loop in names.LOOPS if loop in by_loop]


def _summary(outcomes: Sequence[Outcome]) -> Summary:
    regretted = max(outcomes, key=lambda one: one.regret)
    furthest = max(outcomes, key=lambda one: abs(one.error))
    return Summary(
        loop=regretted.loop,
        goal=regretted.goal,
        blocks=len(outcomes),
        exact=sum(one.is_exact for one in outcomes),
        as_good=sum(one.is_as_good for one in outcomes),
        default_as_good=sum(one.is_default_as_good for one in outcomes),
        median_regret=median(one.regret for one in outcomes),
        worst_regret=regretted.regret,
        worst_regret_block=regretted.block,
        default_median_regret=median(one.default_regret for one in outcomes),
        default_worst_regret=max(one.default_regret for one in outcomes),
        median_error=median(abs(one.error) for one in outcomes),
        worst_error=abs(furthest.error),
        worst_error_block=furthest.block,
        wants_thread=sum(one.wants_thread for one in outcomes),
    )
