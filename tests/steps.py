"""Small steps on the virtual device, with the values that must arrive."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from asyncout import (
    AXES,
    AsyncOutput,
    CopyPolicy,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
)
from asyncout.virtual import VirtualMachine

#: How long the step's kernels run: far longer than any copy of it.
COMPUTE_SECONDS = 1e-3

#: Every combination of the policies' axes that there is.
ALL_POLICIES = [
    CopyPolicy(**dict(zip(AXES, choices, strict=True)))
    for choices in itertools.product(*AXES.values())
    if not {"single", "thread"} <= set(choices)
]


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Call `work` with each number below `count`, each in a thread of its own, at once."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def policy_name(policy: CopyPolicy) -> str:
    """Name a policy in a test's id."""
    name = f"{policy.streams}-{policy.memory}-{policy.wait}-{policy.copies}"
    return name if policy.submit == "inline" else f"{name}-{policy.submit}"


@dataclass
class Box:
    """A virtual machine with a main stream, which is current, and a copy stream."""

    vm: VirtualMachine = field(default_factory=VirtualMachine)

    def __post_init__(self) -> None:
        self.main = self.vm.stream()
        self.copy = self.vm.stream()
        self.vm.set_stream(self.main)

    def computed(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Give a device tensor whose values only appear when the step's kernels have run."""
        data = torch.as_tensor(values, dtype=dtype)
        source = self.vm.tensor(data)
        result = self.vm.empty(data.shape, dtype)
        self.vm.busy(COMPUTE_SECONDS)
        result.copy_(source)
        return result

    def runner_output(self, requests: int) -> ModelRunnerOutput:
        """Give an empty model runner output for requests "r0", "r1", ..."""
        ids = [f"r{index}" for index in range(requests)]
        return ModelRunnerOutput(
            req_ids=ids, req_id_to_index={name: index for index, name in enumerate(ids)}
        )

    def output(
        self,
        ids: list[list[int]],
        counts: list[int] | None = None,
        *,
        policy: CopyPolicy | None = None,
        runner_output: ModelRunnerOutput | None = None,
        logprobs: LogprobsTensors | None = None,
        nans: list[int] | None = None,
        **arguments: Any,
    ) -> AsyncOutput:
        """Compute a step and construct its output; nothing else keeps the tensors."""
        if policy is not None:
            arguments["policy"] = policy
        sampled = SamplerOutput(
            sampled_token_ids=self.computed(ids, torch.int64),
            logprobs_tensors=logprobs,
            num_nans=None if nans is None else self.computed(nans),
        )
        return AsyncOutput(
            runner_output or self.runner_output(len(ids)),
            sampled,
            self.computed([len(row) for row in ids] if counts is None else counts),
            self.main,
            self.copy,
            **arguments,
        )

    def logprobs(self, rows: int, columns: int = 2, **boundaries: Any) -> LogprobsTensors:
        """Give computed logprobs: ids count up, values are their tenths, ranks their rows."""
        ids = torch.arange(rows * columns).view(rows, columns)
        return LogprobsTensors(
            self.computed(ids, torch.int32),
            self.computed(ids / 10, torch.float32),
            self.computed(torch.arange(rows), torch.int32),
            **boundaries,
        )

    def overwrite_freed_memory(self) -> None:
        """Run kernels that would get the memory of whatever has been freed."""
        for _ in range(4):
            self.vm.empty((64,), torch.int64).fill_(-7)
