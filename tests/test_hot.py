"""The compiled loops give what their twins in Python give, on anything they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asyncout import CountOutOfRangeError, LengthMismatchError, SamplingMaskTensors, convert, hot
from asyncout.landing import lay_out_in_python
from asyncout.outputs import masks
from asyncout.tree import gather, gather_in_python
from asyncout.virtual import VirtualMachine

compiled = pytest.mark.skipif(hot.COMPILED is None, reason="the loops were not compiled here")


@pytest.fixture(params=["compiled", "in Python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled loops and without them."""
    if request.param == "in Python":
        monkeypatch.setattr(convert, "_cut_rows", None)
        monkeypatch.setattr(masks, "_flatten", None)
    elif hot.COMPILED is None:
        pytest.skip("the loops were not compiled here")
    return request.param


# --- token ids --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.uint8])
def test_rows_are_cut_to_their_counts(either: str, dtype: type) -> None:
    random = np.random.default_rng(1)
    for requests, width in ((0, 1), (1, 1), (7, 4), (300, 3)):
        ids = random.integers(0, 100, (requests, width)).astype(dtype)
        counts = random.integers(0, width + 1, requests).astype(np.int32)
        names = [str(index) for index in range(requests)]
        rows = convert.cut_to_counts(ids, counts, names)
        assert rows == [row[:count].tolist() for row, count in zip(ids, counts, strict=True)]
        assert all(type(token) is int for row in rows for token in row)


def test_large_and_negative_values_survive(either: str) -> None:
    ids = np.array([[2**62, -(2**62)], [-1, 2**31]])
    assert convert.cut_to_counts(ids, np.array([2, 2]), ["a", "b"]) == ids.tolist()


def test_strided_ids_are_read_as_they_are_shaped(either: str) -> None:
    ids = np.arange(12).reshape(3, 4).T
    assert convert.cut_to_counts(ids, np.full(4, 3), list("abcd")) == ids.tolist()


@pytest.mark.parametrize("counts", [[1, 3], [-1, 1]])
def test_a_count_that_no_row_holds_is_named(either: str, counts: list[int]) -> None:
    with pytest.raises(CountOutOfRangeError, match=r"a: -1|b: 3"):
        convert.cut_to_counts(np.zeros((2, 2), int), np.array(counts), ["a", "b"])


# --- masks ------------------------------------------------------------------------------------


def random_masks(seed: int, requests: int, per_request: int, vocabulary: int, width: int) -> Any:
    random = np.random.default_rng(seed)
    rows = requests * per_request
    allowed = random.random((rows, vocabulary)) < random.random((rows, 1)) ** 3
    counts = allowed.sum(1).astype(np.int32)
    ids = np.full((rows, width), -1, np.int32)
    for row in range(rows):
        listed = np.flatnonzero(allowed[row])[:width]
        ids[row, : len(listed)] = listed
    packed = np.packbits(allowed, axis=1, bitorder="little")
    packed[:, -1] |= np.uint8(0xFF << (vocabulary % 8 or 8) & 0xFF)  # spare bits mean nothing
    tensors = SamplingMaskTensors(
        torch.from_numpy(ids), torch.from_numpy(packed), torch.from_numpy(counts), vocabulary,
        per_request,
    )  # fmt: skip
    return tensors, allowed, random.integers(0, per_request + 1, requests).astype(np.int32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("vocabulary", "width"), [(5, 8), (64, 3), (1000, 64), (129, 0)])
def test_masks_list_exactly_the_allowed_tokens_of_what_was_sampled(
    either: str, seed: int, vocabulary: int, width: int
) -> None:
    tensors, allowed, sampled = random_masks(seed, 7, 3, vocabulary, width)
    lists = tensors.tolists(sampled)
    rows = [
        np.flatnonzero(allowed[request * 3 + slot]).tolist()
        for request, count in enumerate(sampled)
        for slot in range(count)
    ]
    assert lists.to_nested_list() == rows
    assert lists.token_ids.dtype == np.int32
    assert lists.offsets.dtype == np.int64
    assert lists.cu_num_generated_tokens == [0, *np.cumsum(sampled).tolist()]
    before = lists.token_ids.copy()
    tensors.token_ids.zero_()
    tensors.packed_mask.zero_()
    assert np.array_equal(lists.token_ids, before)  # it owns its memory


def test_no_rows_and_no_requests_are_masks_too(either: str) -> None:
    tensors, _, _ = random_masks(0, 2, 1, 9, 4)
    assert tensors.tolists(np.zeros(2, int)).to_nested_list() == []
    none = SamplingMaskTensors(
        torch.empty((0, 4), dtype=torch.int32), torch.empty((0, 2), dtype=torch.uint8),
        torch.empty(0, dtype=torch.int32), 9, 1,
    )  # fmt: skip
    assert none.tolists(np.zeros(0, int)).cu_num_generated_tokens == [0]


def test_masks_that_disagree_are_named(either: str) -> None:
    tensors, _, _ = random_masks(0, 2, 1, 100, 4)
    wide = int(torch.argmax(tensors.counts))
    tensors.counts[wide] += 1
    with pytest.raises(LengthMismatchError, match=f"mask row {wide} has a count of"):
        tensors.tolists(np.ones(2, int))
    tensors.counts[wide] = 101
    with pytest.raises(CountOutOfRangeError, match="must lie between 0 and 100"):
        tensors.tolists(np.ones(2, int))
    with pytest.raises(CountOutOfRangeError, match="num_sampled of request 1 is 2"):
        tensors.tolists(np.array([1, 2]))
    with pytest.raises(LengthMismatchError, match="2 mask rows for 3 requests"):
        tensors.tolists(np.ones(3, int))


# --- a step's tensors -------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Record:
    first: Any
    num_sampled: Any = None
    rest: Any = None


def random_value(random: np.random.Generator, vm: VirtualMachine, depth: int) -> Any:
    kind = random.integers(0, 7 if depth else 4)
    if kind == 0:
        return vm.tensor([1, 2])
    if kind == 1:
        return torch.tensor([3])
    if kind == 2:
        return None
    if kind == 3:
        return "no tensor"
    parts = [random_value(random, vm, depth - 1) for _ in range(3)]
    if kind == 4:
        return {"a": parts[0], "b": parts[1]}
    return Pair(*parts[:2]) if kind == 5 else Record(*parts)


@compiled
def test_gathering_finds_the_same_tensors_in_the_same_order() -> None:
    random, vm = np.random.default_rng(5), VirtualMachine()
    sizes = set()
    for _ in range(500):
        value = random_value(random, vm, 3)
        fast: list[torch.Tensor] = [torch.empty(0)]
        slow = list(fast)
        gather(value, fast)
        gather_in_python(value, slow)
        assert [id(part) for part in fast] == [id(part) for part in slow]
        sizes.add(len(fast))
    assert len(sizes) > 5


@compiled
def test_an_error_in_a_field_comes_out_of_gathering() -> None:
    class Broken(Record):
        rest = property(lambda self: 1 / 0, lambda self, value: None)

    with pytest.raises(ZeroDivisionError):
        gather(Broken(torch.empty(1)), [])
    with pytest.raises(TypeError, match="a value and a list"):
        gather(1, ())


@compiled
def test_laying_out_gives_the_same_places() -> None:
    vm, random = VirtualMachine(), np.random.default_rng(2)
    for _ in range(100):
        tensors = []
        for _ in range(int(random.integers(0, 6))):
            shape = tuple(random.integers(0, 5, 2).tolist())
            tensor = vm.empty(shape, torch.int16) if random.random() < 0.8 else torch.empty(shape)
            tensors.append(tensor.t() if random.random() < 0.2 else tensor)
        assert hot.COMPILED.lay_out(tensors, 64) == lay_out_in_python(tensors, 64)


# --- the driver's calls -----------------------------------------------------------------------

import ctypes  # noqa: E402  the driver below is made of C functions

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


class FakeDriver:
    """A driver's functions that note their calls, and fail where they are told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: str | None = None
        record = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)
        wait = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_uint)
        one = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_uint64, SIZE, POINTER)
        array = ctypes.POINTER(ctypes.c_uint64)
        batch = ctypes.CFUNCTYPE(
            ctypes.c_int, array, array, array, SIZE, POINTER, array, SIZE, POINTER
        )
        self.record = record(lambda event, stream: self._note("record", event, stream))
        self.wait = wait(lambda stream, event, flags: self._note("wait", stream, event))
        self.one = one(lambda to, source, size, stream: self._note("one", to, source, size, stream))
        self.batch = batch(
            lambda to, source, size, count, attributes, starts, number, stream: self._note(
                "batch", to[:count], source[:count], size[:count], stream, number, starts[0]
            )
        )

    def _note(self, name: str, *arguments: Any) -> int:
        self.calls.append((name, *arguments))
        return 7 if name == self.fail else 0

    def lane(self, **handles: int) -> Any:
        return hot.COMPILED.Lane(
            **{
                "record": ctypes.cast(self.record, POINTER).value,
                "wait": ctypes.cast(self.wait, POINTER).value,
                "copy_one": ctypes.cast(self.one, POINTER).value,
                "copy_batch": ctypes.cast(self.batch, POINTER).value,
                "attributes": 1,
                "few": 2,
                "main": 11,
                "copy": 22,
                "marker": 33,
                **handles,
            }
        )


@compiled
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 200])
def test_a_steps_calls_are_made_in_order_and_with_every_copy(count: int) -> None:
    driver = FakeDriver()
    tensors = [torch.arange(index + 1) for index in range(count)]
    sizes, offsets, _, _ = lay_out_in_python(tensors, 64)
    assert driver.lane().submit(tensors, sizes, offsets, 1000, 44) is None
    first, second, *copies, last = driver.calls
    assert first == ("record", 33, 11)
    assert second == ("wait", 22, 33)
    assert last == ("record", 44, 22)
    wanted = [(1000 + o, t.data_ptr(), s) for o, t, s in zip(offsets, tensors, sizes, strict=True)]
    if count > 2:
        ((name, to, source, size, stream, number, start),) = copies
        assert (name, stream, number, start) == ("batch", 22, 1, 0)
        assert list(zip(to, source, size, strict=True)) == wanted
    else:
        assert copies == [("one", *place, 22) for place in wanted]


@compiled
def test_without_a_marker_or_an_event_only_the_copies_are_enqueued() -> None:
    driver = FakeDriver()
    tensor = torch.arange(2)
    assert driver.lane(marker=0).submit([tensor], [16], [0], 8, 0) is None
    assert driver.calls == [("one", 8, tensor.data_ptr(), 16, 22)]


@compiled
@pytest.mark.parametrize(("fails", "call"), [("record", 0), ("wait", 1), ("one", 2)])
def test_a_call_that_fails_is_named_and_nothing_follows_it(fails: str, call: int) -> None:
    driver = FakeDriver()
    driver.fail = fails
    assert driver.lane().submit([torch.arange(2)], [16], [0], 8, 44) == (7, call)
    assert driver.calls[-1][0] == fails


@compiled
def test_what_is_no_tensor_or_disagrees_is_refused_before_any_call() -> None:
    driver = FakeDriver()
    lane = driver.lane()
    for arguments in (([1], [1], [1], 0, 0), ([torch.empty(1)], [], [0], 0, 0), ((), [], [], 0, 0)):
        with pytest.raises((TypeError, AttributeError)):
            lane.submit(*arguments)
    assert driver.calls == []
