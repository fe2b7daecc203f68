"""Logprobs of sampled or prompt tokens: on the device, and as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from asyncout.errors import LengthMismatchError

T = TypeVar("T")


class LogprobsLists(NamedTuple):
    """Logprobs on the host, as NumPy arrays.

    Attributes
    ----------
    logprob_token_ids : numpy.ndarray, int [rows, K + 1]
    logprobs : numpy.ndarray, float [rows, K + 1]
    sampled_token_ranks : numpy.ndarray, int [rows]
    cu_num_generated_tokens : list of int, R + 1 long, optional
        Row at which each request begins; None when row i is request i.
    """

    logprob_token_ids: np.ndarray
    logprobs: np.ndarray
    sampled_token_ranks: np.ndarray
    cu_num_generated_tokens: list[int] | None = None

    def slice_request(self, req_idx: int, num_positions: int) -> LogprobsLists:
        """Give the first rows of one request.

        Parameters
        ----------
        req_idx : int
        num_positions : int
            How many of the request's rows.

        Returns
        -------
        LogprobsLists
            Views, without boundaries.

        Raises
        ------
        LengthMismatchError
            There is no such request, or it has fewer rows.
        """
        boundaries = self.cu_num_generated_tokens
        rows = len(self.logprob_token_ids)
        requests = rows if boundaries is None else len(boundaries) - 1
        if not 0 <= req_idx < requests:
            raise LengthMismatchError(f"no request {req_idx} among {requests} in these logprobs")
        start = req_idx if boundaries is None else boundaries[req_idx]
        stop = rows if boundaries is None else boundaries[req_idx + 1]
        if not 0 <= num_positions <= stop - start:
            raise LengthMismatchError(
                f"request {req_idx} has {stop - start} rows of logprobs; {num_positions} asked for"
            )
        part = slice(start, start + num_positions)
        return LogprobsLists(
            self.logprob_token_ids[part], self.logprobs[part], self.sampled_token_ranks[part]
        )


class LogprobsTensors(NamedTuple):
    """Logprobs as tensors, on the device or on the host.

    Attributes
    ----------
    logprob_token_ids : torch.Tensor, int [rows, K + 1]
        The selected token, then the K likeliest.
    logprobs : torch.Tensor, float [rows, K + 1]
    selected_token_ranks : torch.Tensor, int [rows]
    cu_num_generated_tokens : list of int, R + 1 long, optional
        Row at which each request begins.
    cu_num_generated_tokens_tensor : torch.Tensor, int [R + 1], optional
        The same boundaries, only on the device; copied along.
    """

    logprob_token_ids: torch.Tensor
    logprobs: torch.Tensor
    selected_token_ranks: torch.Tensor
    cu_num_generated_tokens: list[int] | None = None
    cu_num_generated_tokens_tensor: torch.Tensor | None = None

    def to_cpu_nonblocking(self) -> LogprobsTensors:
        """Enqueue copies on the current stream; itself when already on the CPU.

        Returns
        -------
        LogprobsTensors
            On the host; read it only after an event recorded behind this call.
        """
        if self.logprob_token_ids.is_cpu:
            return self
        boundaries = self.cu_num_generated_tokens_tensor
        return LogprobsTensors(
            self.logprob_token_ids.to("cpu", non_blocking=True),
            self.logprobs.to("cpu", non_blocking=True),
            self.selected_token_ranks.to("cpu", non_blocking=True),
            self.cu_num_generated_tokens,
            None if boundaries is None else boundaries.to("cpu", non_blocking=True),
        )

    def tolists(self, cu_num_generated_tokens: list[int] | None = None) -> LogprobsLists:
        """Give the same as NumPy arrays, which share the tensors' memory.

        Only for tensors on the host whose contents have arrived. bfloat16 logprobs
        become float32, exactly, as NumPy has no bfloat16.

        Parameters
        ----------
        cu_num_generated_tokens : list of int, optional
            Boundaries in the place of the tensors' own.
        """
        boundaries = cu_num_generated_tokens
        if boundaries is None:
            boundaries = self.cu_num_generated_tokens
        if boundaries is None and self.cu_num_generated_tokens_tensor is not None:
            boundaries = self.cu_num_generated_tokens_tensor.tolist()
        logprobs = self.logprobs
        if logprobs.dtype is torch.bfloat16:
            logprobs = logprobs.float()
        return LogprobsLists(
            self.logprob_token_ids.numpy(),
            logprobs.numpy(),
            self.selected_token_ranks.numpy(),
            boundaries,
        )

    def filter(self, mask: torch.Tensor) -> LogprobsTensors:
        """Keep some rows.

        Parameters
        ----------
        mask : torch.Tensor, bool [rows]
            On the same device.

        Raises
        ------
        LengthMismatchError
            The mask's length differs, or there are boundaries, which would no longer
            fit: filter each request's rows instead.
        """
        if mask.shape != (self.logprob_token_ids.shape[0],):
            raise LengthMismatchError(
                f"mask has shape {list(mask.shape)} for {self.logprob_token_ids.shape[0]} rows"
            )
        if self.cu_num_generated_tokens is not None or (
            self.cu_num_generated_tokens_tensor is not None
        ):
            raise LengthMismatchError(
                "filter() on logprobs with boundaries would leave them wrong; filter the rows of "
                "each request, or drop the boundaries first"
            )
        return LogprobsTensors(
            self.logprob_token_ids[mask], self.logprobs[mask], self.selected_token_ranks[mask]
        )

    @staticmethod
    def cat(parts: Sequence[LogprobsTensors]) -> LogprobsTensors:
        """Join logprobs row by row.

        Parameters
        ----------
        parts : sequence of LogprobsTensors
            At least one, all with the same K, all with boundaries or none.

        Raises
        ------
        LengthMismatchError
            There is no part, or they disagree in columns or in having boundaries.
        """
        if not parts:
            raise LengthMismatchError("cat() of no logprobs: give at least one part")
        columns = {part.logprob_token_ids.shape[1] for part in parts}
        if len(columns) > 1:
            raise LengthMismatchError(f"cat() of logprobs with {sorted(columns)} columns")
        boundaries = _with_all([part.cu_num_generated_tokens for part in parts])
        on_device = _with_all([part.cu_num_generated_tokens_tensor for part in parts])
        return LogprobsTensors(
            torch.cat([part.logprob_token_ids for part in parts]),
            torch.cat([part.logprobs for part in parts]),
            torch.cat([part.selected_token_ranks for part in parts]),
            None if boundaries is None else _join_lists(boundaries),
            None if on_device is None else _join_tensors(on_device),
        )

    @staticmethod
    def empty_cpu(positions: int, per_position: int) -> LogprobsTensors:
        """Make room on the host: int32 ids and ranks, float32 logprobs, contents undefined.

        Parameters
        ----------
        positions : int
            Rows.
        per_position : int
            Columns, K + 1.
        """
        return LogprobsTensors(
            torch.empty((positions, per_position), dtype=torch.int32, device="cpu"),
            torch.empty((positions, per_position), dtype=torch.float32, device="cpu"),
            torch.empty((positions,), dtype=torch.int32, device="cpu"),
        )


def _with_all(boundaries: Sequence[T | None]) -> list[T] | None:
    """Give the boundaries that every part has, None where none has."""
    known = [part for part in boundaries if part is not None]
    if known and len(known) < len(boundaries):
        raise LengthMismatchError("cat() of logprobs of which only some have boundaries")
    return known or None


def _join_lists(parts: list[list[int]]) -> list[int]:
    joined = [0]
    for part in parts:
        start = joined[-1]
        joined += [start + boundary for boundary in part[1:]]
    return joined


def _join_tensors(parts: list[torch.Tensor]) -> torch.Tensor:
    joined = [parts[0]]
    for part in parts[1:]:
        # The last boundary so far stays on the device: reading it would wait.
        joined.append(part[1:] + joined[-1][-1])
    return torch.cat(joined)
