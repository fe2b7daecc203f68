"""A plain step's constructor in one compiled call does what its twin in Python does, or nothing.

The driver is a fake one. Where values are to arrive, its device is the CPU, whose memory can be
copied; where records are to be walked as on a device, its device is one of torch's that has no
memory.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from steps import in_threads

from asyncout import (
    DEFAULT,
    AsyncOutput,
    CopyPolicy,
    GraphCaptureError,
    LengthMismatchError,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
    SamplingMaskTensors,
    hot,
    inflight,
    tree,
)
from asyncout.copy_path import CopyPath, copy_path
from asyncout.cuda_driver import CudaDriverError
from tests.fake_driver import FakeDriver, FakeRuntime

pytestmark = pytest.mark.skipif(hot.COMPILED is None, reason="the loops were not compiled here")

CPU, EXTENSION = 1, 12  # device types in DLPack's numbers


@cache
def torch_fake_device() -> Callable[..., torch.Tensor]:
    """Give what makes tensors of a device without memory, which torch has for Python's backends."""
    if torch.cuda.is_available():
        pytest.skip("torch takes one accelerator, and there is a real one")
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

        make: Callable[..., torch.Tensor] = torch._C._acc.create_empty_tensor
    except (ImportError, AttributeError):
        pytest.skip("this torch makes no device in Python")
    _setup_privateuseone_for_python_backend("memoryless")
    return make


class Setting:
    """A fake device, and steps on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_memory: bool) -> None:
        self.has_memory = has_memory
        self.driver = FakeDriver()
        self.driver.moves = has_memory
        self._make = None if has_memory else torch_fake_device()
        device = torch.device("cpu") if has_memory else torch.device("memoryless", 0)
        self.runtime = FakeRuntime(
            self.driver, device, CPU if has_memory else EXTENSION, monkeypatch
        )
        self.main, self.copy = self.runtime.main, self.runtime.copy
        if not has_memory:
            self._give_current_stream(monkeypatch)

    def _give_current_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let torch's functions know a current stream of the device: 99."""
        get, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        new.restype, new.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )

        def current(kind: int, index: int, stream: Any) -> int:
            stream[0] = 99
            return 0

        self._name = b"dlpack_exchange_api"
        self._functions = (ctypes.c_void_p * 7).from_buffer_copy(
            (ctypes.c_void_p * 7).from_address(
                get(torch.Tensor.__dlpack_c_exchange_api__, self._name)
            )
        )
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
        )
        self._current = kind(current)
        self._functions[6] = ctypes.cast(self._current, ctypes.c_void_p).value
        capsule = new(ctypes.addressof(self._functions), self._name, None)
        monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", capsule)
        learn()

    def tensor(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        data = torch.as_tensor(values, dtype=dtype)
        return data if self._make is None else self._make(tuple(data.shape), dtype)

    def sampled(self, requests: int = 2, **fields: Any) -> SamplerOutput:
        ids = self.tensor([[7 + index] for index in range(requests)], torch.int64)
        return SamplerOutput(ids, **fields)

    def counts(self, requests: int = 2) -> torch.Tensor:
        return self.tensor([1] * requests)

    def logprobs(self, rows: int, columns: int = 3) -> LogprobsTensors:
        values = torch.zeros((rows, columns))
        return LogprobsTensors(
            self.tensor(values),
            self.tensor(values, torch.float32),
            self.tensor([0] * rows),
        )

    def masks(self, rows: int, per_request: Any = 1) -> SamplingMaskTensors:
        ids, bits = torch.zeros((rows, 4)), torch.zeros((rows, 2))
        return SamplingMaskTensors(
            self.tensor(ids),
            self.tensor(bits, torch.uint8),
            self.tensor([0] * rows),
            9,
            per_request,
        )

    def path(self, policy: CopyPolicy = DEFAULT) -> CopyPath:
        return copy_path(policy, self.main, self.copy)

    def output(self, sampled: Any = None, counts: Any = None, **arguments: Any) -> AsyncOutput:
        runner = arguments.pop("runner", None) or runner_output(2)
        sampled = self.sampled() if sampled is None else sampled
        counts = self.counts() if counts is None else counts
        return AsyncOutput(runner, sampled, counts, self.main, self.copy, **arguments)

    def warm(self, policy: CopyPolicy = DEFAULT) -> Asked:
        """Make the step after which a path knows its memory; watch its compiled call from then."""
        self.output(policy=policy).get_output()
        path = self.path(policy)
        if self.has_memory and not path.memory_is_known:
            path.memory_is_known, path.plain = True, path._plain  # no step of the CPU's tells
        asked = Asked(path)
        self.driver.calls.clear()
        return asked


class Asked:
    """Notes what a path's compiled call answers."""

    def __init__(self, path: CopyPath) -> None:
        self.answers: list[bool] = []
        self._plain = path.plain
        assert self._plain is not None
        path.plain = self

    def __call__(self, *arguments: Any) -> bool:
        answer = self._plain(*arguments)
        assert type(answer) is bool
        self.answers.append(answer)
        return answer


def learn() -> None:
    hot.COMPILED.learn_types(
        torch.Tensor, tree._fields_of_type, tree.record_fields, tree.DEVICE_ONLY_FIELDS
    )


def runner_output(requests: int, **fields: Any) -> ModelRunnerOutput:
    return ModelRunnerOutput([f"r{index}" for index in range(requests)], {}, **fields)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Give a device with memory, the CPU."""
    return Setting(monkeypatch, has_memory=True)


@pytest.fixture
def there() -> Iterator[Setting]:
    """Give a device without memory, whose tensors are not on the host."""
    with pytest.MonkeyPatch.context() as patch:
        yield Setting(patch, has_memory=False)
    learn()


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    inflight.kept.clear()
    yield
    inflight.kept.clear()


# --- what arrives -----------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["hybrid", "block", "spin"])
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("streams", ["dual", "single"])
def test_a_plain_step_arrives(here: Setting, wait: Any, memory: Any, streams: Any) -> None:
    policy = CopyPolicy(wait=wait, memory=memory, streams=streams)
    asked = here.warm(policy)
    for step in range(5):
        ids = torch.tensor([[step], [10 * step]])
        nans = here.tensor([0, step])
        scores = {"r0": torch.tensor([step, 1.5]), "r1": torch.arange(step + 1)}
        runner = runner_output(2, prompt_token_id_logprobs_dict=scores)
        output = here.output(SamplerOutput(ids, num_nans=nans), runner=runner, policy=policy)
        result = output.get_output()
        assert result is runner
        assert result.sampled_token_ids == [[step], [10 * step]]
        assert result.num_nans_in_logits == {"r0": 0, "r1": step}
        for name, tensor in scores.items():
            arrived = result.prompt_token_id_logprobs_dict[name]
            assert arrived is not tensor
            assert torch.equal(arrived, tensor)
    assert asked.answers == [True] * 5


def test_the_first_step_finds_out_what_memory_there_is_before_any_is_compiled(
    there: Setting,
) -> None:
    assert there.path().plain is None
    there.output().get_output()
    assert there.path().plain is not None
    assert there.path(CopyPolicy(memory="pageable")).plain is not None  # known from the start


@pytest.mark.parametrize(
    "policy",
    [CopyPolicy(copies="per_tensor", wait="block"), CopyPolicy(submit="thread")],
    ids=["per tensor", "thread"],
)
def test_what_is_no_batch_of_the_constructors_has_no_compiled_step(
    here: Setting, policy: CopyPolicy
) -> None:
    here.output(policy=policy).get_output()
    assert here.path(policy).plain is None


def test_the_driver_is_called_in_order_and_events_and_blocks_are_used_again(here: Setting) -> None:
    here.warm()
    here.driver.calls.clear()
    output = here.output()
    names = [call[0] for call in here.driver.calls]
    assert names == ["capturing", "record", "wait", "one", "one", "record"]
    marker, waited, last = (here.driver.calls[place] for place in (1, 2, 5))
    assert marker[2] == 11
    assert waited == ("wait", 22, marker[1])
    assert last == ("record", output._event.handle, 22)
    event, lease = output._event, output._kept[1]
    assert event.recorded_at <= here.runtime.clock()
    addresses = [call[1] for call in here.driver.calls if call[0] == "one"]
    other = here.output()
    assert other._event is not event
    assert not {call[1] for call in here.driver.calls[6:] if call[0] == "one"} & set(addresses)
    output.get_output()
    other.get_output()
    del lease, output
    before = len(here.driver.calls)
    third = here.output()
    assert third._event is not None
    assert not [call for call in here.driver.calls[before:] if call[0] == "create"]


def test_what_the_caller_changes_afterwards_changes_no_result(here: Setting) -> None:
    asked = here.warm()
    ids, prompts = torch.tensor([[5], [6]]), {"r0": torch.tensor([1, 2])}
    sampled = SamplerOutput(ids)
    runner = runner_output(2, prompt_token_id_logprobs_dict=prompts)
    output = here.output(sampled, runner=runner)
    ids.resize_(1 << 12, 3)
    sampled.sampled_token_ids = None
    prompts["r1"] = torch.tensor([3])
    del prompts["r0"]
    result = output.get_output()
    assert asked.answers == [True]
    assert result.sampled_token_ids == [[5], [6]]
    assert {name: part.tolist() for name, part in result.prompt_token_id_logprobs_dict.items()} == {
        "r0": [1, 2]
    }


def test_sources_are_kept_until_they_have_been_read(here: Setting) -> None:
    asked = here.warm()
    sampled, counts = here.sampled(), here.counts()
    gone = [weakref.ref(part) for part in (sampled.sampled_token_ids, counts)]
    output = here.output(sampled, counts)
    del sampled, counts
    assert asked.answers == [True]
    assert [part() is None for part in gone] == [False, False]
    output.get_output()
    assert [part() is None for part in gone] == [True, True]


# --- the same as in Python --------------------------------------------------------------------


@dataclass
class Extended(SamplerOutput):
    num_sampled_tokens: Any = None  # as the output's own source is called
    extra: Any = None


def random_step(there: Setting, random: np.random.Generator) -> tuple[Any, Any, Any]:
    requests = int(random.integers(1, 5))

    def maybe(make: Callable[[], Any]) -> Any:
        return make() if random.random() < 0.6 else None

    per_request = int(random.integers(1, 3))
    prompts = {f"r{index}": maybe(lambda: there.logprobs(5)) for index in range(requests)}
    sampled = Extended(
        there.sampled(requests).sampled_token_ids,
        logprobs_tensors=maybe(lambda: there.logprobs(requests)),
        num_nans=maybe(lambda: there.counts(requests)),
        num_sampled=maybe(lambda: there.counts(requests)),
        sampling_mask_tensors=maybe(lambda: there.masks(requests * per_request, per_request)),
        num_sampled_tokens=maybe(lambda: there.counts(4)),
        extra=maybe(lambda: {"a": there.counts(3), "b": [1], "c": there.logprobs(1)}),
    )
    runner = runner_output(
        requests,
        prompt_logprobs_dict=maybe(lambda: prompts) or {},
        prompt_token_id_logprobs_dict=maybe(lambda: {"r0": there.counts(2)}),
    )
    return runner, sampled, there.counts(requests)


def described(there: Setting, step: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """Construct an output, and tell what it copies and what the driver was asked."""
    there.driver.calls.clear()
    runner, sampled, counts = step
    output = AsyncOutput(replace(runner), sampled, counts, there.main, there.copy)
    copies = [
        call[3] if call[0] in ("one", "batch") else call[0]
        for call in there.driver.calls
        if call[0] not in ("create", "capturing")
    ]
    kept = output._kept[0]
    sources = list(kept), [(name, id(part)) for name, part in tree.named_tensors(kept)]
    result = (
        sources,
        output._first if output._ends else None,
        output._ends or None,
        copies,
        output._aux,
        output._fault_monitor,
    )
    output.get_output()
    return result


def test_random_steps_are_those_of_the_twin(there: Setting) -> None:
    random = np.random.default_rng(3)
    AsyncOutput(*random_step(there, random), there.main, there.copy).get_output()
    asked, path = Asked(there.path()), there.path()
    for _ in range(200):
        step = random_step(there, random)
        path.plain = asked
        compiled = described(there, step)
        path.plain = None
        assert described(there, step) == compiled
    assert asked.answers == [True] * 200


def test_only_the_current_stream_of_the_device_is_asked_for_a_capture(there: Setting) -> None:
    asked = there.warm()
    there.output()
    assert there.driver.calls[0] == ("capturing", 99)
    there.driver.is_capturing = 1
    before = len(there.driver.calls)
    with pytest.raises(GraphCaptureError):
        there.output()
    there.driver.is_capturing, there.driver.fail = 0, "capturing"
    inflight.kept.clear()
    there.output()  # cannot be told: torch is asked, which says no
    assert asked.answers == [True, False, False]
    assert {call[0] for call in there.driver.calls[before : before + 1]} <= {"capturing", "query"}


# --- what is not plain ------------------------------------------------------------------------


class Raising(SamplerOutput):
    error: BaseException = ValueError("planted")

    @property
    def num_nans(self) -> Any:
        raise self.error

    @num_nans.setter
    def num_nans(self, value: Any) -> None:
        pass


STRIDED = torch.arange(8).view(2, 4)[:, :1]
IMAGINARY = torch.ones((1, 1), dtype=torch.complex64).conj().imag


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        (STRIDED, [[0], [4]]),
        (torch.nn.Parameter(torch.ones(2, 1), requires_grad=False), [[1], [1]]),
    ],
    ids=["strided", "subclass"],
)
def test_unusual_token_ids_are_left_to_the_twin(here: Setting, ids: Any, wanted: Any) -> None:
    asked = here.warm()
    assert here.output(SamplerOutput(ids)).get_output().sampled_token_ids == wanted
    assert asked.answers == [False]


@pytest.mark.parametrize(
    "part",
    [
        IMAGINARY,
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(1, 2, 1, 2, 1),
        torch.arange(6).view(2, 3).t(),
        torch.empty((0, 3)),
    ],
    ids=["lazy neg", "lazy conj", "five dimensions", "strided", "empty"],
)
def test_an_unusual_part_is_left_to_the_twin(here: Setting, part: torch.Tensor) -> None:
    asked = here.warm()
    runner = runner_output(2, prompt_token_id_logprobs_dict={"r0": part})
    arrived = here.output(runner=runner).get_output().prompt_token_id_logprobs_dict["r0"]
    assert asked.answers == [False]
    assert torch.equal(arrived, part.resolve_neg().resolve_conj())


@pytest.mark.guards(
    "asyncout/async_output.py", "self._counted = tuple(model_runner_output.req_ids)"
)
def test_a_plain_step_keeps_whose_nans_it_counts(here: Setting) -> None:
    here.warm()
    runner = runner_output(2)
    ids, nans = torch.tensor([[1], [2]]), here.tensor([0, 7])
    output = here.output(SamplerOutput(ids, num_nans=nans), runner=runner)
    runner.req_ids[:] = ["new", "r0"]
    assert output.get_output().num_nans_in_logits == {"r0": 0, "r1": 7}


def test_no_requests_are_left_to_the_twin(here: Setting) -> None:
    asked = here.warm()
    output = here.output(
        SamplerOutput(torch.empty((0, 1), dtype=torch.int64)),
        torch.empty(0, dtype=torch.int32),
        runner=runner_output(0),
    )
    assert output.get_output().sampled_token_ids == []
    assert asked.answers == [False]


def test_a_tensor_on_the_host_is_left_to_the_twin(there: Setting) -> None:
    asked = there.warm()
    there.output(there.sampled(num_nans=torch.zeros(2, dtype=torch.int32)))
    assert asked.answers == [False]


def test_a_record_that_is_on_the_host_already_is_handed_on_as_it_is(there: Setting) -> None:
    asked = there.warm()
    on_host = LogprobsTensors(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2))
    result = there.output(there.sampled(logprobs_tensors=on_host)).get_output()
    assert asked.answers == [True]
    assert result.logprobs.logprobs.ctypes.data == on_host.logprobs.data_ptr()


def test_a_dict_of_ones_own_type_and_a_new_type_of_output_are_left_to_the_twin(
    here: Setting,
) -> None:
    asked = here.warm()
    runner = runner_output(2, prompt_token_id_logprobs_dict=OrderedDict(r0=torch.ones(2)))
    assert here.output(runner=runner).get_output() is runner

    @dataclass
    class New(SamplerOutput):
        pass

    for _ in range(2):
        here.output(New(torch.ones((2, 1), dtype=torch.int64))).get_output()
    assert asked.answers == [False, False, True]


def test_a_look_alike_may_lack_what_is_optional(here: Setting) -> None:
    asked = here.warm()
    ids = torch.tensor([[1], [2]])
    for _ in range(2):
        sampled = SimpleNamespace(
            sampled_token_ids=ids, logprobs_tensors=None, sampling_mask_tensors=None
        )
        runner = SimpleNamespace(req_ids=["a", "b"])
        assert here.output(sampled, runner=runner).get_output().sampled_token_ids == [[1], [2]]
    assert asked.answers[-1]  # its type was known by then


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda s: (s.sampled(3), s.counts()), "sampled_token_ids"),
        (lambda s: (s.sampled(), s.counts(1)), "num_sampled_tokens"),
        (lambda s: (s.sampled(num_nans=s.counts(3)), s.counts()), "num_nans"),
        (lambda s: (s.sampled(sampling_mask_tensors=s.masks(3)), s.counts()), "token_ids"),
        (
            lambda s: (s.sampled(sampling_mask_tensors=s.masks(2, 2**70)), s.counts()),
            "token_ids",
        ),
        (
            lambda s: (
                s.sampled(
                    logprobs_tensors=s.logprobs(2)._replace(selected_token_ranks=s.counts(1))
                ),
                s.counts(),
            ),
            "selected_token_ranks",
        ),
    ],
)
def test_lengths_that_disagree_are_named_and_nothing_is_taken(
    there: Setting, wrong: Any, field: str
) -> None:
    there.warm()
    pool = there.path()._plain
    free = sum(len(home) for home in pool_of(there).values())
    events = len(ready(there))
    with pytest.raises(LengthMismatchError, match=field):
        there.output(*wrong(there))
    assert {call[0] for call in there.driver.calls} <= {"capturing"}
    assert sum(len(home) for home in pool_of(there).values()) == free
    assert len(ready(there)) == events
    assert pool is there.path()._plain


def pool_of(there: Setting) -> Any:
    """Give the free blocks of the default policy's path, by size."""
    return there.path().prepare.args[1].__self__.homes


def ready(there: Setting) -> Any:
    return there.path().recycle.__self__.ready


@pytest.mark.parametrize("error", [ValueError("planted"), KeyboardInterrupt(), MemoryError()])
def test_an_error_from_the_middle_comes_out_and_nothing_is_enqueued(
    here: Setting, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(Raising, "error", AttributeError("none yet"))
    asked = here.warm()
    here.output(Raising(torch.ones((2, 1), dtype=torch.int64))).get_output()
    here.driver.calls.clear()  # its type is known from here on
    asked.answers.clear()
    monkeypatch.setattr(Raising, "error", error)
    with pytest.raises(type(error)):
        here.output(Raising(torch.ones((2, 1), dtype=torch.int64)))
    assert asked.answers == []
    assert {call[0] for call in here.driver.calls} <= {"capturing"}


@pytest.mark.parametrize(
    "missing", ["sampled_token_ids", "logprobs_tensors", "req_ids", "rows_per_request"]
)
def test_what_is_missing_is_missed_as_the_twin_misses_it(there: Setting, missing: str) -> None:
    there.warm()
    runner, sampled = runner_output(2), there.sampled(sampling_mask_tensors=there.masks(2))
    owner = {"req_ids": runner, "rows_per_request": sampled.sampling_mask_tensors}.get(
        missing, sampled
    )
    delattr(owner, missing)
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(type(owner), missing):
            patch.delattr(type(owner), missing)
        with pytest.raises(AttributeError, match=missing):
            there.output(sampled, runner=runner)
    assert {call[0] for call in there.driver.calls} <= {"capturing"}


# --- what fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["record", "wait", "one"])
@pytest.mark.guards("asyncout/async_output.py", "self._leave_behind()", only="wait")
def test_a_call_that_fails_keeps_what_its_copies_may_touch(here: Setting, fails: str) -> None:
    asked = here.warm()
    sampled = here.sampled()
    gone = weakref.ref(sampled.sampled_token_ids)
    here.driver.fail = fails
    with pytest.raises(CudaDriverError, match="failed with 7"):
        here.output(sampled)
    here.driver.fail = None
    del sampled
    gc.collect()
    # Where an event could be recorded behind it; else the stream was waited for.
    assert (gone() is None) == (fails == "record")
    assert inflight.kept_count() == (fails != "record")
    for step in range(2):
        ids = torch.tensor([[step], [1]])
        assert here.output(SamplerOutput(ids)).get_output().sampled_token_ids == [[step], [1]]
    assert gone() is None  # the next construction let go of it, through the twin
    assert asked.answers == [fails == "record", True]


def test_an_output_dropped_unread_keeps_what_its_copies_touch(here: Setting) -> None:
    asked = here.warm()
    sampled = here.sampled()
    gone = weakref.ref(sampled.sampled_token_ids)
    del_me = here.output(sampled)
    del sampled, del_me
    assert gone() is not None
    here.output().get_output()  # lets go of it
    assert gone() is None
    assert asked.answers == [True, False]


def test_without_an_event_the_block_goes_home(
    here: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.warm()
    ready(here).clear()

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError("no event")

    monkeypatch.setattr(here.runtime, "new_pooled_event", refuse)
    with pytest.raises(OSError, match="no event"):
        here.output()
    assert sum(len(home) for home in pool_of(here).values()) == 1
    assert {call[0] for call in here.driver.calls} <= {"capturing"}
    assert inflight.kept_count() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the driver's
def test_where_memory_ends_at_any_point_an_error_says_so_and_the_next_step_is_well(
    here: Setting,
) -> None:
    testing = pytest.importorskip("_testcapi")
    here.driver.moves = False  # a callback without memory could only print
    here.warm()
    plain = here.path()._plain
    failures = 0
    for start in range(40):
        output = AsyncOutput.__new__(AsyncOutput)
        output._path = here.path()
        arguments = output, runner_output(2), here.sampled(num_nans=here.counts()), here.counts()
        here.driver.fail = "wait"  # before Python's callbacks could be many
        testing.set_nomemory(start, start + 1)
        try:
            plain(*arguments)
        except MemoryError:
            failures += 1
        except CudaDriverError:
            pass
        finally:
            testing.remove_mem_hooks()
        output._kept = None
    assert failures > 3
    here.driver.fail, here.driver.moves = None, True
    assert here.output().get_output().sampled_token_ids == [[7], [8]]


def test_no_reference_is_lost_or_left_over_many_steps(here: Setting) -> None:
    here.warm()
    sampled, counts = here.sampled(num_nans=here.counts()), here.counts()
    scores = {"r0": torch.ones(2), "r1": None}
    runner = runner_output(2, prompt_token_id_logprobs_dict=scores)
    path = here.path()
    path.plain = path._plain  # itself: what asks it keeps the answers
    watched = [
        sampled, sampled.sampled_token_ids, sampled.num_nans, counts, runner, scores, scores["r0"],
        path.plain, None, True, False, "sampled_token_ids", "_kept", inflight.kept,
    ]  # fmt: skip

    def construct(number: int) -> None:
        here.driver.fail = "one" if number % 5 == 4 else None
        wrong = torch.ones(3, dtype=torch.int32) if number % 5 == 3 else counts
        try:
            here.output(sampled, wrong, runner=runner).get_output()
        except (CudaDriverError, LengthMismatchError):
            here.driver.fail = None
            inflight.release_passed()
        runner.prompt_token_id_logprobs_dict = scores
        here.driver.calls.clear()

    def measure() -> list[int]:
        gc.collect()
        return [sys.getrefcount(part) for part in watched]

    for number in range(20):
        construct(number)
    before = measure()
    for number in range(1000):
        construct(number)
    grown = [after - was for was, after in zip(before, measure(), strict=True)]
    assert max(grown) < 100, grown


# --- the object itself ------------------------------------------------------------------------


def test_a_plain_step_does_not_keep_its_path(here: Setting) -> None:
    # The collector looks into no plain step, and would never find a cycle through it.
    path = CopyPath(CopyPolicy(memory="pageable"), here.main, here.copy)
    plain, itself, waiter = path.plain, weakref.ref(path), weakref.ref(path.recycle.__self__)
    del path
    gc.collect()
    assert itself() is None
    assert waiter() is not None
    del plain
    assert waiter() is None


def test_a_plain_step_takes_its_four_arguments_and_a_lane(here: Setting) -> None:
    here.warm()
    plain = here.path()._plain
    with pytest.raises(TypeError, match="an output"):
        plain(1, 2, 3)
    with pytest.raises(TypeError, match="an output"):
        plain(1, 2, 3, counts=4)
    parts = {
        "lane": here.path().prepare.args[0], "homes": {}, "lend": print, "smallest_block": 16,
        "waiter": None, "clock": print, "dropped": [], "names_of_type": {}, "prompt_fields": (),
    }  # fmt: skip
    assert hot.COMPILED.PlainStep(**parts)(None, None, None, None) is False
    for name, wrong in (
        ("lane", None),
        ("homes", ()),
        ("smallest_block", 0),
        ("prompt_fields", []),
    ):
        with pytest.raises(TypeError):
            hot.COMPILED.PlainStep(**{**parts, name: wrong})
    with pytest.raises(TypeError):
        hot.COMPILED.PlainStep(**{**parts, "dropped": 3})(None, None, None, None)


def test_threads_that_construct_and_read_at_once_get_their_own_results(here: Setting) -> None:
    here.warm()
    wrong: list[Any] = []

    def work(thread: int) -> None:
        for step in range(200):
            ids = torch.tensor([[thread], [step]])
            got = here.output(SamplerOutput(ids)).get_output().sampled_token_ids
            if got != [[thread], [step]]:
                wrong.append(got)

    in_threads(4, work)
    assert wrong == []
