"""The outputs of a step at realistic shapes, shared by both suites.

A workload builds its device tensors once; each step then makes a fresh model runner
output, constructs the library's output on the same tensors, and can verify every
value that arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from asyncout import (
    AsyncOutput,
    AsyncPoolingOutput,
    CopyPolicy,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
    SamplingMaskTensors,
)
from benchmarks.devices import BenchDevice
from benchmarks.original import OriginalOutput

#: Vocabulary of Llama 3, the size that the published masks and logits have.
VOCABULARY = 128_256

#: Most token ids that a mask row lists; a row with more is read from its bits.
MASK_WIDTH = 2_048

#: Every workload's random values come from this seed, so that all arms copy the same.
SEED = 20_251_201


class Step(Protocol):
    """One step of a workload, on one device."""

    num_bytes: int

    def prepare(self) -> ModelRunnerOutput:
        """Make a fresh object to fill in."""

    def enqueue(self, runner_output: ModelRunnerOutput, policy: CopyPolicy) -> Any:
        """Construct the library's output."""

    def enqueue_original(self, runner_output: ModelRunnerOutput, copy: Any = None) -> Any:
        """Construct the original's output on the same tensors, by default on the copy stream."""

    def verify(self, result: ModelRunnerOutput) -> None:
        """Raise AssertionError unless every value arrived."""


@dataclass(frozen=True)
class Workload:
    """A named shape.

    Attributes
    ----------
    name : str
    build : callable
        Makes a :class:`Step` on a device.
    """

    name: str
    build: Callable[[BenchDevice], Step]


class SampledStep:
    """A step of a sampler, with whatever parts a workload has.

    Parameters
    ----------
    device : BenchDevice
    requests : int
        R.
    logprobs : int
        K, 0 for none.
    width : int
        W; above 1 the counts are ragged.
    prompts : int
        Requests that also have prompt logprobs.
    positions : int
        Prompt positions of each.
    masks : {"", "narrow", "wide"}
        Sampling masks: none, rows of at most 100 tokens as top-p leaves them mostly, or
        one row in eight with more tokens than are listed.
    experts : tuple of int
        Shape of the routed experts, int16; () for none.
    """

    def __init__(
        self,
        device: BenchDevice,
        requests: int,
        logprobs: int = 0,
        *,
        width: int = 1,
        prompts: int = 0,
        positions: int = 0,
        masks: str = "",
        experts: tuple[int, ...] = (),
    ) -> None:
        random = np.random.default_rng(SEED)
        self._device = device
        self._names = [f"request-{index}" for index in range(requests)]
        self._host_ids = random.integers(0, VOCABULARY, (requests, width))
        self._host_counts = (
            random.integers(1, width + 1, requests) if width > 1 else np.ones(requests, int)
        ).astype(np.int32)
        tokens = int(self._host_counts.sum())
        self._boundaries = [0, *np.cumsum(self._host_counts).tolist()] if width > 1 else None
        self._host_logprobs = _host_logprobs(random, tokens, logprobs + 1) if logprobs else None
        self._host_prompts = [_host_logprobs(random, positions, 2) for _ in range(prompts)]
        self._host_masks = _host_masks(random, requests * width, masks == "wide") if masks else None
        self._host_experts = random.integers(0, 256, experts).astype(np.int16) if experts else None

        self._counts = self._to_device(self._host_counts)
        self._sampled = SamplerOutput(
            sampled_token_ids=self._to_device(self._host_ids),
            logprobs_tensors=self._logprobs(self._host_logprobs, self._boundaries),
            num_nans=self._to_device(np.zeros(requests, np.int32)) if logprobs else None,
            num_sampled=self._counts,
            sampling_mask_tensors=None
            if self._host_masks is None
            else SamplingMaskTensors(
                *[self._to_device(part) for part in self._host_masks[:3]], VOCABULARY, width
            ),
        )
        self._prompts = [self._logprobs(part) for part in self._host_prompts]
        self._experts = None if self._host_experts is None else self._to_device(self._host_experts)
        parts = [self._host_ids, self._host_counts, *(self._host_logprobs or [])]
        parts += [array for prompt in self._host_prompts for array in prompt]
        parts += list(self._host_masks[:3]) if self._host_masks else []
        parts += [] if self._host_experts is None else [self._host_experts]
        self.num_bytes = sum(array.nbytes for array in parts)

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return self._device.tensor(torch.from_numpy(np.ascontiguousarray(array)))

    def _logprobs(self, host: Any, boundaries: list[int] | None = None) -> Any:
        if host is None:
            return None
        return LogprobsTensors(*[self._to_device(array) for array in host], boundaries)

    def prepare(self) -> ModelRunnerOutput:
        """Make a fresh object to fill in, with the step's prompt logprobs."""
        return ModelRunnerOutput(
            req_ids=self._names,
            req_id_to_index={},
            prompt_logprobs_dict=dict(zip(self._names, self._prompts, strict=False)),
        )

    def enqueue(self, runner_output: ModelRunnerOutput, policy: CopyPolicy) -> AsyncOutput:
        """Construct the library's output."""
        return AsyncOutput(
            runner_output,
            self._sampled,
            self._counts,
            self._device.main,
            self._device.copy,
            pending_aux_output=None if self._experts is None else RoutedExperts(self._experts),
            policy=policy,
        )

    def enqueue_original(
        self, runner_output: ModelRunnerOutput, copy: Any = None
    ) -> OriginalOutput:
        """Construct the original's output on the same tensors, by default on the copy stream."""
        copy = copy or self._device.copy
        return OriginalOutput(runner_output, self._sampled, self._counts, self._device.main, copy)

    def verify(self, result: ModelRunnerOutput) -> None:
        """Raise AssertionError unless every value arrived."""
        expected = [
            row[:count].tolist()
            for row, count in zip(self._host_ids, self._host_counts, strict=True)
        ]
        _require(result.sampled_token_ids == expected, "sampled_token_ids")
        if self._host_logprobs is not None:
            assert result.logprobs is not None
            for array, name in zip(self._host_logprobs, result.logprobs._fields, strict=False):
                _require(np.array_equal(getattr(result.logprobs, name), array), name)
        for name, host in zip(self._names, self._host_prompts, strict=False):
            prompt = result.prompt_logprobs_dict[name]
            assert prompt is not None
            for array, tensor in zip(host, prompt, strict=False):
                _require(np.array_equal(np.asarray(tensor), array), f"prompt logprobs of {name}")
        if self._host_masks is not None:
            assert result.sampling_masks is not None
            kept = np.concatenate([np.flatnonzero(row) for row in self._host_masks[3]])
            _require(np.array_equal(result.sampling_masks.token_ids, kept), "sampling masks")
        if self._host_experts is not None:
            arrived = result.aux_output_connector_output
            _require(np.array_equal(arrived.numpy(), self._host_experts), "routed experts")


class RoutedExperts:
    """An aux output that copies one tensor, as an engine's routed-expert output does."""

    def __init__(self, experts: torch.Tensor) -> None:
        self._experts = experts

    def enqueue_cpu_copy(self, num_sampled: Any, num_rejected: Any) -> None:
        """Enqueue the copy on the current stream."""
        self._host = self._experts.to("cpu", non_blocking=True)

    def process_output(self) -> torch.Tensor:
        """Give the tensor on the host."""
        return self._host


class PooledStep:
    """Pooled vectors, or a whole step's logits, of R finished requests.

    Parameters
    ----------
    device : BenchDevice
    rows, columns : int
    dtype : torch.dtype
    """

    def __init__(self, device: BenchDevice, rows: int, columns: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._device = device
        self._host = torch.rand((rows, columns), generator=generator).to(dtype)
        self._pooled = device.tensor(self._host)
        self._names = [f"request-{index}" for index in range(rows)]
        self.num_bytes = self._host.nbytes

    def prepare(self) -> ModelRunnerOutput:
        """Make a fresh object to fill in."""
        return ModelRunnerOutput(req_ids=self._names, req_id_to_index={})

    def enqueue(self, runner_output: ModelRunnerOutput, policy: CopyPolicy) -> AsyncPoolingOutput:
        """Construct the library's output."""
        finished = [True] * len(self._names)
        return AsyncPoolingOutput(
            runner_output,
            self._pooled,
            finished,
            self._device.main,
            self._device.copy,
            policy=policy,
        )

    def enqueue_original(self, runner_output: ModelRunnerOutput, copy: Any = None) -> Any:
        """There is none: question 5 compares sampled steps only."""
        raise TypeError("the original's pooled output is no baseline of any question")

    def verify(self, result: ModelRunnerOutput) -> None:
        """Raise AssertionError unless every value arrived."""
        assert result.pooler_output is not None
        _require(
            all(
                row is not None and torch.equal(row, host)
                for row, host in zip(result.pooler_output, self._host, strict=True)
            ),
            "pooler_output",
        )


class RaggedStep(PooledStep):
    """Pooled vectors of different lengths, one tensor per request, every fourth unfinished.

    Parameters
    ----------
    device : BenchDevice
    requests, longest, columns : int
        Each request has up to `longest` rows of `columns` values, fp32.
    """

    def __init__(self, device: BenchDevice, requests: int, longest: int, columns: int) -> None:
        random = np.random.default_rng(SEED)
        self._device = device
        self._parts = [
            torch.from_numpy(random.random((int(rows), columns), np.float32))
            for rows in random.integers(1, longest + 1, requests)
        ]
        self._finished = [index % 4 != 3 for index in range(requests)]
        self._pooled_parts = [device.tensor(part) for part in self._parts]
        self._names = [f"request-{index}" for index in range(requests)]
        self.num_bytes = sum(
            part.nbytes
            for part, is_done in zip(self._parts, self._finished, strict=True)
            if is_done
        )

    def enqueue(self, runner_output: ModelRunnerOutput, policy: CopyPolicy) -> AsyncPoolingOutput:
        """Construct the library's output."""
        return AsyncPoolingOutput(
            runner_output,
            list(self._pooled_parts),
            self._finished,
            self._device.main,
            self._device.copy,
            policy=policy,
        )

    def verify(self, result: ModelRunnerOutput) -> None:
        """Raise AssertionError unless every value arrived."""
        assert result.pooler_output is not None
        for row, host, is_done in zip(
            result.pooler_output, self._parts, self._finished, strict=True
        ):
            is_right = torch.equal(row, host) if is_done else row is None
            _require(is_right, "pooler_output")


def _host_logprobs(random: np.random.Generator, rows: int, columns: int) -> list[np.ndarray]:
    return [
        random.integers(0, VOCABULARY, (rows, columns)).astype(np.int32),
        random.random((rows, columns), np.float32),
        random.integers(1, VOCABULARY, rows).astype(np.int32),
    ]


def _host_masks(random: np.random.Generator, rows: int, wide: bool) -> list[np.ndarray]:
    """Make ids, bits, counts and, to check against, plain masks."""
    masks = np.zeros((rows, VOCABULARY), bool)
    ids = np.zeros((rows, MASK_WIDTH), np.int32)
    counts = np.zeros(rows, np.int32)
    for row in range(rows):
        # Top-p leaves few tokens mostly, and thousands where the model has no idea.
        number = MASK_WIDTH * 2 if wide and row % 8 == 7 else int(random.integers(1, 100))
        allowed = np.sort(random.choice(VOCABULARY, number, replace=False))
        masks[row, allowed] = True
        counts[row] = number
        listed = min(number, MASK_WIDTH)
        ids[row, :listed] = allowed[:listed]
    return [ids, np.packbits(masks, axis=1, bitorder="little"), counts, masks]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"{what}: what arrived is not what was sent")


def _sampled(name: str, *arguments: Any, **parts: Any) -> Workload:
    return Workload(name, lambda device: SampledStep(device, *arguments, **parts))


def _pooled(name: str, *arguments: Any) -> Workload:
    return Workload(name, lambda device: PooledStep(device, *arguments))


#: Every workload, by name.
WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        _sampled("decode R=1 K=0", 1),
        _sampled("decode R=64 K=0", 64),
        _sampled("decode R=256 K=0", 256),
        _sampled("decode R=1024 K=0", 1024),
        _sampled("decode R=1 K=20", 1, 20),
        _sampled("decode R=64 K=20", 64, 20),
        _sampled("decode R=256 K=20", 256, 20),
        _sampled("decode R=1024 K=20", 1024, 20),
        _sampled("speculative R=256 W=4 K=20", 256, 20, width=4),
        _sampled("speculative R=1024 W=4 K=0", 1024, width=4),
        # vLLM's usual request asks for one prompt logprob beside the prompt's own token.
        _sampled("prompt logprobs 16 x 1024", 16, prompts=16, positions=1024),
        *(_sampled(f"sampling masks R={rows}", rows, masks="narrow") for rows in (64, 256, 512)),
        *(
            _sampled(f"sampling masks R={rows}, some wide", rows, masks="wide")
            for rows in (64, 256, 512)
        ),
        _sampled("routed experts 8192 x 60 x 8", 256, experts=(8192, 60, 8)),
        _pooled("pooling 256 x 4096 fp32", 256, 4096, torch.float32),
        _pooled("pooling 256 x 4096 bf16", 256, 4096, torch.bfloat16),
        Workload("pooling 64 ragged", lambda device: RaggedStep(device, 64, 32, 1024)),
        _pooled("logits 256 x 128256 fp32", 256, VOCABULARY, torch.float32),
    )
}
