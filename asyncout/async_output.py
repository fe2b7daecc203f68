"""``AsyncOutput``: a step's results on their way to the host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch

from asyncout.checks import check_step
from asyncout.convert import counts_by_request, cut_to_counts, rows_before_arrival
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
from asyncout.reading import Reading, reading
from asyncout.step_fields import PROMPT_FIELDS, handed_on
from asyncout.transfer import Landing
from asyncout.tree import gather

#: Default of ``raise_on_nan_logits``; read once, so that no step pays for it.
RAISE_ON_NAN_LOGITS = os.environ.get("ASYNCOUT_RAISE_ON_LOGIT_NANS", "0").lower() in (
    "1",
    "true",
    "yes",
    "on",
)


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
    Whatever stream is current: results are read behind the main stream's work. A main stream
    that was current is current afterwards, also after an error.

    A tensor that is on the host already is copied at construction: what it holds has to have
    arrived by then.

    The caller may drop its references to the device tensors at once: the output
    keeps what it copies, also when it is itself dropped unread. Work on the main
    stream that *overwrites* them in place, such as the replay of a CUDA graph with
    static outputs, must be ordered behind the copies: call
    :meth:`make_stream_wait` before it; also before a tensor is resized in place, as
    that frees the memory which is being copied.
    """

    # What few steps have, so that the others need not note that they lack it.
    _aux: PendingAuxOutput | None = None
    _fault_monitor: FaultMonitor | None = None
    _raise_on_nans: bool | None = None

    #: Whose NaNs are counted, as named at construction: an engine may use the list again.
    _counted: tuple[str, ...] = ()

    #: Place of the first tensor that is handed on, and, by its source's name, behind the last.
    _first = 0
    _ends: dict[str, int] | None = None

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
        path = copy_path(policy, main_stream, copy_stream)
        self._model_runner_output, self._path, self._lock = model_runner_output, path, Lock()
        if raise_on_nan_logits is not None:
            self._raise_on_nans = raise_on_nan_logits
        if path.plain is not None and pending_aux_output is None and not check_ep_fault:
            try:
                if path.plain(self, model_runner_output, sampler_output, num_sampled_tokens):
                    if getattr(sampler_output, "num_nans", None) is not None:
                        self._counted = tuple(model_runner_output.req_ids)
                    return
            except BaseException:
                self._leave_behind()
                raise
        check_step(model_runner_output, sampler_output, num_sampled_tokens)
        # What this output reads itself comes first; the rest is handed on under its name.
        sources: dict[str, Any] = {
            "sampled_token_ids": sampler_output.sampled_token_ids,
            "num_sampled_tokens": num_sampled_tokens,
        }
        if (nans := getattr(sampler_output, "num_nans", None)) is not None:
            sources["num_nans"] = nans
            self._counted = tuple(model_runner_output.req_ids)
        if check_ep_fault:
            self._fault_monitor = _require(fault_monitor)
            sources["fault flag"] = self._fault_monitor.query_fault()
        then = None
        if pending_aux_output is not None:
            self._aux = pending_aux_output
            rejected = getattr(sampler_output, "num_rejected", None)
            then = partial(_enqueue_aux_copy, pending_aux_output, len(sources), rejected is None)
            if rejected is not None:
                sources["num_rejected"] = rejected
        tensors = list(sources.values())
        ends: dict[str, int] = {}
        self._first, self._ends = len(tensors), ends
        for name, part in _parts_handed_on(sampler_output, model_runner_output):
            gather(part, tensors)
            sources[name] = part
            ends[name] = len(tensors)
        self._enqueue(sources, tensors, then)

    def _finish(self) -> None:
        # Before the wait, in the device's shadow: whatever needs no contents.
        landing, sources = self._landing(), self._kept[0]
        output = self._model_runner_output
        ids, counts = landing.part(0), landing.part(1)
        nans = landing.part(2) if "num_nans" in sources else None
        no_nans = {} if nans is None else dict.fromkeys(self._counted, 0)
        flag = None
        if self._fault_monitor is not None:
            flag = landing.part(2 if nans is None else 3)
        shape = ids.shape  # as it was: by now the source may have been resized for another step
        rows = rows_before_arrival(*shape)
        readings: list[Reading] = []
        if ends := self._ends:
            start = self._first
            for name, end in ends.items():
                readings.append(reading(name, landing, range(start, end), sources[name], shape))
                start = end

        self._wait()
        try:
            # First and whatever follows: its owner waits for its buffers.
            aux_result = self._aux.process_output() if self._aux else None
        finally:
            if flag is not None:
                self._raise_on_fault(self._fault_monitor, flag)
        self._fill_in(ids, counts, rows, readings)
        if self._aux is not None:
            output.aux_output_connector_output = aux_result
        if nans is not None:
            by_request = counts_by_request(self._counted, nans, no_nans)
            output.num_nans_in_logits = by_request
            raises = RAISE_ON_NAN_LOGITS if self._raise_on_nans is None else self._raise_on_nans
            if raises and by_request is not no_nans:
                _raise_on_nans_in(by_request)

    def _fill_in(
        self, ids: Any, counts: Any, rows: list[list[int]] | None, readings: list[Reading]
    ) -> None:
        output = self._model_runner_output
        output.sampled_token_ids = cut_to_counts(ids, counts, output.req_ids, rows)
        for field, read in readings:
            setattr(output, field, read(counts))

    @staticmethod
    def _raise_on_fault(monitor: Any, flag: Any) -> None:
        if not any(bytes(flag)):
            return
        mask = monitor.query_active_mask().tolist()
        dead = [rank for rank, is_dead in enumerate(mask) if is_dead]
        raise ExpertFaultError(
            f"expert-parallel fault during this step: rank mask {mask} (1 = dead), dead ranks "
            f"{dead}; the step's results mean nothing"
        )


def _parts_handed_on(sampled: Any, runner_output: Any) -> Iterator[tuple[str, Any]]:
    """Give what is copied and handed on as it is, by its name."""
    for name in handed_on(type(sampled)):
        if (part := getattr(sampled, name)) is not None:
            yield name, part
    for name in PROMPT_FIELDS:
        if part := getattr(runner_output, name, None):
            # A dict of its own: results are told apart by its order, and the engine may add
            # and remove requests before they are read.
            yield name, dict(part)


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


def _enqueue_aux_copy(
    aux: PendingAuxOutput, rejected: int, has_none_rejected: bool, landing: Landing
) -> None:
    """Let the aux output enqueue its own copy, with the counts that will arrive before it."""
    aux.enqueue_cpu_copy(
        np.asarray(landing.part(1)),
        None if has_none_rejected else np.asarray(landing.part(rejected)),
    )
