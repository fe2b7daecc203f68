"""Checks of what callers give: shapes before anything is enqueued, counts after arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncout import hot
from asyncout.errors import CountOutOfRangeError, LengthMismatchError

#: How many offenders an error names before it only counts the rest.
MAX_NAMED_REQUESTS = 8


def check_step(model_runner_output: Any, sampler_output: Any, counts: Any) -> None:
    """Refuse a step whose parts disagree in length. Reads shapes only, never contents.

    Raises
    ------
    LengthMismatchError
        Names the field, its shape and what it should be.
    """
    requests = len(model_runner_output.req_ids)
    ids = sampler_output.sampled_token_ids
    nans = getattr(sampler_output, "num_nans", None)
    logprobs = sampler_output.logprobs_tensors
    masks = getattr(sampler_output, "sampling_mask_tensors", None)
    if masks is not None:
        _check_masks(masks, requests)
    if _lengths_agree is not None and _lengths_agree(requests, ids, counts, nans, logprobs):
        return
    # size() and dim() give plain ints; shape makes an object, which is slow when the code is cold.
    if ids.dim() != 2 or ids.size(0) != requests:
        _refuse("sampled_token_ids", ids, f"[{requests}, W]", requests)
    if counts.dim() != 1 or counts.size(0) != requests:
        _refuse("num_sampled_tokens", counts, f"[{requests}]", requests)
    if nans is not None and (nans.dim() != 1 or nans.size(0) != requests):
        _refuse("num_nans", nans, f"[{requests}]", requests)
    if logprobs is not None:
        _check_logprobs(logprobs, requests)


# Only says that all is well; what is not, or not plain, is looked at and named here.
_lengths_agree = None if hot.COMPILED is None else hot.COMPILED.lengths_agree


def _check_masks(masks: Any, requests: int) -> None:
    rows = requests * masks.rows_per_request
    for name in ("token_ids", "packed_mask", "counts"):
        if getattr(masks, name).shape[0] != rows:
            _refuse(
                f"sampling_mask_tensors.{name}",
                getattr(masks, name),
                f"[{rows}, ...] (rows_per_request is {masks.rows_per_request})",
                requests,
            )


def _check_logprobs(logprobs: Any, requests: int) -> None:
    ids, values, ranks = logprobs[0], logprobs[1], logprobs[2]
    rows = ids.size(0)
    if values.size(0) != rows or values.size(1) != ids.size(1):
        _refuse("logprobs_tensors.logprobs", values, str(list(ids.shape)), requests)
    if ranks.size(0) != rows:
        _refuse("logprobs_tensors.selected_token_ranks", ranks, f"[{rows}]", requests)
    boundaries = getattr(logprobs, "cu_num_generated_tokens", None)
    if boundaries is not None and len(boundaries) != requests + 1:
        raise LengthMismatchError(
            f"logprobs_tensors.cu_num_generated_tokens has {len(boundaries)} boundaries for "
            f"{requests} requests; give {requests + 1}, from 0 to the number of rows"
        )
    on_device = getattr(logprobs, "cu_num_generated_tokens_tensor", None)
    if on_device is not None and on_device.shape != (requests + 1,):
        _refuse(
            "logprobs_tensors.cu_num_generated_tokens_tensor",
            on_device,
            f"[{requests + 1}]",
            requests,
        )


def _refuse(name: str, tensor: Any, wanted: str, requests: int) -> None:
    raise LengthMismatchError(
        f"{name} has shape {list(tensor.shape)} and should have {wanted} for the {requests} "
        "requests in model_runner_output.req_ids"
    )


def check_counts(counts: np.ndarray, width: int, req_ids: Sequence[str]) -> None:
    """Refuse counts that no row can hold.

    Parameters
    ----------
    counts : numpy.ndarray, int [R]
    width : int
        W, the columns of sampled_token_ids.
    req_ids : sequence of str, R long

    Raises
    ------
    CountOutOfRangeError
        Names the requests and their counts.
    """
    wrong = np.flatnonzero((counts < 0) | (counts > width)).tolist()
    if not wrong:
        return
    named = ", ".join(f"{req_ids[i]}: {counts[i]}" for i in wrong[:MAX_NAMED_REQUESTS])
    more = len(wrong) - MAX_NAMED_REQUESTS
    raise CountOutOfRangeError(
        f"num_sampled_tokens must lie between 0 and W = {width}, the columns of "
        f"sampled_token_ids; got (request: count) {named}" + (f" and {more} more" * (more > 0))
    )


def check_pooling(req_ids: Sequence[str], pooler_output: Any, finished: Sequence[bool]) -> None:
    """Refuse pooled results whose lengths disagree.

    Raises
    ------
    LengthMismatchError
        Requests, pooled results and finished mask are not equally many.
    """
    if not len(req_ids) == len(pooler_output) == len(finished):
        raise LengthMismatchError(
            f"{len(req_ids)} requests in model_runner_output.req_ids, {len(pooler_output)} "
            f"results in pooler_output, {len(finished)} entries in finished_mask; give one of "
            "each per request"
        )
