"""Turns arrived host arrays into what a model runner output holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncout import hot
from asyncout.checks import check_counts
from asyncout.errors import LengthMismatchError


def rows_before_arrival(requests: int, width: int) -> list[list[int]] | None:
    """Make the lists that token ids will be put into, where compiled code can do that.

    Half of the time that lists of token ids take goes into making the lists, which needs
    no contents.
    """
    if hot.COMPILED is None:
        return None
    rows: list[list[int]] = hot.COMPILED.new_rows(requests, width)
    return rows


def cut_to_counts(
    ids: Any, counts: Any, req_ids: Sequence[str], rows: list[list[int]] | None = None
) -> list[list[int]]:
    """Make lists of token ids, each cut to its request's count.

    Parameters
    ----------
    ids : buffer of int [R, W]
        Padded with any value behind each request's count.
    counts : buffer of int [R]
    req_ids : sequence of str, R long
        For the error's message.
    rows : list of list, optional
        Of :func:`rows_before_arrival`; filled in and returned.

    Returns
    -------
    list of list of int
        R lists; no padding is in any.

    Raises
    ------
    CountOutOfRangeError
        A count is negative or above W.
    """
    if rows is not None and hot.COMPILED.fill_rows(rows, ids, counts):
        return rows
    ids, counts = np.asarray(ids), np.asarray(counts)
    filled: list[list[int]] = ids.tolist()
    width = ids.shape[1]
    numbers: list[int] = counts.tolist()
    # Most steps fill every row. Counting is one call in C, and cheaper than the first call
    # of a NumPy function after a wait.
    if numbers.count(width) != len(numbers):
        check_counts(counts, width, req_ids)
        for index in np.flatnonzero(counts != width).tolist():
            del filled[index][numbers[index] :]
    return filled


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


def has_one_row_each(rows: int, shape: Sequence[int]) -> bool:
    """Whether row i of logprobs belongs to request i, whatever the counts are.

    With W of 1, as many rows as requests is one row each, also where a count is 0.

    Parameters
    ----------
    rows : int
    shape : (R, W)
        Of the sampled token ids.
    """
    return shape[1] == 1 and rows == shape[0]


def row_boundaries(logprobs: Any, counts: np.ndarray, width: int) -> list[int] | None:
    """Find where each request's rows begin in a step's logprobs.

    The logprobs' own boundaries come first. Without any, rows that are as many as
    the sampled tokens are ragged by count; rows that are as many as the requests
    need no boundaries.

    Parameters
    ----------
    logprobs : LogprobsTensors, LogprobsLists or look-alike
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
    rows, requests = len(logprobs.logprob_token_ids), len(counts)
    if has_one_row_each(rows, (requests, width)):
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
