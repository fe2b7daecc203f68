"""``AsyncPoolingOutput``: pooled vectors on their way to the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from asyncout.checks import check_pooling
from asyncout.copy_path import copy_path
from asyncout.outputs import ModelRunnerOutput, PoolerOutput
from asyncout.pending_output import PendingOutput
from asyncout.policy import DEFAULT, CopyPolicy


class AsyncPoolingOutput(PendingOutput):
    """The pooled vectors of the requests that finished this step.

    Parameters
    ----------
    model_runner_output : ModelRunnerOutput or look-alike
        Its ``pooler_output`` is filled in with a list of R host tensors or None, and
        :meth:`get_output` returns it; its ``req_ids`` give R.
    pooler_output : torch.Tensor [R, ...] or list of (torch.Tensor or None), R long
        On the device.
    finished_mask : sequence of bool, R long
        Only finished requests are copied; the others come back as None.
    main_stream, copy_stream : torch.cuda.Stream
        Where the vectors are computed, and where they are copied.
    policy : CopyPolicy

    Raises
    ------
    LengthMismatchError
        The three lengths differ.
    StreamTypeError, DeviceMismatchError, GraphCaptureError
        As in :class:`asyncout.AsyncOutput`.

    Notes
    -----
    Neighbouring finished rows of a tensor travel in one copy, so a tensor with every
    request finished is one copy; its rows come back as views of one block. bfloat16
    stays a tensor, as NumPy has no such dtype. With nothing finished nothing is
    enqueued.
    """

    def __init__(
        self,
        model_runner_output: ModelRunnerOutput,
        pooler_output: PoolerOutput,
        finished_mask: Sequence[bool],
        main_stream: Any,
        copy_stream: Any,
        *,
        policy: CopyPolicy = DEFAULT,
    ) -> None:
        self._model_runner_output = model_runner_output
        self._path = copy_path(policy, main_stream, copy_stream)
        finished = [bool(flag) for flag in finished_mask]
        check_pooling(model_runner_output.req_ids, pooler_output, finished)
        self._requests = len(finished)
        self._is_tensor = isinstance(pooler_output, torch.Tensor)
        self._spans = _spans(pooler_output, finished)
        if self._spans:
            sources = {
                f"pooler_output[{start}]": pooler_output[start:stop]
                if self._is_tensor
                else pooler_output[start]
                for start, stop in self._spans
            }
            self._enqueue(sources, list(sources.values()))  # type: ignore[arg-type]

    def _finish(self) -> None:
        pooled: list[torch.Tensor | None] = [None] * self._requests
        if self._spans:
            parts = list(
                self._landing().tensors(0, len(self._spans))
            )  # before the wait: in the device's shadow
            self._wait()
            for (start, stop), part in zip(self._spans, parts, strict=True):
                pooled[start:stop] = part.unbind(0) if self._is_tensor else [part]
        self._model_runner_output.pooler_output = pooled


def _spans(pooler_output: PoolerOutput, finished: list[bool]) -> list[tuple[int, int]]:
    """List what is copied as (start, stop): runs of finished rows, or single tensors.

    Only a tensor's neighbouring rows lie side by side in memory, so only they can
    share a copy.
    """
    is_tensor = isinstance(pooler_output, torch.Tensor)
    spans: list[tuple[int, int]] = []
    for index, is_finished in enumerate(finished):
        if not is_finished or (not is_tensor and pooler_output[index] is None):
            continue
        if is_tensor and spans and spans[-1][1] == index:
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
    return spans
