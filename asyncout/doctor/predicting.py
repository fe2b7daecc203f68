"""What a policy would cost on a profile: the library's own code on the virtual device.

Everything here is modelled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from asyncout.doctor.workloads import Workload
from asyncout.errors import PolicyError
from asyncout.outputs import ModelRunnerOutput
from asyncout.policy import AXES, CopyPolicy
from asyncout.pooling_output import AsyncPoolingOutput
from asyncout.virtual import CostProfile, VirtualMachine

#: Steps before those that count: the hybrid wait has learned, and the pipeline is full.
STEPS_TO_LEARN = 12

#: Steps that count. Virtual time has no noise; more than one, as a loop may alternate.
STEPS = 8


@dataclass(frozen=True)
class Prediction:
    """What the model says of one policy. Modelled, never measured.

    Attributes
    ----------
    policy : CopyPolicy
    step_s : float
        Time of a step of a loop that reads each output while the next step computes.
    result_latency_s : float
        From the end of a step's kernels to its results in hand, where the loop waits for
        them before it launches the next step.
    cpu_s : float
        CPU time of the engine's thread for a step of the first loop.
    """

    policy: CopyPolicy
    step_s: float
    result_latency_s: float
    cpu_s: float


class Model:
    """A profile's box with one workload's tensors on it.

    Parameters
    ----------
    profile : CostProfile
    num_bytes, tensors : int
        What a step brings to the host.
    copies_hold : bool
        Whether copies hold the host whatever the memory, as without pinned memory or under
        confidential computing.
    """

    def __init__(
        self, profile: CostProfile, num_bytes: int, tensors: int, copies_hold: bool = False
    ) -> None:
        if copies_hold:
            profile = profile.replace(pageable_batch_holds=True)
        self._machine = VirtualMachine(profile, pinned_available=not copies_hold)
        self._machine.moves_up_to = 0  # only times matter: no bytes are moved
        self._main, self._copy = self._machine.stream(), self._machine.stream()
        self._machine.set_stream(self._main)
        self._tensors: list[torch.Tensor | None] = [
            self._machine.empty((size,), torch.uint8) for size in _shares(num_bytes, tensors)
        ]
        self._names = [f"tensor-{index}" for index in range(tensors)]

    def predict(self, policy: CopyPolicy, step_s: float) -> Prediction:
        """Run both loops under a policy."""
        step, cpu = self.pipelined(policy, step_s)
        return Prediction(policy, step, self.result_latency(policy, step_s), cpu)

    def pipelined(self, policy: CopyPolicy, step_s: float) -> tuple[float, float]:
        """Give the time of a step of a loop pipelined one deep, and its CPU time."""
        machine = self._machine
        machine.synchronize()
        pending: Any = None
        begin = cpu_begin = 0.0
        for index in range(STEPS_TO_LEARN + STEPS):
            if index == STEPS_TO_LEARN:
                begin, cpu_begin = machine.now, machine.cpu_time
            machine.busy(step_s, self._main)
            output = self._enqueue(policy)
            if pending is not None:
                pending.get_output()
            pending = output
        step, cpu = (machine.now - begin) / STEPS, (machine.cpu_time - cpu_begin) / STEPS
        pending.get_output()
        return step, cpu

    def result_latency(self, policy: CopyPolicy, step_s: float) -> float:
        """Give how long behind the kernels' end the results are in hand."""
        machine, late = self._machine, 0.0
        machine.synchronize()
        for index in range(STEPS_TO_LEARN + STEPS):
            machine.busy(step_s, self._main)
            computed = machine.now + step_s  # the device is idle: it starts at once
            self._enqueue(policy).get_output()
            if index >= STEPS_TO_LEARN:
                late += machine.now - computed
        return late / STEPS

    def _enqueue(self, policy: CopyPolicy) -> AsyncPoolingOutput:
        return AsyncPoolingOutput(
            ModelRunnerOutput(req_ids=self._names, req_id_to_index={}),
            self._tensors,
            [True] * len(self._tensors),
            self._main,
            self._copy,
            policy=policy,
        )


def candidates(copies_hold: bool = False) -> list[CopyPolicy]:
    """List every policy that there is; without pinned memory to be had, those that need none."""
    axes = dict(AXES)
    if copies_hold:
        axes["memory"] = ("pageable",)
    found = []
    for values in itertools.product(*axes.values()):
        try:
            found.append(CopyPolicy(**dict(zip(axes, values, strict=True))))
        except PolicyError:
            continue  # two choices that exclude each other
    return found


def predict_all(
    profile: CostProfile,
    workload: Workload,
    policies: Sequence[CopyPolicy] | None = None,
    *,
    copies_hold: bool = False,
) -> list[Prediction]:
    """Predict each of some policies, by default of all, on one workload."""
    model = Model(profile, workload.num_bytes, workload.tensors, copies_hold)
    chosen = candidates(copies_hold) if policies is None else policies
    return [model.predict(policy, workload.step_s) for policy in chosen]


def distance(one: CopyPolicy, other: CopyPolicy) -> int:
    """Count the fields in which two policies differ."""
    return sum(getattr(one, f.name) != getattr(other, f.name) for f in fields(CopyPolicy))


def _shares(num_bytes: int, tensors: int) -> list[int]:
    """Split bytes into as equal parts as can be."""
    small, more = divmod(num_bytes, tensors)
    return [small + (index < more) for index in range(tensors)]
