"""What a sampler gives, on the device, and the two objects that may come with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from asyncout.outputs.logprobs import LogprobsTensors
from asyncout.outputs.masks import SamplingMaskTensors


@dataclass
class SamplerOutput:
    """One step's samples for R requests, on the device.

    Attributes
    ----------
    sampled_token_ids : torch.Tensor, int [R, W]
        Padded with -1 behind each request's count.
    logprobs_tensors : LogprobsTensors, optional
    num_nans : torch.Tensor, int [R], optional
        NaNs in each request's logits.
    num_sampled, num_rejected : torch.Tensor, int32 [R], optional
        Counts for the next step's kernels; they stay on the device.
    sampling_mask_tensors : SamplingMaskTensors, optional
    """

    sampled_token_ids: torch.Tensor
    logprobs_tensors: LogprobsTensors | None = None
    num_nans: torch.Tensor | None = None
    num_sampled: torch.Tensor | None = None
    num_rejected: torch.Tensor | None = None
    sampling_mask_tensors: SamplingMaskTensors | None = None


class PendingAuxOutput(Protocol):
    """An output beside the sampler's that copies itself, such as routed experts."""

    def enqueue_cpu_copy(self, num_sampled: np.ndarray, num_rejected: np.ndarray | None) -> None:
        """Enqueue copies on the current stream, which is the copy stream.

        Parameters
        ----------
        num_sampled, num_rejected : numpy.ndarray, int [R]
            Host arrays whose contents have not arrived; read them only in
            :meth:`process_output`. `num_rejected` is None where there is none.
        """

    def process_output(self) -> Any:
        """Give the result; called once, after the copies have arrived."""


class FaultMonitor(Protocol):
    """Knows whether a rank of the expert-parallel group has died."""

    def query_fault(self) -> torch.Tensor:
        """Give the fault flag: a bool scalar on the device."""

    def query_active_mask(self) -> torch.Tensor:
        """Give the rank mask: int32 [ranks], 1 for a dead rank."""
