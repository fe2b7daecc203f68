"""Blocks are lent to one step at a time, and pooled events to one waiter."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Container, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
import torch
from steps import Box, in_threads

from asyncout import (
    AsyncPoolingOutput,
    CopyPolicy,
    PolicyError,
    TimingError,
    hot,
    inflight,
    landing,
)
from asyncout.copy_path import CopyPath
from asyncout.events import HybridWait, PooledWait, wait_until
from asyncout.landing import ALIGNMENT, SMALLEST_BLOCK, BlockPool, lay_out, view_of
from asyncout.prediction import RecentPast
from asyncout.transfer import BatchedTransfer

MS = 1e-3


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def pool(box: Box) -> BlockPool:
    return BlockPool(box.vm, pinned=True)


# --- blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lease_is", ["as it is here", "in Python"])
@pytest.mark.guards(
    "asyncout/landing.py",
    "lease._life = when_gone(block.home.append, block)",
    only="in Python",
)
def test_a_block_comes_back_when_its_last_view_is_gone_and_no_earlier(
    pool: BlockPool, lease_is: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lease_is == "in Python":
        monkeypatch.setattr(landing, "new_lease", landing.lease_in_python)
    lease = pool.lend(100)
    address = lease.block.address
    view = view_of(lease, 64, torch.empty(3, dtype=torch.int32))
    part = view[1:]
    array = view.numpy()[:2]
    del lease, view
    assert pool.lend(100).block.address != address
    del part
    assert pool.lend(100).block.address != address
    del array
    allocated = pool.num_bytes
    assert pool.lend(100).block.address == address
    assert pool.num_bytes == allocated


def test_a_source_that_is_resized_on_the_way_leaves_the_landing_as_it_was(
    pool: BlockPool, box: Box
) -> None:
    source = torch.arange(6).view(2, 3)
    landing = BatchedTransfer(box.vm, box.main, box.copy, pinned=True).prepare([source])
    source.resize_(1 << 20)
    assert landing.part(0).shape == (2, 3)
    assert landing.tensor(0).shape == (2, 3)


def test_pinned_bytes_are_bounded_by_what_is_lent_at_once(pool: BlockPool) -> None:
    random = np.random.default_rng(0)
    for _ in range(500):
        leases = [pool.lend(int(random.integers(1, 40_000))) for _ in range(3)]
        del leases
    sizes = [SMALLEST_BLOCK << shift for shift in range(3)]
    assert pool.num_bytes <= 3 * sum(sizes)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.bfloat16,
        torch.float64,
        torch.uint16,
        torch.complex128,
    ],
)
def test_views_have_the_shape_and_dtype_of_their_source(
    pool: BlockPool, dtype: torch.dtype
) -> None:
    like = torch.empty((2, 0) if dtype is torch.uint8 else (2, 3), dtype=dtype)
    view = view_of(pool.lend(1000), 128, like)
    assert view.shape == like.shape
    assert view.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_what_torch_conjugates_lazily_lands_conjugated(box: Box, dtype: torch.dtype) -> None:
    on_device = torch.empty(1, dtype=dtype, device="meta")
    are_plain = [lay_out([x], ALIGNMENT)[3] for x in (on_device, on_device.conj())]
    assert are_plain == [True, False]
    assert not lay_out([on_device.conj().imag], ALIGNMENT)[3]
    turned = torch.tensor([1 + 2j], dtype=dtype)
    landing = BatchedTransfer(box.vm, box.main, box.copy, pinned=True).prepare(
        [turned.conj(), turned.conj().imag]
    )
    landing.enqueue()
    assert landing.part(0).tolist() == [1 - 2j]
    assert landing.part(1).tolist() == [-2]


@pytest.mark.guards("asyncout/transfer.py", "self._lease = pool.lend(end)")
def test_results_that_are_kept_stay_while_later_steps_run(box: Box) -> None:
    # vllm issue 36013
    first = box.output([[1]], logprobs=box.logprobs(1)).get_output().logprobs
    rows = (
        AsyncPoolingOutput(
            box.runner_output(1), box.computed([[2.5]], torch.float32), [True], box.main, box.copy
        )
        .get_output()
        .pooler_output
    )
    for _ in range(16):
        box.output([[9]], logprobs=box.logprobs(1, 3)).get_output()
    assert first.logprob_token_ids.tolist() == [[0, 1]]
    assert rows[0].tolist() == [2.5]


def test_a_dropped_outputs_block_is_not_lent_again_before_its_copies_are_done(box: Box) -> None:
    box.output([[1]])  # dropped; its copies run for another millisecond
    output = box.output([[2]])
    output.get_output()
    # Had both had one block, the first one's copy would have come over the second's.
    box.vm.synchronize()
    assert output.get_output().sampled_token_ids == [[2]]


def test_mixed_inputs_travel_in_one_batch(box: Box) -> None:
    parts = {
        "strided": box.computed([[1, 2], [3, 4]], torch.int32).t(),
        "empty": box.vm.empty((0, 3), torch.float32),
        "half": box.computed([0.5], torch.bfloat16),
        "flag": box.computed([True], torch.bool),
    }
    on_host = torch.tensor([7])
    results = [*parts.values(), on_host, None]
    output = AsyncPoolingOutput(box.runner_output(6), results, [True] * 6, box.main, box.copy)
    on_host.zero_()
    arrived = output.get_output().pooler_output
    assert arrived[0].tolist() == [[1, 3], [2, 4]]
    assert arrived[1].shape == (0, 3)
    assert arrived[2].dtype is torch.bfloat16
    assert arrived[2].tolist() == [0.5]
    assert arrived[3].tolist() == [True]
    assert arrived[4].tolist() == [7]
    assert arrived[5] is None
    assert sum(record.op == "d2h" for record in box.vm.history) == 1
    # What needs a kernel gets it on the main stream, not behind the next step's.
    (packing,) = [record for record in box.vm.history if record.name.startswith("clone")]
    assert packing.stream == str(box.main)


def test_outputs_may_be_constructed_and_read_in_many_threads(box: Box) -> None:
    wrong: list[object] = []

    def work(value: int) -> None:
        box.vm.set_stream(box.main)
        for step in range(20):
            expected = [[value * 100 + step]]
            output = box.output(expected)
            if output.get_output().sampled_token_ids != expected:
                wrong.append(expected)

    in_threads(4, work)
    assert wrong == []


# --- events -----------------------------------------------------------------------------------


@pytest.mark.guards("asyncout/pending_output.py", "self._path.recycle(event)")
@pytest.mark.guards("asyncout/events.py", "self.ready.append(event)")
def test_events_are_used_again_only_when_nobody_waits_for_them(box: Box) -> None:
    policy = CopyPolicy(wait="spin")
    first, second = box.output([[1]], policy=policy), box.output([[2]], policy=policy)
    assert first._event is not second._event
    event = first._event
    first.get_output()
    third = box.output([[3]], policy=policy)
    assert third._event is event
    assert second.get_output().sampled_token_ids == [[2]]
    assert third.get_output().sampled_token_ids == [[3]]


@pytest.mark.guards("asyncout/inflight.py", "recycle(event)")
def test_a_dropped_outputs_event_comes_back_when_it_has_passed(box: Box) -> None:
    policy = CopyPolicy(wait="spin")
    dropped = box.output([[1]], policy=policy)
    event = dropped._event
    del dropped
    box.vm.synchronize()
    assert box.output([[2]], policy=policy)._event is event
    gc.collect()


def test_a_stream_made_to_wait_behind_a_finished_output_waits_for_nothing(box: Box) -> None:
    output = box.output([[1]])
    output.get_output()
    before = len(box.vm.program())
    output.make_stream_wait()
    assert len(box.vm.program()) == before


def test_an_event_that_is_given_back_is_taken_again(box: Box) -> None:
    path = CopyPath(CopyPolicy(), box.main, box.copy)
    event = path.record()
    path.wait(event)
    path.recycle(event)
    # The next one is spun on, as by now something is known; the one after it is the first.
    following = [path.record() for _ in range(2)]
    assert following[0] is event or following[0].spins


@pytest.mark.guards("asyncout/events.py", "self._synchronize(event)", nth=3)
@pytest.mark.guards("asyncout/events.py", "self._free[event.spins].append(event)")
def test_values_are_right_and_events_few_while_the_hybrid_wait_learns(box: Box) -> None:
    events = set()
    for step in range(20):
        output = box.output([[step]])
        events.add(id(output._event))
        assert output.get_output().sampled_token_ids == [[step]]
    assert len(events) == 2  # one to sleep on, one to spin on


@pytest.mark.parametrize("lease_is", ["as it is here", "in Python"])
def test_an_unread_output_in_a_cycle_keeps_its_block_and_sources_until_its_copy_is_done(
    box: Box, lease_is: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector finalizes all of a cycle, also what the output's own finalizer keeps."""
    if lease_is == "in Python":
        monkeypatch.setattr(landing, "new_lease", landing.lease_in_python)
        monkeypatch.setattr(hot, "COMPILED", None)
    box = Box()  # whose paths use this kind of lease
    gc.collect()
    first = box.output([[41], [42]], policy=CopyPolicy(wait="spin"))
    address = first._landing()._lease.block.address
    first.itself = first
    kept = inflight.kept_count()
    del first
    gc.collect()
    assert inflight.kept_count() == kept + 1
    (_, (_, remains, _), _) = inflight.kept[-1]
    second = box.output([[1]], policy=CopyPolicy(wait="spin"))
    assert second._landing()._lease.block.address != address
    assert second.get_output().sampled_token_ids == [[1]]
    box.vm.synchronize()
    assert remains.part(0).tolist() == [[41], [42]]


# --- the hybrid wait --------------------------------------------------------------------------


def waits(box: Box, waiter: HybridWait, lengths: list[float]) -> list[tuple[float, float]]:
    """Give lateness and CPU time of a wait for each length."""
    results = []
    for seconds in lengths:
        box.vm.busy(seconds)
        event = waiter.record(box.main)
        cpu = box.vm.cpu_time
        waiter.wait(event)
        results.append((box.vm.now - event.op.end, box.vm.cpu_time - cpu))
        waiter.recycle(event)
    return results


@pytest.fixture
def hybrid(box: Box) -> HybridWait:
    return HybridWait(box.vm, box.main.device)


def test_the_hybrid_wait_wakes_like_spin_and_burns_a_tenth_of_it(box: Box, hybrid) -> None:
    late, burnt = zip(*waits(box, hybrid, [5 * MS] * 40)[16:], strict=True)
    profile = box.vm.profile
    assert max(late) == pytest.approx(profile.spin_wake_s, abs=2e-6)
    assert sum(burnt) / len(burnt) < 0.1 * 5 * MS


@pytest.mark.guards("asyncout/events.py", "event.record(stream)", nth=2)
def test_a_first_wait_costs_no_more_than_block(box: Box, hybrid) -> None:
    late, burnt = waits(box, hybrid, [20 * MS])[0]
    profile = box.vm.profile
    assert burnt < profile.block_cpu_s + 20e-6
    assert late == pytest.approx(profile.block_wake_s, abs=1e-6)


def test_with_jitter_it_rarely_oversleeps_and_burns_less_than_a_third(box: Box, hybrid) -> None:
    random = np.random.default_rng(3)
    lengths = (5 * MS * random.uniform(0.9, 1.1, 400)).tolist()
    late, burnt = zip(*waits(box, hybrid, lengths)[50:], strict=True)
    assert np.percentile(late, 95) < 0.35 * box.vm.profile.block_wake_s
    assert np.mean(burnt) < 0.3 * 5 * MS


@pytest.mark.parametrize("after", [1 * MS, 20 * MS])
def test_it_recovers_in_a_few_steps_when_the_step_changes(box: Box, hybrid, after: float) -> None:
    waits(box, hybrid, [5 * MS] * 30)
    late, burnt = zip(*waits(box, hybrid, [after] * 30), strict=True)
    assert max(late[8:]) < 2 * box.vm.profile.spin_wake_s
    assert max(burnt[14:]) < 0.3 * after


def late_sleeps(box: Box, monkeypatch: pytest.MonkeyPatch, lateness: Iterator[float]) -> None:
    """Let each sleep end later by the next of these."""
    sleep = box.vm.sleep
    monkeypatch.setattr(box.vm, "sleep", lambda seconds: sleep(seconds + next(lateness)))


@pytest.mark.guards("asyncout/events.py", "self._lateness.forget()")
def test_one_late_sleep_does_not_keep_it_awake_for_ever(box: Box, hybrid, monkeypatch) -> None:
    late_sleeps(box, monkeypatch, chain([0.0] * 20, [1 * MS], repeat(0.0)))
    burnt = [cpu for _, cpu in waits(box, hybrid, [1 * MS] * 60)]
    spun = [place for place, cpu in enumerate(burnt) if place > 4 and cpu > 0.5 * MS]
    assert 1 <= len(spun) <= 5


@pytest.mark.guards(
    "asyncout/events.py",
    "self._waits_to_try = min(2 * self._waits_to_try, MOST_WAITS_TO_TRY)",
)
def test_where_sleeps_stay_late_it_seldom_tries_another(box: Box, hybrid, monkeypatch) -> None:
    late_sleeps(box, monkeypatch, repeat(1 * MS))
    late = [late for late, _ in waits(box, hybrid, [1 * MS] * 600)]
    overslept = sum(one > 0.2 * MS for one in late[200:])
    assert 1 <= overslept <= 400 / 32


def test_a_longer_wait_that_can_afford_a_late_sleep_makes_no_short_one_try(
    box: Box, hybrid, monkeypatch
) -> None:
    late_sleeps(box, monkeypatch, repeat(1.5 * MS))
    lengths = [20 * MS if place % 64 == 0 else 1 * MS for place in range(64 * 12)]
    late = [late for late, _ in waits(box, hybrid, lengths)]
    overslept = sum(one > 0.2 * MS for one in late[64 * 4 :])
    assert overslept <= 8 * 64 / 32


@pytest.mark.guards("asyncout/prediction.py", "self._before = self.least")
@pytest.mark.parametrize("long", [3 * MS, 20 * MS])
def test_a_long_step_among_short_ones_makes_no_later_result_late(box: Box, hybrid, long) -> None:
    """An engine's prefill among its decode steps."""
    lengths = ([1 * MS] * 15 + [long]) * 20
    late, burnt = zip(*waits(box, hybrid, lengths), strict=True)
    assert max(late[16:]) < 2 * box.vm.profile.spin_wake_s
    short = [cpu for cpu, length in zip(burnt, lengths, strict=True) if length == 1 * MS]
    assert sum(short[32:]) / len(short[32:]) < 0.3 * MS


def pipelined(
    box: Box,
    waiter: HybridWait,
    lengths: list[float],
    read_late: Container[int] = (),
    copies: float = 0.0,
) -> list[tuple[float, float]]:
    """Wait for each length while the next runs: lateness and CPU time of each wait.

    The reader of a step in `read_late` comes when it, and half the next, are long done.
    With `copies`, each step's copies take so long on the copy stream.
    """
    results = []
    pending: deque[Any] = deque()
    for place, seconds in enumerate([*lengths, None]):
        if seconds is not None:
            box.vm.busy(seconds)
            if copies:
                box.copy.wait_stream(box.main)
                box.vm.busy(copies, box.copy)
            pending.append(waiter.record(box.copy if copies else box.main))
        if place:
            event = pending.popleft()
            if place - 1 in read_late:
                box.vm.host_work(event.op.end - box.vm.now + 0.5 * lengths[place])
            cpu = box.vm.cpu_time
            waiter.wait(event)
            results.append((box.vm.now - event.op.end, box.vm.cpu_time - cpu))
            waiter.recycle(event)
    return results


@pytest.mark.parametrize("copies", [0.0, 1.2], ids=["kernels", "copies longer than kernels"])
@pytest.mark.parametrize("length", [0.5 * MS, 5 * MS, 30 * MS])
@pytest.mark.parametrize("steps", [2, 3, 12])
def test_it_knows_a_step_behind_an_idle_device_from_one_that_queues(
    box: Box, hybrid, length: float, steps: int, copies: float
) -> None:
    """The first event of a burst passes a step after its record, the others two.

    With copies that take longer than kernels the first takes both, the others the longer.
    """
    for _ in range(20):
        pipelined(box, hybrid, [length] * steps, copies=copies * length)
        box.vm.sleep(3 * length)
    bursts = [pipelined(box, hybrid, [length] * steps, copies=copies * length) for _ in range(10)]
    late, burnt = zip(*[wait for burst in bursts for wait in burst], strict=True)
    assert max(late) < 2 * box.vm.profile.spin_wake_s
    assert sum(burnt) / len(burnt) < 0.1 * length + 20e-6


def test_a_reader_that_comes_late_teaches_no_false_times(box: Box, hybrid) -> None:
    """Behind a step that was read late nobody knows when the device began the next one."""
    length = 5 * MS
    pipelined(box, hybrid, [length] * 30)
    late, burnt = zip(*pipelined(box, hybrid, [length] * 30, read_late={5, 6, 14}), strict=True)
    on_time = [late[place] for place in range(30) if place not in (5, 6, 14)]
    assert max(on_time) < 2 * box.vm.profile.spin_wake_s
    assert sum(burnt) < 30 * 0.1 * length + 3 * length  # a step is spun behind each late one


def test_a_wait_for_what_has_passed_returns_at_once_and_teaches_nothing(box: Box, hybrid) -> None:
    waits(box, hybrid, [5 * MS] * 10)
    before = hybrid._behind_idle.mean
    event = hybrid.record(box.main)
    box.vm.host_work(50 * MS)
    hybrid.wait(event)
    assert hybrid._behind_idle.mean == before


def test_a_timed_wait_gives_up_and_can_go_on(box: Box) -> None:
    waiter = PooledWait(box.vm, box.main.device, blocking=False)
    box.vm.busy(10 * MS)
    event = waiter.record(box.main)
    assert not wait_until(box.vm, event.query, box.vm.now + MS)
    assert box.vm.now < 2 * MS
    assert wait_until(box.vm, event.query, box.vm.now + 50 * MS)
    assert box.vm.now < 12 * MS
    assert box.vm.cpu_time < MS


def test_the_recent_past_follows_a_jump_and_knows_its_spread() -> None:
    past = RecentPast()
    for value in (1.0, 1.0, 1.0):
        past.add(value)
    past.add(9.0)
    assert (past.count, past.mean) == (1, 9.0)
    random = np.random.default_rng(0)
    steady = RecentPast()
    for value in random.uniform(0.9, 1.1, 500):
        steady.add(float(value))
    assert steady.mean == pytest.approx(1.0, abs=0.05)
    assert steady.mean - steady.margin < 0.93


def test_a_pooled_cuda_event_says_that_it_takes_no_time() -> None:
    # torchcomms issue 2270
    from asyncout.cuda_driver import DriverEvent

    event = DriverEvent.__new__(DriverEvent)
    event.handle, event._has_timing = 0, False
    with pytest.raises(TimingError, match="made without timing; use"):
        event.elapsed_time(event)


def test_without_the_drivers_library_the_error_names_the_fields_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from asyncout import cuda_driver

    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-nobody-has.so")
    cuda_driver.driver.cache_clear()
    with pytest.raises(PolicyError, match=r"copies='batched' and wait='hybrid'.*per_tensor"):
        cuda_driver.driver()
    cuda_driver.driver.cache_clear()
