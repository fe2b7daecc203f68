"""The data types' methods, against plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asyncout import (
    CountOutOfRangeError,
    KVConnectorOutput,
    LengthMismatchError,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
    SamplingMaskTensors,
    async_copy_to_np,
)
from asyncout.tree import gather, named_tensors, rebuild

RAGGED = [0, 3, 4, 6]  # of counts 3, 1, 2


def logprobs(rows: int, columns: int = 2, *boundaries: Any) -> LogprobsTensors:
    ids = torch.arange(rows * columns).view(rows, columns)
    return LogprobsTensors(ids, ids / 10, torch.arange(rows), *boundaries)


# --- logprobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "argument"),
    [
        (logprobs(6), RAGGED),
        (logprobs(6, 2, RAGGED), None),
        (logprobs(6, 2, None, torch.tensor(RAGGED)), None),
        (logprobs(6, 2, [0, 1, 2, 6]), RAGGED),
    ],
    ids=["argument", "list", "tensor", "argument first"],
)
def test_boundaries_reach_the_lists_and_slices_honour_them(tensors, argument) -> None:
    # vllm issues 27615 and 33391
    lists = tensors.tolists(argument)
    assert lists.cu_num_generated_tokens == RAGGED
    part = lists.slice_request(1, 1)
    assert part.logprob_token_ids.tolist() == [[6, 7]]
    assert part.sampled_token_ranks.tolist() == [3]
    assert lists.slice_request(0, 2).logprobs.tolist() == pytest.approx(
        np.array([[0, 0.1], [0.2, 0.3]], np.float32)
    )
    for request, positions, message in ((3, 1, "no request 3 among 3"), (1, 2, "has 1 rows")):
        with pytest.raises(LengthMismatchError, match=message):
            lists.slice_request(request, positions)


def test_without_boundaries_a_row_is_a_request() -> None:
    lists = logprobs(3).tolists()
    assert lists.cu_num_generated_tokens is None
    assert lists.slice_request(2, 1).logprob_token_ids.tolist() == [[4, 5]]


def test_lists_share_the_tensors_memory_and_bfloat16_becomes_float32_exactly() -> None:
    tensors = logprobs(2)
    assert np.shares_memory(tensors.tolists().logprobs, tensors.logprobs.numpy())
    values = torch.tensor([[0.5, -3.25]], dtype=torch.bfloat16)
    lists = LogprobsTensors(torch.ones(1, 2), values, torch.ones(1)).tolists()
    assert lists.logprobs.dtype == np.float32
    assert lists.logprobs.tolist() == [[0.5, -3.25]]


def test_on_the_host_already_is_itself() -> None:
    tensors = logprobs(2)
    assert tensors.to_cpu_nonblocking() is tensors


def test_filter_keeps_rows_and_refuses_what_would_be_wrong() -> None:
    kept = logprobs(3).filter(torch.tensor([True, False, True]))
    assert kept.logprob_token_ids.tolist() == [[0, 1], [4, 5]]
    assert kept.selected_token_ranks.tolist() == [0, 2]
    with pytest.raises(LengthMismatchError, match=r"shape \[2\] for 3 rows"):
        logprobs(3).filter(torch.tensor([True, False]))
    with pytest.raises(LengthMismatchError, match="boundaries would leave them wrong"):
        logprobs(6, 2, RAGGED).filter(torch.ones(6, dtype=torch.bool))


@pytest.mark.parametrize("on_device", [False, True])
def test_cat_joins_rows_and_boundaries(on_device: bool) -> None:
    def part(rows: int, boundaries: list[int]) -> LogprobsTensors:
        if on_device:
            return logprobs(rows, 2, None, torch.tensor(boundaries))
        return logprobs(rows, 2, boundaries)

    joined = LogprobsTensors.cat([part(3, [0, 1, 3]), part(2, [0, 2]), part(1, [0, 0, 1])])
    assert joined.tolists().cu_num_generated_tokens == [0, 1, 3, 5, 5, 6]
    assert len(joined.logprobs) == 6


def test_cat_refuses_parts_that_disagree() -> None:
    for parts, message in (
        ([], "at least one part"),
        ([logprobs(1, 2), logprobs(1, 3)], r"\[2, 3\] columns"),
        ([logprobs(1, 2, [0, 1]), logprobs(1)], "only some have boundaries"),
    ):
        with pytest.raises(LengthMismatchError, match=message):
            LogprobsTensors.cat(parts)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_empty_logprobs_are_ordinary(shape: tuple[int, int]) -> None:
    # pytorch issues 15770 and 156092
    empty = LogprobsTensors.empty_cpu(*shape)
    assert empty.logprob_token_ids.dtype == torch.int32
    assert empty.tolists().logprobs.shape == shape
    assert LogprobsTensors.cat([empty, empty]).logprobs.shape == (2 * shape[0], shape[1])


# --- masks ------------------------------------------------------------------------------------


def random_masks(
    random: np.random.Generator, requests: int, per_request: int, vocabulary: int, width: int
) -> tuple[SamplingMaskTensors, list[list[int]]]:
    """Make masks whose rows are sometimes wider than the list, with noise where nobody reads."""
    rows = requests * per_request
    allowed = [
        np.sort(random.choice(vocabulary, random.integers(0, vocabulary + 1), replace=False))
        for _ in range(rows)
    ]
    ids = random.integers(0, vocabulary, (rows, width)).astype(np.int32)
    packed = np.zeros((rows, -(-vocabulary // 8)), np.uint8)
    for row, tokens in enumerate(allowed):
        if len(tokens) <= width:
            ids[row, : len(tokens)] = tokens
            packed[row] = random.integers(0, 256, packed.shape[1])
        else:
            bits = np.zeros(packed.shape[1] * 8, np.uint8)
            bits[tokens] = 1
            bits[vocabulary:] = 1  # spare bits mean nothing
            packed[row] = np.packbits(bits, bitorder="little")
    counts = np.array([len(tokens) for tokens in allowed], np.int32)
    tensors = SamplingMaskTensors(
        torch.from_numpy(ids),
        torch.from_numpy(packed),
        torch.from_numpy(counts),
        vocabulary,
        per_request,
    )
    return tensors, [tokens.tolist() for tokens in allowed]


@pytest.mark.parametrize("seed", range(12))
def test_masks_give_the_tokens_of_what_was_sampled(seed: int) -> None:
    random = np.random.default_rng(seed)
    per_request = int(random.choice([1, 4]))
    requests = int(random.integers(0, 60))
    vocabulary = int(random.integers(1, 70))
    masks, allowed = random_masks(random, requests, per_request, vocabulary, 9)
    sampled = random.integers(0, per_request + 1, requests).astype(np.int32)
    lists = masks.tolists(sampled)
    expected = [
        [allowed[request * per_request + slot] for slot in range(sampled[request])]
        for request in range(requests)
    ]
    assert lists.to_nested_list() == [row for rows in expected for row in rows]
    assert lists.offsets.dtype == np.int64
    assert lists.cu_num_generated_tokens == [0, *np.cumsum(sampled).tolist()]
    for request, rows in enumerate(expected):
        assert lists.slice_request(request, len(rows)).to_nested_list() == rows
    with pytest.raises(LengthMismatchError, match=f"no request {requests} among"):
        lists.slice_request(requests, 0)


def test_masks_own_their_memory() -> None:
    masks, allowed = random_masks(np.random.default_rng(0), 4, 1, 30, 30)
    lists = masks.tolists(np.ones(4, np.int32))
    masks.token_ids.fill_(0)
    assert lists.to_nested_list() == allowed


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_sampled": [1, 1, 1]}, LengthMismatchError, "4 mask rows for 3 requests of 2"),
        ({"num_sampled": [1, 3]}, CountOutOfRangeError, "num_sampled of request 1 is 3"),
        ({"num_sampled": [-1, 1]}, CountOutOfRangeError, "num_sampled of request 0 is -1"),
        ({"counts": [9, 0, 0, 0]}, CountOutOfRangeError, "count of mask row 0 is 9"),
        ({"counts": [3, 0, 0, 0]}, LengthMismatchError, "row 0 has a count of 3 and 0 bits set"),
    ],
)
def test_masks_that_contradict_themselves_are_refused(change, error, message) -> None:
    values = {"num_sampled": [1, 1], "counts": [1, 0, 0, 0], **change}
    masks = SamplingMaskTensors(
        torch.zeros(4, 2, dtype=torch.int32),
        torch.zeros(4, 1, dtype=torch.uint8),
        torch.tensor(values["counts"], dtype=torch.int32),
        8,
        2,
    )
    with pytest.raises(error, match=message):
        masks.tolists(np.array(values["num_sampled"]))


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        "finished_sending",
        "finished_recving",
        "failed_recving",
        "invalid_block_ids",
        "kv_connector_stats",
        "kv_cache_events",
        "kv_connector_worker_meta",
    ],
)
def test_a_kv_output_is_empty_until_something_happened(field: str) -> None:
    assert KVConnectorOutput(expected_finished_count=3).is_empty()
    assert not KVConnectorOutput(**{field: {"r0"}}).is_empty()


def test_model_runner_outputs_share_no_defaults() -> None:
    first, second = ModelRunnerOutput([], {}), ModelRunnerOutput([], {})
    first.prompt_logprobs_dict["r"] = None
    first.sampled_token_ids.append([1])
    assert second.prompt_logprobs_dict == {}
    assert second.sampled_token_ids == []


def test_async_copy_to_np_always_copies_and_refuses_bfloat16() -> None:
    source = torch.tensor([1, 2])
    array = async_copy_to_np(source)
    source.zero_()
    assert array.tolist() == [1, 2]
    with pytest.raises(TypeError, match="bfloat16"):
        async_copy_to_np(torch.ones(1, dtype=torch.bfloat16))


class Inner(NamedTuple):
    first: torch.Tensor
    label: str
    second: torch.Tensor | None = None


@dataclass
class Outer:
    inner: Inner
    lone: torch.Tensor
    by_name: dict[str, Any]
    numbers: list[int]


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def test_the_tree_finds_tensors_in_field_order_and_rebuilds_the_same_types() -> None:
    value = Outer(Inner(meta(1), "x", meta(2)), meta(3), {"a": meta(4), "b": None}, [1])
    found: list[torch.Tensor] = []
    gather(value, found)
    assert [tuple(t.shape) for t in found] == [(1,), (2,), (3,), (4,)]
    twin = rebuild(value, iter("abcd"))
    assert twin == Outer(Inner("a", "x", "b"), "c", {"a": "d", "b": None}, [1])
    assert [name for name, _ in named_tensors(value)] == [
        "inner.first",
        "inner.second",
        "lone",
        "by_name['a']",
    ]


def test_a_record_on_the_host_is_left_alone_and_a_lone_tensor_is_not() -> None:
    inner = Inner(torch.ones(1), "x")
    value = Outer(inner, torch.ones(2), {"p": inner}, [])
    found: list[torch.Tensor] = []
    gather(value, found)
    assert [tuple(t.shape) for t in found] == [(2,)]
    twin = rebuild(value, iter("a"))
    assert twin.inner is inner
    assert twin.by_name["p"] is inner
    assert twin.lone == "a"


def test_counts_for_the_devices_own_use_stay_there() -> None:
    value = SamplerOutput(meta(1), num_sampled=meta(2), num_rejected=meta(3))
    found: list[torch.Tensor] = []
    gather(value, found)
    assert [tuple(t.shape) for t in found] == [(1,)]
    twin = rebuild(value, iter("a"))
    assert twin.num_sampled is None
    assert twin.num_rejected is None
