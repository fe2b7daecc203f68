"""Which of a step's fields are copied, by name; for the compiled constructor and its twin."""

from __future__ import annotations

from asyncout.tree import DEVICE_ONLY_FIELDS, record_fields

#: A model runner output's own fields that are copied and put back.
PROMPT_FIELDS = ("prompt_logprobs_dict", "prompt_token_id_logprobs_dict")

#: What an output reads itself, beside the counts that it is given; all others are handed on.
READ_BY_OUTPUT = frozenset({"sampled_token_ids", "num_nans"})

#: What each type of sampler output seen so far hands on; see :func:`handed_on`.
names_of_type: dict[type, tuple[str, ...]] = {}


def handed_on(kind: type) -> tuple[str, ...]:
    """Name the fields of a type of sampler output that are copied and handed on as they are."""
    if kind not in names_of_type:
        names = record_fields(kind) or ("logprobs_tensors", "sampling_mask_tensors")
        left_out = READ_BY_OUTPUT | DEVICE_ONLY_FIELDS
        names_of_type[kind] = tuple(name for name in names if name not in left_out)
    return names_of_type[kind]
