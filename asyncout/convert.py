"""Turns arrived host arrays into what a model runner output holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from asyncout import hot
from asyncout.checks import check_counts
from asyncout.errors import LengthMismatchError
from asyncout.outputs import LogprobsLists, LogprobsTensors


def cut_to_counts(ids: Any, counts: Any, req_ids: Sequence[str]) -> list[list[int]]:
    """Make lists of token ids, each cut to its request's count.

    Parameters
    ----------
    ids : buffer of int [R, W]
        Padded with any value behind each request's count.
    counts : buffer of int [R]
    req_ids : sequence of str, R long
        For the error's message.

    Returns
    -------
    list of list of int
        R lists; no padding is in any.

    Raises
    ------
    CountOutOfRangeError
        A count is negative or above W.
    """
    if _cut_rows is not None:
        cut: list[list[int]] | None = _cut_rows(ids, counts)
        if cut is not None:
            return cut
    ids, counts = np.asarray(ids), np.asarray(counts)
    rows: list[list[int]] = ids.tolist()
    width = ids.shape[1]
    numbers: list[int] = counts.tolist()
    # Most steps fill every row. Counting is one call in C, and cheaper than the first call
    # of a NumPy function after a wait.
    if numbers.count(width) != len(numbers):
        check_counts(counts, width, req_ids)
        for index in np.flatnonzero(counts != width).tolist():
            del rows[index][numbers[index] :]
    return rows


_cut_rows = None if hot.COMPILED is None else hot.COMPILED.cut_rows


def counts_by_request(req_ids: Sequence[str], counts: Any, zeros: dict[str, int]) -> dict[str, int]:
    """Give each request's count: `zeros` as it is where all are 0, which is the rule.

    Parameters
    ----------
    req_ids : sequence of str, R long
    counts : buffer of int [R]
    zeros : dict of str to int
        0 for each request, made before the counts had arrived.
    """
    raw = bytes(counts)
    if raw.count(0) == len(raw):
        return zeros
    return dict(zip(req_ids, np.asarray(counts).tolist(), strict=True))


def lists_before_arrival(logprobs: Any, shape: Sequence[int]) -> LogprobsLists | None:
    """Make a step's logprobs NumPy arrays before their contents have arrived, where that can be.

    It cannot where the contents are needed: for boundaries that follow from the counts or
    come from the device, for bfloat16, and for an engine's own type, which may read them.

    Parameters
    ----------
    logprobs : LogprobsTensors or look-alike
        On the host.
    shape : (R, W)
        Of the sampled token ids.
    """
    if type(logprobs) is not LogprobsTensors or logprobs.logprobs.dtype is torch.bfloat16:
        return None
    own = logprobs.cu_num_generated_tokens
    if own is None and (
        logprobs.cu_num_generated_tokens_tensor is not None
        or shape[1] != 1
        or logprobs.logprob_token_ids.size(0) != shape[0]
    ):
        return None
    return logprobs.tolists(own)


def lists_of_logprobs(logprobs: Any, counts: np.ndarray, width: int) -> Any:
    """Make a step's logprobs NumPy arrays, with the boundaries of its requests.

    Parameters as of :func:`row_boundaries`.
    """
    return logprobs.tolists(row_boundaries(logprobs, counts, width))


def row_boundaries(logprobs: Any, counts: np.ndarray, width: int) -> list[int] | None:
    """Find where each request's rows begin in a step's logprobs.

    The logprobs' own boundaries come first. Without any, rows that are as many as
    the sampled tokens are ragged by count; rows that are as many as the requests
    need no boundaries.

    Parameters
    ----------
    logprobs : LogprobsTensors or look-alike
        On the host, arrived.
    counts : numpy.ndarray, int [R]
    width : int
        W, the most tokens a request may sample this step.

    Returns
    -------
    list of int, R + 1 long, or None
        None when row i belongs to request i.

    Raises
    ------
    LengthMismatchError
        The rows fit neither the requests nor the counts.
    """
    own: list[int] | None = getattr(logprobs, "cu_num_generated_tokens", None)
    if own is not None:
        return own
    arrived = getattr(logprobs, "cu_num_generated_tokens_tensor", None)
    if arrived is not None:
        boundaries: list[int] = arrived.tolist()
        return boundaries
    rows, requests = logprobs.logprob_token_ids.size(0), len(counts)
    # With W of 1, as many rows as requests is one row each, also where a count is 0.
    if rows == requests and width == 1:
        return None
    tokens = int(counts.sum())
    if rows == requests and rows != tokens:
        return None
    if rows == tokens:
        return [0, *np.cumsum(counts).tolist()]
    raise LengthMismatchError(
        f"logprobs have {rows} rows for {requests} requests with {tokens} sampled tokens and no "
        "boundaries; give cu_num_generated_tokens or one row per request or per token"
    )
