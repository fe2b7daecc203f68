"""The compiled loops give what their twins in Python give, on anything they meet."""

from __future__ import annotations

import ctypes
import threading
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asyncout import (
    CountOutOfRangeError,
    LengthMismatchError,
    SamplingMaskTensors,
    convert,
    cuda_driver,
    hot,
)
from asyncout.landing import BlockPool, lay_out, view_of
from asyncout.tree import gather, gather_in_python, rebuild, rebuild_in_python
from asyncout.virtual import VirtualMachine
from tests.fake_driver import FakeDriver

compiled = pytest.mark.skipif(hot.COMPILED is None, reason="the loops were not compiled here")


@pytest.fixture(params=["compiled", "in Python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled loops and without them."""
    if request.param == "in Python":
        monkeypatch.setattr(hot, "COMPILED", None)
    elif hot.COMPILED is None:
        pytest.skip("the loops were not compiled here")
    return request.param


def cut(ids: np.ndarray, counts: np.ndarray, names: list[str]) -> list[list[int]]:
    return convert.cut_to_counts(ids, counts, names, convert.rows_before_arrival(*ids.shape))


# --- token ids --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.uint8])
def test_rows_are_cut_to_their_counts(either: str, dtype: type) -> None:
    random = np.random.default_rng(1)
    for requests, width in ((0, 1), (1, 1), (7, 4), (300, 3)):
        ids = random.integers(0, 100, (requests, width)).astype(dtype)
        counts = random.integers(0, width + 1, requests).astype(np.int32)
        names = [str(index) for index in range(requests)]
        rows = cut(ids, counts, names)
        assert rows == [row[:count].tolist() for row, count in zip(ids, counts, strict=True)]
        assert all(type(token) is int for row in rows for token in row)


def test_large_and_negative_values_survive(either: str) -> None:
    ids = np.array([[2**62, -(2**62)], [-1, 2**31]])
    assert cut(ids, np.array([2, 2]), ["a", "b"]) == ids.tolist()


def test_strided_ids_are_read_as_they_are_shaped(either: str) -> None:
    ids = np.arange(12).reshape(3, 4).T
    assert cut(ids, np.full(4, 3), list("abcd")) == ids.tolist()


def test_unsigned_values_are_not_taken_for_negative_ones(either: str) -> None:
    ids = np.array([[2**63 + 5, 7]], np.uint64)
    assert cut(ids, np.array([1]), ["a"]) == [[2**63 + 5]]


@pytest.mark.parametrize("counts", [[1, 3], [-1, 1]])
def test_a_count_that_no_row_holds_is_named(either: str, counts: list[int]) -> None:
    with pytest.raises(CountOutOfRangeError, match=r"a: -1|b: 3"):
        cut(np.zeros((2, 2), int), np.array(counts), ["a", "b"])


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


def test_mask_rows_beyond_what_was_sampled_may_hold_anything(either: str) -> None:
    tensors, _, _ = random_masks(2, 2, 3, 70, 4)
    sampled = np.array([1, 2])
    wanted = tensors.tolists(sampled).to_nested_list()
    tensors.counts[1], tensors.counts[5] = -7, 71
    assert tensors.tolists(sampled).to_nested_list() == wanted
    with pytest.raises(CountOutOfRangeError, match="count of mask row 5 is 71"):
        tensors.tolists(np.array([1, 3]))


def test_masks_numbers_may_be_numpys_own(either: str) -> None:
    tensors, _, sampled = random_masks(1, 2, 3, 70, 4)
    wanted = tensors.tolists(sampled).to_nested_list()
    tensors.rows_per_request, tensors.vocab_size = np.int32(3), np.int64(70)
    assert tensors.tolists(sampled).to_nested_list() == wanted


@pytest.mark.parametrize("rows_per_request", [2**62 + 1, 2**70, -1])
def test_masks_of_impossible_rows_per_request_are_named(either: str, rows_per_request: int) -> None:
    tensors, _, _ = random_masks(0, 4, 1, 9, 4)
    tensors.rows_per_request = rows_per_request  # 4 times the first is 4, modulo 2**64
    with pytest.raises(LengthMismatchError, match="4 mask rows for 4 requests"):
        tensors.tolists(np.ones(4, int))


@compiled
def test_numbers_of_sampled_tokens_that_change_meanwhile_do_no_harm() -> None:
    """Long rows are read without the interpreter's lock, so another thread may write then."""
    requests, vocabulary = 64, 20_000
    rows = 4 * requests
    tensors = SamplingMaskTensors(
        torch.empty((rows, 0), dtype=torch.int32),
        torch.full((rows, vocabulary // 8), 0xFF, dtype=torch.uint8),
        torch.full((rows,), vocabulary, dtype=torch.int32), vocabulary, 4,
    )  # fmt: skip
    sampled, is_over = np.ones(requests, np.int64), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            sampled[:] = 4
            sampled[:] = 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            lists = tensors.tolists(sampled)
            listed = lists.token_ids.reshape(-1, vocabulary)
            assert (listed == np.arange(vocabulary)).all()
            assert len(listed) == lists.cu_num_generated_tokens[-1] == len(lists.offsets) - 1
    finally:
        is_over.set()
        thread.join()


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
def test_gathering_and_rebuilding_walk_the_same_way() -> None:
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
        numbers = [f"tensor {index}" for index in range(len(fast))]
        assert repr(rebuild(value, iter(numbers))) == repr(rebuild_in_python(value, iter(numbers)))
    assert len(sizes) > 5


@compiled
def test_an_error_in_a_field_comes_out_of_gathering() -> None:
    class Broken(Record):
        rest = property(lambda self: 1 / 0, lambda self, value: None)

    with pytest.raises(ZeroDivisionError):
        gather(Broken(torch.empty(1)), [])
    with pytest.raises(TypeError, match="a value and a list"):
        gather(1, ())
    with pytest.raises(ZeroDivisionError):
        rebuild(Broken(torch.empty(1)), iter([1]))
    with pytest.raises(RuntimeError, match="fewer replacements"):
        rebuild({"a": torch.empty(1)}, iter([]))
    with pytest.raises(TypeError, match="a value and an iterator"):
        rebuild(1, [])


WALKS = {
    "as it is here": (gather, rebuild),
    "in Python": (gather_in_python, rebuild_in_python),
}


@pytest.fixture(params=WALKS)
def walk(request: pytest.FixtureRequest) -> Any:
    """Give both ways to walk, compiled where they are, and in Python."""
    return WALKS[request.param]


def test_a_value_that_holds_itself_is_an_error_and_no_crash(walk: Any) -> None:
    its_own: dict[str, Any] = {}
    its_own["itself"] = Record(Record(None, None, its_own), rest=torch.empty(1))
    for call in (lambda: walk[0](its_own, []), lambda: walk[1](its_own, iter([1]))):
        with pytest.raises(RecursionError):
            call()
    nested: Any = torch.empty(1)
    for _ in range(100):
        nested = Record({"deeper": nested})
    found: list[torch.Tensor] = []
    walk[0](nested, found)
    assert len(found) == 1  # deep is not endless


def test_a_dict_that_loses_its_parts_while_it_is_walked_is_an_error(walk: Any) -> None:
    # Making a twin runs Python, and there another thread of the engine may change its dict.
    value: dict[Any, Any] = {}

    class Emptied(Record):
        first = property(lambda self: value.clear(), lambda self, first: None)

    def replacements() -> Any:
        value.clear()
        yield "tensor"

    def fill(part: Any) -> None:
        value.update({(f"request {index}",): {("part",): part} for index in range(3)})

    fill(Emptied(None))
    with pytest.raises(RuntimeError, match="changed size"):
        walk[0](value, [])
    fill(torch.empty(1))
    with pytest.raises(RuntimeError, match="changed size"):
        walk[1](value, replacements())


@compiled
def test_rows_that_are_not_the_ones_made_for_the_ids_are_left_alone() -> None:
    ids, counts = np.zeros((2, 2), int), np.array([1, 2])
    for rows in ([[None, None]], [[None], [None, None]], [(None, None)] * 2, ()):
        assert not hot.COMPILED.fill_rows(rows, ids, counts)
        assert convert.cut_to_counts(ids, counts, ["a", "b"], rows) == [[0], [0, 0]]


# --- the driver's calls -----------------------------------------------------------------------


class Handle:
    handle = 44


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(VirtualMachine(), pinned=True)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def refuse(sources: list[torch.Tensor]) -> Any:
    raise LookupError(f"{len(sources)} tensors went to the fallback")


def land(driver: FakeDriver, pool: BlockPool, tensors: Any, **handles: int) -> Any:
    return hot.COMPILED.land(driver.lane(**handles), pool.lend, refuse, tensors)


@compiled
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 200])
def test_a_steps_calls_are_made_in_order_and_with_every_copy(
    driver: FakeDriver, pool: BlockPool, count: int
) -> None:
    tensors = [torch.arange(3 * index + 1)[index:] for index in range(count)]
    sizes, offsets, _, _ = lay_out(tensors, 64)
    landing = land(driver, pool, tensors)
    landing.enqueue(Handle)
    base = landing.part(0) if count else None
    start = 0 if base is None else np.asarray(base).__array_interface__["data"][0]
    first, second, *copies, last = driver.calls
    assert first == ("record", 33, 11)
    assert second == ("wait", 22, 33)
    assert last == ("record", 44, 22)
    wanted = [(start + o, t.data_ptr(), s) for o, t, s in zip(offsets, tensors, sizes, strict=True)]
    if count > 2:
        ((name, to, source, size, stream, number, begin),) = copies
        assert (name, stream, number, begin) == ("batch", 22, 1, 0)
        assert list(zip(to, source, size, strict=True)) == wanted
    else:
        assert copies == [("one", *place, 22) for place in wanted]


class FakeEvent:
    def __init__(self, driver: FakeDriver, handle: int) -> None:
        self.driver, self.handle = driver, handle

    def record(self, stream: Any) -> None:
        self.driver.record(self.handle, stream.cuda_stream)

    def wait(self, stream: Any) -> None:
        self.driver.wait(stream.cuda_stream, self.handle, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.guards("asyncout/cuda_driver.py", "self._marker.record(self._main)")
@pytest.mark.guards("asyncout/cuda_driver.py", "self._marker.wait(self._copy)")
@pytest.mark.guards("asyncout/cuda_driver.py", "event.record(self._copy)")
def test_a_step_in_python_makes_the_same_calls(
    driver: FakeDriver, pool: BlockPool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(
        copy_to_host=driver.one, copy_batch=driver.batch, attributes=None,
        attribute_starts=(ctypes.c_uint64 * 1)(0), check=lambda result, call: None,
    )  # fmt: skip
    monkeypatch.setattr(cuda_driver, "driver", lambda: library)
    monkeypatch.setattr(hot, "COMPILED", None)
    main, copy = SimpleNamespace(cuda_stream=11), SimpleNamespace(cuda_stream=22)
    submit = cuda_driver.DriverSubmit(FakeEvent(driver, 33), main, copy)
    tensors = [torch.arange(index + 1) for index in range(count)]
    sizes, offsets, _, _ = lay_out(tensors, 64)
    submit(tensors, sizes, offsets, SimpleNamespace(address=1000), FakeEvent(driver, 44))
    first, second, *copies, last = driver.calls
    assert (first, second, last) == (("record", 33, 11), ("wait", 22, 33), ("record", 44, 22))
    wanted = [(1000 + o, t.data_ptr(), s) for o, t, s in zip(offsets, tensors, sizes, strict=True)]
    if count > cuda_driver.FEW_COPIES:
        ((_, to, source, size, *_),) = copies
        assert list(zip(to, source, size, strict=True)) == wanted
    else:
        assert copies == [("one", *place, 22) for place in wanted]


@compiled
def test_a_lane_goes_with_its_path_and_keeps_the_marker_until_then(
    driver: FakeDriver, pool: BlockPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(result: int, call: str) -> None:
        raise OSError(f"{call} gave {result}")

    library = SimpleNamespace(
        event_record=driver.record, stream_wait_event=driver.wait, copy_to_host=driver.one,
        copy_batch=driver.batch, attributes=ctypes.c_int(), check=check,
        stream_is_capturing=driver.one,
    )  # fmt: skip
    monkeypatch.setattr(cuda_driver, "driver", lambda: library)
    monkeypatch.setattr(cuda_driver, "DLPACK_CUDA", 1)  # tensors of the CPU are there everywhere
    main = SimpleNamespace(cuda_stream=11, device_index=0)
    copy = SimpleNamespace(cuda_stream=22, device_index=0)
    submit = cuda_driver.DriverSubmit(FakeEvent(driver, 33), main, copy)
    marker, itself = weakref.ref(submit._marker), weakref.ref(submit)
    landing = hot.COMPILED.land(submit.lane, pool.lend, refuse, [torch.arange(2)])
    del submit
    assert itself() is None  # no collection was needed, and none could help
    assert marker() is not None
    driver.fail = "wait"
    with pytest.raises(OSError, match="cuStreamWaitEvent gave 7"):
        landing.enqueue()
    del landing
    assert marker() is None


@compiled
def test_without_a_marker_or_an_event_only_the_copies_are_enqueued(
    driver: FakeDriver, pool: BlockPool
) -> None:
    land(driver, pool, [torch.arange(2)], marker=0).enqueue()
    assert [call[0] for call in driver.calls] == ["one"]


@compiled
@pytest.mark.parametrize(("fails", "call"), [("record", 0), ("wait", 1), ("one", 2)])
def test_a_call_that_fails_is_named_and_nothing_follows_it(
    driver: FakeDriver, pool: BlockPool, fails: str, call: int
) -> None:
    driver.fail = fails
    landing = land(driver, pool, [torch.arange(2)])
    with pytest.raises(OSError, match=f"call {call} gave 7"):
        landing.enqueue(Handle)
    assert driver.calls[-1][0] == fails


@compiled
@pytest.mark.parametrize(
    "unusual",
    [
        torch.arange(6).view(2, 3).t(),
        torch.empty((0, 3)),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(1, 2, 1, 2, 1),
        "no tensor",
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(1, dtype=torch.complex64).conj().imag,
    ],
    ids=["strided", "empty", "subclass", "five dimensions", "no tensor", "lazy conj", "lazy neg"],
)
def test_what_is_not_plain_goes_to_the_twin_in_python(
    driver: FakeDriver, pool: BlockPool, unusual: Any
) -> None:
    with pytest.raises(LookupError, match="2 tensors"):
        land(driver, pool, [torch.arange(2), unusual])
    with pytest.raises(LookupError, match="1 tensors"):
        land(driver, pool, [torch.arange(2)], device_type=2)
    with pytest.raises(LookupError, match="1 tensors"):
        land(driver, pool, [torch.arange(2)], device_index=1)
    assert driver.calls == []
    assert pool.num_bytes == 0


@compiled
@pytest.mark.parametrize(
    "source",
    [
        torch.arange(12, dtype=torch.int32).view(3, 4),
        torch.tensor(True),
        torch.tensor([0.5, -2], dtype=torch.bfloat16),
        torch.arange(24, dtype=torch.float64).view(1, 2, 3, 4),
        torch.arange(1.0),
        torch.tensor([1, 2**63 - 1]),
        torch.arange(4, dtype=torch.uint8).view(4, 1)[:, 0],
    ],
    ids=lambda source: str(source.dtype),
)
def test_views_of_a_landing_are_those_of_its_twin(
    driver: FakeDriver, pool: BlockPool, source: torch.Tensor
) -> None:
    landing = land(driver, pool, [torch.ones(9), source])
    view = landing.tensor(1)
    view.copy_(source)
    assert view.dtype == source.dtype
    assert view.shape == source.shape
    assert view.is_contiguous()
    twin = view_of(pool.lend(4096), 0, source)
    assert twin.dtype == view.dtype
    assert [torch.equal(part, source) for part in landing.tensors(1, 2)] == [True]
    if source.dtype is not torch.bfloat16:
        assert np.array_equal(np.asarray(landing.part(1)), source.numpy())
        assert np.asarray(landing.part(1)).dtype == source.numpy().dtype
    with pytest.raises(IndexError):
        landing.tensor(2)


@compiled
def test_a_source_that_is_resized_on_the_way_leaves_the_landing_as_it_was(
    driver: FakeDriver, pool: BlockPool
) -> None:
    # As an operation with `out=` of a larger step does: a view of its size would leave the block.
    sources = [torch.arange(6).view(2, 3) for _ in range(3)]
    addresses = [source.data_ptr() for source in sources]
    landing = land(driver, pool, list(sources))
    sources[0].resize_(1 << 20)
    sources[1].t_()
    sources[2].data = torch.ones(1)
    landing.enqueue()
    (batch,) = (call for call in driver.calls if call[0] == "batch")
    assert batch[2] == addresses
    assert batch[3] == [48, 48, 48]
    for place in range(3):
        assert landing.tensor(place).shape == (2, 3)
        assert landing.part(place).shape == (2, 3)
        assert np.asarray(landing.part(place)).shape == (2, 3)
        assert np.asarray(landing.part(place)).dtype == np.int64


@compiled
def test_a_block_that_cannot_go_home_is_reported_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Homeless:
        address = size = 0
        home = property(lambda self: 1 / 0)

    reports: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reports.append)
    block = Homeless()
    hot.COMPILED.Lease(block)
    assert [(type(report.exc_value), report.object) for report in reports] == [
        (ZeroDivisionError, block)
    ]


@compiled
@pytest.mark.parametrize("kind", ["tensor", "part", "array", "storage"])
def test_a_compiled_lease_ends_with_the_last_view_and_no_earlier(
    driver: FakeDriver, pool: BlockPool, kind: str
) -> None:
    landing = land(driver, pool, [torch.arange(4)])
    held: Any = landing.part(0) if kind in ("part", "array") else landing.tensor(0)
    if kind == "array":
        held = np.asarray(held)[1:]
    if kind == "storage":
        held = held[1:].untyped_storage()
    del landing
    first = pool.num_bytes
    other = land(driver, pool, [torch.arange(4)])
    assert pool.num_bytes == 2 * first
    del held, other
    two = [land(driver, pool, [torch.arange(4)]) for _ in range(2)]
    assert pool.num_bytes == 2 * first
    del two


@compiled
def test_a_driver_call_gives_its_result_and_takes_one_handle(driver: FakeDriver) -> None:
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
        lambda handle: seen.append(handle) or 600
    )
    for waits in (False, True):
        call = hot.COMPILED.Call(function=ctypes.cast(function, ctypes.c_void_p).value, waits=waits)
        assert call(77) == 600
        with pytest.raises(TypeError, match="one handle"):
            call(1, 2)
        with pytest.raises(TypeError):
            call("handle")
    assert seen == [77, 77]


@compiled
def test_lengths_that_agree_are_told_from_those_that_do_not() -> None:
    ids, row = torch.zeros((3, 2), dtype=torch.int64), torch.zeros(3, dtype=torch.int32)
    wide = torch.zeros((3, 5))
    agree = hot.COMPILED.lengths_agree
    fits = (wide, wide, row, None, None)
    assert agree(3, ids, row, None, None)
    assert agree(3, ids, row, row, fits)
    for wrong in (
        (2, ids, row, None, None),
        (3, row, row, None, None),
        (3, ids, ids, None, None),
        (3, ids, row[:2], None, None),
        (3, ids, row, row[:1], None),
        (3, ids, row, None, (wide, wide[:, :4], row)),
        (3, ids, row, None, (wide, wide, row[:2])),
        (3, ids, row, None, (wide, wide, row, [0, 1, 2, 3])),
        (3, ids, row, None, "logprobs"),
        (3, None, row, None, None),
    ):
        assert not agree(*wrong), wrong
