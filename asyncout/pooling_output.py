"""``AsyncPoolingOutput``: pooled vectors on their way to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from asyncout.checks import check_pooling
from asyncout.copy_path import copy_path
from asyncout.once import Once
from asyncout.outputs import (
    AsyncModelRunnerOutput,
    KVConnectorOutput,
    ModelRunnerOutput,
    PoolerOutput,
)
from asyncout.pending_copy import PendingCopy
from asyncout.policy import DEFAULT, CopyPolicy


@dataclass
class _Pooled:
    """All that one output copies: each span of finished rows, or each finished tensor."""

    parts: dict[int, torch.Tensor]


class AsyncPoolingOutput(AsyncModelRunnerOutput):
    """The pooled vectors of the requests that finished this step.

    Parameters
    ----------
    model_runner_output : ModelRunnerOutput or look-alike
        Filled in and returned by :meth:`get_output`; its ``req_ids`` give R.
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
        path = copy_path(policy, main_stream, copy_stream)
        finished = [bool(flag) for flag in finished_mask]
        check_pooling(model_runner_output.req_ids, pooler_output, finished)
        self._model_runner_output = model_runner_output
        self._path = path
        self._is_tensor = isinstance(pooler_output, torch.Tensor)
        self._spans = _spans(pooler_output, finished)
        parts: dict[int, torch.Tensor] = {
            start: pooler_output[start:stop] if self._is_tensor else pooler_output[start]  # type: ignore[misc]
            for start, stop in self._spans
        }
        self._copy = PendingCopy(path, _Pooled(parts)) if parts else None
        self._requests = len(finished)
        self._outcome: Once[ModelRunnerOutput] = Once()

    @property
    def memory(self) -> str:
        """Kind of host memory that was really obtained: "pinned" or "pageable"."""
        return self._path.memory

    def get_output(self) -> ModelRunnerOutput:
        """Wait for the copies, set ``pooler_output`` and return the model runner output.

        Returns
        -------
        ModelRunnerOutput
            The object given at construction; ``pooler_output`` is a list of R host
            tensors or None. Later calls, from any thread, give the same.
        """
        return self._outcome.get(self._finish)

    def make_stream_wait(self, stream: Any = None) -> None:
        """Make later work of a stream wait until the copies have read their sources.

        See :meth:`asyncout.AsyncOutput.make_stream_wait`.
        """
        if self._copy is not None:
            self._copy.make_stream_wait(stream)

    def get_kv_connector_output(self) -> KVConnectorOutput | None:
        """Give the KV connector's output at once; never waits, never raises."""
        return self._model_runner_output.kv_connector_output

    def _finish(self) -> ModelRunnerOutput:
        pooled: list[torch.Tensor | None] = [None] * self._requests
        if self._copy is not None:
            parts = self._copy.host().parts  # before the wait: in the device's shadow
            self._copy.wait()
            for start, stop in self._spans:
                pooled[start:stop] = parts[start].unbind(0) if self._is_tensor else [parts[start]]
        self._model_runner_output.pooler_output = pooled
        return self._model_runner_output


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
