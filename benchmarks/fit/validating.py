"""Predictions beside measurements: each half of the rows from a fit on the other half."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from asyncout.doctor.validation import Validation
from asyncout.virtual import CostProfile
from asyncout.virtual.memory import NEW_FROM_BYTES
from benchmarks import names
from benchmarks.fit.fitting import fit
from benchmarks.fit.observed import Observed
from benchmarks.fit.twin import Twin
from benchmarks.grids import factorial, library, memory, streams

#: What the model is to reach for step time: median and worst error.
TARGET_MEDIAN, TARGET_WORST = 0.05, 0.15

#: Metrics of question 4's policies, by where their copies land: two parts of the model.
POLICY_STEP_TIME = {kind: f"{factorial.EACH}, {kind}" for kind in (memory.PINNED, memory.PAGEABLE)}

#: Why steps of question 4 are not as long as modelled, whatever the memory.
EXPOSED_HOST = (
    "the model has no Python: what the host does between a step's results and the next launch "
    "(conversion into lists, a cold constructor) is in the step where the loop waits for each "
    "step's results; and its blocking wait wakes as late after a short wait as after a long one"
)

#: What more there is to it with pageable memory.
HELD_HOST = (
    "; a pageable copy of its own holds the host until the results are there, so Python's time is "
    "in the step of a pipelined loop too; and pages are made for new memory of "
    f"{NEW_FROM_BYTES >> 20} MiB or more only, while for smaller destinations it is the "
    "allocator's past that decides"
)

#: Why a prediction is off by more than :data:`TARGET_WORST`, by its metric.
REASONS = {
    streams.EXPOSED_TIME: "it is the microseconds that a step has left over, and the model has no "
    "Python: a tenth of the last output's conversion is in each step, as is the change between "
    "kernels and copies",
    memory.COPY_TIME: "a copy's latency and its call are those of an engine's cold thread, and "
    "this loop is warm; and only sizes with new memory tell what its pages cost: a half of the "
    "sizes without one predicts the other's as if there were none",
    POLICY_STEP_TIME[memory.PINNED]: EXPOSED_HOST,
    POLICY_STEP_TIME[memory.PAGEABLE]: EXPOSED_HOST + HELD_HOST,
    library.LATENCY: "the model has no Python, and so no conversion into lists",
}


@dataclass(frozen=True)
class Predicted:
    """One prediction of a row that the fit did not see.

    Attributes
    ----------
    metric, workload, arm : str
    measured, predicted : float
        Seconds.
    """

    metric: str
    workload: str
    arm: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def validate(observed: Observed, base: CostProfile, twin: Twin) -> list[Predicted]:
    """Fit on every other workload and size and predict the rest; then the other way round."""
    found: list[Predicted] = []
    of_policies: list[Predicted] = []
    workloads = sorted(
        {workload for workload, _ in observed.steps},
        key=lambda workload: twin.step_of(workload).num_bytes,
    )
    sizes = sorted({size for size, _ in observed.copies}, key=names.SIZES.__getitem__)
    in_loops = sorted(
        {names.block_parts(block)[0] for block, _ in observed.policies},
        key=lambda workload: twin.step_of(workload).num_bytes,
    )
    for seen in (0, 1):
        profile = fit(
            observed,
            base,
            twin,
            workloads=workloads[seen::2],
            sizes=sizes[seen::2],
            loops=in_loops[seen::2],
        )
        with twin.under(profile):
            found += _predict(observed, twin, workloads[1 - seen :: 2], sizes[1 - seen :: 2])
            of_policies += _predict_policies(observed, twin, in_loops[1 - seen :: 2])
    # Of no row of the result latencies was anything fitted: both halves would say the same.
    with twin.under(fit(observed, base, twin)):
        found += [
            Predicted(library.LATENCY, name, arm, time, twin.latency(name, arm))
            for (name, arm), time in observed.latencies.items()
            if arm in library.POLICIES
        ]
    return found + of_policies


def _predict(
    observed: Observed, twin: Twin, workloads: Sequence[str], sizes: Sequence[str]
) -> Iterator[Predicted]:
    bare = twin.bare_step()
    for workload in workloads:
        for arm in (streams.ONE, streams.TWO):
            step, exposed = observed.steps[workload, arm], observed.exposed[workload, arm]
            predicted = twin.step_time(workload, arm)
            yield Predicted(streams.STEP_TIME, workload, arm, step, predicted)
            yield Predicted(streams.EXPOSED_TIME, workload, arm, exposed, predicted - bare)
    for size in sizes:
        for kind in (memory.PINNED, memory.PAGEABLE):
            measured = observed.copies[size, kind]
            yield Predicted(memory.COPY_TIME, size, kind, measured, twin.copy_time(size, kind))


def _predict_policies(
    observed: Observed, twin: Twin, workloads: Sequence[str]
) -> Iterator[Predicted]:
    for (block, arm), measured in observed.policies.items():
        if names.block_parts(block)[0] in workloads:
            metric = POLICY_STEP_TIME[factorial.POLICIES[arm].memory]
            yield Predicted(metric, block, arm, measured, twin.policy_step(block, arm))


def summarise(observed: Observed, predictions: Sequence[Predicted]) -> list[Validation]:
    """Give the errors of each metric, in the order of the predictions."""
    by_metric: dict[str, list[float]] = {}
    for prediction in predictions:
        by_metric.setdefault(prediction.metric, []).append(abs(prediction.error))
    return [
        Validation(observed.machine, observed.commit, metric, len(e), median(e), max(e))
        for metric, e in by_metric.items()
    ]


def without_copies(observed: Observed) -> tuple[float, float]:
    """Give median and worst error of a model in which copies cost nothing.

    What a model has to beat: at steps of 2 ms most copies are a small part of the step.
    """
    errors = [abs(observed.exposed[key] / step) for key, step in observed.steps.items()]
    return median(errors), max(errors)
