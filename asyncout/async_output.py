"""``AsyncOutput``: a step's results on their way to the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from asyncout.checks import check_step
from asyncout.convert import counts_by_request, cut_to_counts, row_boundaries
from asyncout.copy_path import copy_path
from asyncout.errors import ExpertFaultError, FaultMonitorMissingError, NanLogitsError
from asyncout.outputs import (
    FaultMonitor,
    ModelRunnerOutput,
    PendingAuxOutput,
    SamplerOutput,
)
from asyncout.pending_output import PendingOutput
from asyncout.policy import DEFAULT, CopyPolicy

#: Default of ``raise_on_nan_logits``; read once, so that no step pays for it.
RAISE_ON_NAN_LOGITS = os.environ.get("ASYNCOUT_RAISE_ON_LOGIT_NANS", "0").lower() in (
    "1",
    "true",
    "yes",
    "on",
)


@dataclass
class _Step:
    """All that one output copies; its fields are found by :mod:`asyncout.tree`."""

    sampler_output: Any
    token_counts: torch.Tensor
    prompt_logprobs: dict[str, Any] | None = None
    prompt_token_id_logprobs: dict[str, torch.Tensor] | None = None
    rejected_counts: torch.Tensor | None = None
    fault_flag: torch.Tensor | None = None


class AsyncOutput(PendingOutput):
    """A decode step's results, copied to the host behind the engine's back.

    Constructing it enqueues the copies and returns; it never waits for the GPU
    (except under ``memory="pageable"``, where the driver holds the host).

    Parameters
    ----------
    model_runner_output : ModelRunnerOutput or look-alike
        Filled in and returned by :meth:`get_output`. Its ``req_ids`` give R and
        its two prompt dicts are copied too.
    sampler_output : SamplerOutput or look-alike
        Device tensors of this step; every one that is not None is copied, but
        ``num_sampled`` and ``num_rejected``, which stay on the device.
    num_sampled_tokens : torch.Tensor, int [R]
        How many of each request's W tokens count.
    main_stream, copy_stream : torch.cuda.Stream
        Where the step is computed, and where it is copied. On one device.
    check_ep_fault : bool
        Copy the expert-parallel fault flag and let it outrank the results.
    pending_aux_output : PendingAuxOutput, optional
        Enqueues a copy of its own on the copy stream.
    policy : CopyPolicy
    fault_monitor : FaultMonitor, optional
        Needed for `check_ep_fault`.
    raise_on_nan_logits : bool, optional
        Raise when a request's logits held NaNs. Default: the environment variable
        ``ASYNCOUT_RAISE_ON_LOGIT_NANS``, else False.

    Raises
    ------
    LengthMismatchError
        Requests, counts, NaN counts, masks or boundaries disagree in length.
    StreamTypeError, DeviceMismatchError
        A stream is none, or streams and tensors are not on one device.
    FaultMonitorMissingError
        `check_ep_fault` without `fault_monitor`.
    GraphCaptureError
        A CUDA graph is being captured.

    Notes
    -----
    The main stream is current afterwards, also after an error.

    The caller may drop its references to the device tensors at once: the output
    keeps what it copies, also when it is itself dropped unread. Work on the main
    stream that *overwrites* them in place, such as the replay of a CUDA graph with
    static outputs, must be ordered behind the copies: call
    :meth:`make_stream_wait` before it.
    """

    def __init__(
        self,
        model_runner_output: ModelRunnerOutput,
        sampler_output: SamplerOutput,
        num_sampled_tokens: torch.Tensor,
        main_stream: Any,
        copy_stream: Any,
        check_ep_fault: bool = False,
        pending_aux_output: PendingAuxOutput | None = None,
        *,
        policy: CopyPolicy = DEFAULT,
        fault_monitor: FaultMonitor | None = None,
        raise_on_nan_logits: bool | None = None,
    ) -> None:
        super().__init__(model_runner_output, copy_path(policy, main_stream, copy_stream))
        check_step(model_runner_output, sampler_output, num_sampled_tokens)
        self._aux = pending_aux_output
        self._fault_monitor: FaultMonitor | None = None
        self._raise_on_nans = (
            RAISE_ON_NAN_LOGITS if raise_on_nan_logits is None else raise_on_nan_logits
        )
        step = _Step(sampler_output, num_sampled_tokens)
        if model_runner_output.prompt_logprobs_dict:
            step.prompt_logprobs = model_runner_output.prompt_logprobs_dict
        by_id = getattr(model_runner_output, "prompt_token_id_logprobs_dict", None)
        if by_id:
            step.prompt_token_id_logprobs = by_id
        if check_ep_fault:
            self._fault_monitor = _require(fault_monitor)
            step.fault_flag = self._fault_monitor.query_fault()
        if pending_aux_output is None:
            self._enqueue(step)
        else:
            step.rejected_counts = getattr(sampler_output, "num_rejected", None)
            self._enqueue(step, partial(_enqueue_aux_copy, pending_aux_output))

    def _finish(self) -> None:
        # Before the wait, in the device's shadow: whatever needs no contents.
        host = self._host_twin()
        sampled = host.sampler_output
        ids, counts = sampled.sampled_token_ids.numpy(), host.token_counts.numpy()
        num_nans = getattr(sampled, "num_nans", None)
        req_ids = self._model_runner_output.req_ids
        no_nans = {} if num_nans is None else dict.fromkeys(req_ids, 0)

        self._wait()
        try:
            # First and whatever follows: its owner waits for its buffers.
            aux_result = self._aux.process_output() if self._aux else None
        finally:
            if self._fault_monitor is not None:
                self._raise_on_fault(self._fault_monitor, host)
        self._fill_in(host, ids, counts)
        if self._aux is not None:
            self._model_runner_output.aux_output_connector_output = aux_result
        if num_nans is not None:
            nans = counts_by_request(req_ids, num_nans.numpy(), no_nans)
            self._model_runner_output.num_nans_in_logits = nans
            if self._raise_on_nans and nans is not no_nans:
                _raise_on_nans_in(nans)

    @staticmethod
    def _raise_on_fault(monitor: FaultMonitor, host: _Step) -> None:
        if host.fault_flag is None or not host.fault_flag.item():
            return
        mask = monitor.query_active_mask().tolist()
        dead = [rank for rank, is_dead in enumerate(mask) if is_dead]
        raise ExpertFaultError(
            f"expert-parallel fault during this step: rank mask {mask} (1 = dead), dead ranks "
            f"{dead}; the step's results mean nothing"
        )

    def _fill_in(self, step: _Step, ids: np.ndarray, counts: np.ndarray) -> None:
        output, sampled = self._model_runner_output, step.sampler_output
        output.sampled_token_ids = cut_to_counts(ids, counts, output.req_ids)
        if (masks := getattr(sampled, "sampling_mask_tensors", None)) is not None:
            output.sampling_masks = masks.tolists(counts)
        if sampled.logprobs_tensors is not None:
            boundaries = row_boundaries(sampled.logprobs_tensors, counts, ids.shape[1])
            output.logprobs = sampled.logprobs_tensors.tolists(boundaries)
        if step.prompt_logprobs is not None:
            output.prompt_logprobs_dict = step.prompt_logprobs
        if step.prompt_token_id_logprobs is not None:
            output.prompt_token_id_logprobs_dict = step.prompt_token_id_logprobs


def _raise_on_nans_in(nans: dict[str, int]) -> None:
    if bad := {request: count for request, count in nans.items() if count > 0}:
        counts = ", ".join(f"{request}: {count}" for request, count in bad.items())
        raise NanLogitsError(
            f"NaN logits in {len(bad)} of {len(nans)} requests (request: count): {counts}"
        )


def _require(fault_monitor: FaultMonitor | None) -> FaultMonitor:
    if fault_monitor is None:
        raise FaultMonitorMissingError(
            "check_ep_fault is set and there is no fault_monitor to ask; pass the object whose "
            "query_fault() gives the flag, or leave check_ep_fault False"
        )
    return fault_monitor


def _enqueue_aux_copy(aux: PendingAuxOutput, step: _Step) -> None:
    """Let the aux output enqueue its own copy, with the counts that will arrive before it."""
    rejected = step.rejected_counts
    aux.enqueue_cpu_copy(step.token_counts.numpy(), None if rejected is None else rejected.numpy())
