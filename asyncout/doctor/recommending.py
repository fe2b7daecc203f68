"""Which policy to use for a workload, and what it should gain. Modelled throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asyncout.doctor.predicting import Prediction, candidates, distance, predict_all
from asyncout.doctor.workloads import Workload
from asyncout.policy import DEFAULT, ORIGINAL, CopyPolicy
from asyncout.virtual import CostProfile

#: What a result brought home with no thought costs: copies one by one on the main stream, into
#: ordinary memory, as ``tensor.cpu()`` makes them.
NAIVE = CopyPolicy(streams="single", memory="pageable", wait="block", copies="per_tensor")

#: Within what a value counts as equal to the best: a share of it, and seconds. Step times differ
#: for plain reasons (a copy that is hidden or not), which the model has. How late results are,
#: and the CPU time, rest on single calls, whose cost varies by some microseconds on one box.
TIES = {"step_s": (0.0005, 0.0), "result_latency_s": (0.05, 10e-6), "cpu_s": (0.05, 10e-6)}

#: What a goal looks at, most important first.
GOALS: dict[str, tuple[str, ...]] = {
    "throughput": ("step_s", "result_latency_s", "cpu_s"),
    "latency": ("result_latency_s", "step_s", "cpu_s"),
}

DEFAULT_GOAL = "throughput"


@dataclass(frozen=True)
class Recommendation:
    """The policy to use, beside what else there is. Modelled, never measured.

    Attributes
    ----------
    workload : Workload
    goal : str
    best : Prediction
    original, naive : Prediction
        Of the technique as its original does it, and of results brought home with no thought.
    """

    workload: Workload
    goal: str
    best: Prediction
    original: Prediction
    naive: Prediction


def choose(predictions: Sequence[Prediction], goal: str = DEFAULT_GOAL) -> Prediction:
    """Choose the best prediction.

    Those that count as equal (:data:`TIES`) to the least in what matters most stay; among
    them, those least in what matters next, and so on. Of what is left, the policy nearest to
    the default.
    """
    left = list(predictions)
    for criterion in GOALS[goal]:
        least = min(getattr(prediction, criterion) for prediction in left)
        share, seconds = TIES[criterion]
        most = least + max(share * least, seconds)
        left = [prediction for prediction in left if getattr(prediction, criterion) <= most]
    return min(left, key=lambda prediction: distance(prediction.policy, DEFAULT))


def recommend(
    profile: CostProfile,
    workload: Workload,
    goal: str = DEFAULT_GOAL,
    *,
    copies_hold: bool = False,
) -> Recommendation:
    """Predict every policy on a workload and choose one.

    Parameters
    ----------
    profile : CostProfile
    workload : Workload
    goal : {"throughput", "latency"}
        What matters most: the time of a step, or how late its results are.
    copies_hold : bool
        Whether copies hold the host whatever the memory.
    """
    policies = candidates(copies_hold)
    extra = [policy for policy in (NAIVE,) if policy not in policies]
    original = ORIGINAL
    if copies_hold:  # what its copies become where no pinned memory is to be had
        original = CopyPolicy(memory="pageable", wait="block", copies="per_tensor")
    predictions = predict_all(profile, workload, [*policies, *extra], copies_hold=copies_hold)
    by_policy = {prediction.policy: prediction for prediction in predictions}
    return Recommendation(
        workload=workload,
        goal=goal,
        best=choose([by_policy[policy] for policy in policies], goal),
        original=by_policy[original],
        naive=by_policy[NAIVE],
    )
