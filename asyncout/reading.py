"""How each field of a sampler output is read: what can be done before arrival, and the rest.

A reader gets where a field's tensors land and gives the name of the model runner output's
field and a function of the arrived counts that gives its value. It works in the device's
shadow, so it does there whatever needs no contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from asyncout.convert import has_one_row_each, row_boundaries
from asyncout.outputs import LogprobsLists, LogprobsTensors, SamplingMaskTensors
from asyncout.outputs.masks import flatten
from asyncout.transfer import Landing
from asyncout.tree import rebuild

#: A field's name, and what gives its value once everything has arrived. Takes the counts.
Reading = tuple[str, Callable[[Any], Any]]

Reader = Callable[[str, Landing, range, Any, Sequence[int]], Reading]

#: Tensors of logprobs without boundaries, and of masks: all of them were copied.
WHOLE = 3


def reading(
    name: str, landing: Landing, places: range, source: Any, shape: Sequence[int]
) -> Reading:
    """Prepare to read one field.

    Parameters
    ----------
    name : str
        Of the sampler output's field, or of one that is handed on under its own name.
    landing : Landing
    places : range
        Of the field's tensors there.
    source : tensor, record or dict
        The field on the device.
    shape : (R, W)
        Of the sampled token ids.

    Returns
    -------
    (str, callable)
    """
    reader: Reader = _READERS.get(name, _read_twin)
    return reader(name, landing, places, source, shape)


def _twin(landing: Landing, places: range, source: Any) -> Any:
    return rebuild(source, landing.tensors(places.start, places.stop))


def _read_twin(
    name: str, landing: Landing, places: range, source: Any, shape: Sequence[int]
) -> Reading:
    twin = _twin(landing, places, source)
    return name, lambda counts: twin


def _read_logprobs(
    name: str, landing: Landing, places: range, source: Any, shape: Sequence[int]
) -> Reading:
    """Make arrays at once, unless contents say how: bfloat16, or an engine's own type."""
    if (
        type(source) is not LogprobsTensors
        or len(places) != WHOLE
        or source.logprobs.dtype is torch.bfloat16
    ):
        twin = _twin(landing, places, source)
        return "logprobs", lambda counts: twin.tolists(
            row_boundaries(twin, np.asarray(counts), shape[1])
        )
    ids, values, ranks = (np.asarray(landing.part(place)) for place in places)
    lists = LogprobsLists(ids, values, ranks, source.cu_num_generated_tokens)
    if lists.cu_num_generated_tokens is not None or has_one_row_each(len(ids), shape):
        return "logprobs", lambda counts: lists
    return "logprobs", lambda counts: lists._replace(
        cu_num_generated_tokens=row_boundaries(lists, np.asarray(counts), shape[1])
    )


def _read_masks(
    name: str, landing: Landing, places: range, source: Any, shape: Sequence[int]
) -> Reading:
    """Flatten buffers where that can be; else let the masks read themselves."""
    parts: list[Any] = []
    if type(source) is SamplingMaskTensors and len(places) == WHOLE:
        parts = [landing.part(place) for place in places]

    def read(counts: Any) -> Any:
        masks = None
        if parts:
            ids, bits, allowed = parts
            masks = flatten(ids, bits, allowed, counts, source.rows_per_request, source.vocab_size)
        if masks is None:
            masks = _twin(landing, places, source).tolists(np.asarray(counts))
        return masks

    return "sampling_masks", read


_READERS: dict[str, Reader] = {
    "logprobs_tensors": _read_logprobs,
    "sampling_mask_tensors": _read_masks,
}
