"""What the virtual device promises: order, time, poison, faults."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import torch

from asyncout import DeviceMismatchError, StreamTypeError, TimingError, cuda_driver
from asyncout.transfer import copy_to_pageable
from asyncout.virtual import (
    CostProfile,
    InterleavingError,
    VirtualMachine,
    explore,
    is_poison,
    replay,
)
from asyncout.virtual.machine import LONE_COPIES
from asyncout.virtual.memory import NEW_FROM_BYTES, PAGE_BYTES

MS = 1e-3


@pytest.fixture
def vm() -> VirtualMachine:
    return VirtualMachine()


def late_tensor(vm: VirtualMachine, values: list[int], seconds: float = MS) -> torch.Tensor:
    """Give a tensor that the current stream only computes after `seconds`."""
    result = vm.empty((len(values),), torch.int64)
    vm.busy(seconds)
    result.copy_(vm.tensor(values))
    return result


# --- poison -----------------------------------------------------------------------------------


def test_a_destination_is_poison_until_somebody_waited(vm: VirtualMachine) -> None:
    host = late_tensor(vm, [1, 2]).to("cpu", non_blocking=True)
    assert is_poison(host)
    vm.synchronize()
    assert host.tolist() == [1, 2]


def test_a_copy_that_does_not_wait_for_the_kernels_reads_poison(vm: VirtualMachine) -> None:
    other = vm.stream()
    source = late_tensor(vm, [1, 2])
    vm.set_stream(other)
    host = source.to("cpu", non_blocking=True)
    other.synchronize()
    assert is_poison(host)


def test_a_source_that_is_freed_before_another_stream_read_it_reads_poison(
    vm: VirtualMachine,
) -> None:
    main, copy = vm.current_stream(), vm.stream()
    source = late_tensor(vm, [1, 2])
    copy.wait_stream(main)
    vm.set_stream(copy)
    host = source.to("cpu", non_blocking=True)
    del source
    vm.synchronize()
    assert is_poison(host)


def test_record_stream_protects_a_freed_source(vm: VirtualMachine) -> None:
    main, copy = vm.current_stream(), vm.stream()
    source = late_tensor(vm, [1, 2])
    copy.wait_stream(main)
    vm.set_stream(copy)
    host = source.to("cpu", non_blocking=True)
    source.record_stream(copy)
    vm.set_stream(main)
    del source
    vm.synchronize()
    assert host.tolist() == [1, 2]


def test_freeing_on_the_stream_that_used_it_is_safe(vm: VirtualMachine) -> None:
    temporary = late_tensor(vm, [1, 2])
    result = temporary + 1
    del temporary
    assert result.tolist() == [2, 3]


def test_a_source_is_lost_when_it_is_freed_before_anybody_knew_of_its_copys_end(
    vm: VirtualMachine,
) -> None:
    main, copy = vm.current_stream(), vm.stream()
    source = late_tensor(vm, [1, 2])
    copy.wait_stream(main)
    vm.set_stream(copy)
    host = source.to("cpu", non_blocking=True)
    vm.host_work(5 * MS)  # the copy is over by now, though nobody has looked
    main.synchronize()  # and simulated
    del source
    vm.synchronize()
    assert is_poison(host)


# --- what is not ordered is poison, whatever the times ----------------------------------------


def copy_on(vm: VirtualMachine, stream, source: torch.Tensor) -> torch.Tensor:
    """Enqueue a copy to the host on `stream`; the stream that was current is again."""
    before = vm.current_stream()
    vm.set_stream(stream)
    host = source.to("cpu", non_blocking=True)
    vm.set_stream(before)
    return host


#: What another part of a program may do after a copy: the copy is over in virtual time, and
#: simulated, but no wait covers it.
UNRELATED = {
    "time": lambda vm, other: vm.host_work(50 * MS),
    "wait": lambda vm, other: (vm.host_work(50 * MS), other.synchronize()),
    "query": lambda vm, other: (vm.host_work(50 * MS), other.query()),
    "event": lambda vm, other: (vm.host_work(50 * MS), other.record_event().synchronize()),
    "pageable": lambda vm, other: (vm.set_stream(other), vm.tensor([1]).cpu()),
    "late kernel": lambda vm, other: (vm.busy(50 * MS, other), other.synchronize()),
}
unrelated = pytest.mark.parametrize("then", UNRELATED.values(), ids=UNRELATED)


@unrelated
def test_a_reader_that_never_waited_reads_poison_whoever_else_waited(vm, then) -> None:
    other = vm.stream()
    host = vm.tensor([1, 2]).to("cpu", non_blocking=True)
    then(vm, other)
    assert is_poison(host)
    vm.default_stream().synchronize()
    assert host.tolist() == [1, 2]


def test_every_way_to_learn_of_a_copys_end_brings_its_values(vm: VirtualMachine) -> None:
    copy, other = vm.stream(), vm.stream()

    def by_query(ask) -> None:
        assert not ask()
        vm.host_work(50 * MS)
        assert ask()

    def by_query_of_an_event() -> None:
        event = copy.record_event()
        by_query(event.query)

    def through_another_stream() -> None:
        other.wait_stream(copy)
        other.synchronize()

    def by_a_copy_that_holds_the_host() -> None:
        copy_on(vm, other, late_tensor(vm, [1]))
        other.wait_event(copy.record_event())
        vm.set_stream(other)
        vm.tensor([1]).cpu()
        vm.set_stream(vm.default_stream())

    ways = [
        copy.synchronize,
        vm.synchronize,
        lambda: copy.record_event().synchronize(),
        lambda: by_query(copy.query),
        by_query_of_an_event,
        through_another_stream,
        by_a_copy_that_holds_the_host,
    ]
    for learn in ways:
        source = late_tensor(vm, [1, 2])
        copy.wait_stream(vm.current_stream())
        host = copy_on(vm, copy, source)
        assert is_poison(host)
        learn()
        assert host.tolist() == [1, 2]


def test_a_wait_that_fails_brings_nothing(vm: VirtualMachine) -> None:
    host = vm.tensor([1]).to("cpu", non_blocking=True)
    event = vm.current_stream().record_event()
    vm.host_work(50 * MS)
    vm.fail_next("synchronize", OSError("planted"))
    with pytest.raises(OSError, match="planted"):
        event.synchronize()
    assert is_poison(host)
    event.synchronize()
    assert host.tolist() == [1]


def test_a_wait_by_one_thread_counts_for_all(vm: VirtualMachine) -> None:
    host = vm.tensor([1]).to("cpu", non_blocking=True)
    thread = threading.Thread(target=vm.synchronize)
    thread.start()
    thread.join()
    assert host.tolist() == [1]


def test_an_event_recorded_again_covers_only_what_was_waited_for(vm: VirtualMachine) -> None:
    other = vm.stream()
    event = vm.new_event()
    event.record(other)
    source = vm.tensor([1])
    host = copy_on(vm, other, source)
    vm.host_work(50 * MS)
    event.synchronize()
    assert is_poison(host)
    event.record(other)
    event.synchronize()
    assert host.tolist() == [1]


@unrelated
@pytest.mark.guards(
    "asyncout/virtual/machine.py", "uses.add(Use(op, None, writes=True))", only="[wait]"
)
@pytest.mark.guards("asyncout/virtual/machine.py", "tensor.memory.uses.add(use)", only="[wait]")
@pytest.mark.guards("asyncout/virtual/order.py", "earlier.races = True", only="[wait]")
def test_a_source_freed_with_nothing_that_orders_it_reads_poison(vm, then) -> None:
    copy, other = vm.stream(), vm.stream()
    source = vm.tensor([1, 2])
    host = copy_on(vm, copy, source)
    then(vm, other)
    del source
    copy.synchronize()
    assert is_poison(host)


def test_what_was_computed_from_a_lost_source_is_lost_too(vm: VirtualMachine) -> None:
    side, other = vm.stream(), vm.stream()
    source = vm.tensor([1, 2])
    vm.set_stream(side)
    result = (source * 2).view(2, 1)
    host = result.to("cpu", non_blocking=True)
    strided = source[::2].to("cpu", non_blocking=True)
    vm.host_work(50 * MS)
    other.synchronize()
    del source
    vm.synchronize()
    assert is_poison(host)
    assert is_poison(strided)
    assert is_poison(result.cpu())


@pytest.mark.guards(
    "asyncout/virtual/engine.py", "clock = joined(clock, other.known())", only="None-stream"
)
@pytest.mark.parametrize("order", ["event", "query", "stream", "record_stream", "kept", "through"])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_source_is_read_right_when_something_orders_its_freeing(order: str, seed) -> None:
    vm = VirtualMachine(seed=seed)
    main, copy, other = vm.current_stream(), vm.stream(), vm.stream()
    source = late_tensor(vm, [1, 2])
    copy.wait_stream(main)
    host = copy_on(vm, copy, source)
    event = copy.record_event()
    if order == "event":
        event.synchronize()
    elif order == "query":
        while not event.query():
            vm.host_work(MS)
    elif order == "stream":
        main.wait_event(event)
    elif order == "record_stream":
        source.record_stream(copy)
    elif order == "through":
        other.wait_event(event)
        main.wait_stream(other)
    kept = source if order == "kept" else None
    del source
    vm.empty((2,), torch.int64).fill_(-7)
    vm.synchronize()
    assert host.tolist() == [1, 2]
    del kept


@pytest.mark.guards("asyncout/virtual/engine.py", "clock, self._host = joined(clock, host), host")
def test_the_hosts_wait_orders_all_that_it_enqueues_later(vm: VirtualMachine) -> None:
    copy = vm.stream()
    source = late_tensor(vm, [1, 2])
    vm.current_stream().synchronize()
    host = copy_on(vm, copy, source)
    copy.synchronize()
    assert host.tolist() == [1, 2]


def test_of_a_batch_only_the_lost_source_is_poison(vm: VirtualMachine) -> None:
    class Block:
        memory = vm.empty_host((64,), torch.uint8)

    copy = vm.stream()
    kept, lost = vm.tensor([1, 2]), vm.tensor([3, 4])
    vm.block_copier(copy)([lost, kept], [16, 16], [0, 16], Block)
    vm.host_work(50 * MS)
    del lost
    copy.synchronize()
    assert is_poison(Block.memory[:16])
    assert Block.memory[16:32].view(torch.int64).tolist() == [1, 2]


@unrelated
@pytest.mark.guards("asyncout/virtual/order.py", "later.races = True", only="[time]")
def test_a_copy_that_no_wait_orders_behind_its_kernel_reads_poison_though_it_ran_later(
    vm, then
) -> None:
    copy, other = vm.stream(), vm.stream()
    source = late_tensor(vm, [1, 2])
    vm.host_work(50 * MS)
    then(vm, other)
    host = copy_on(vm, copy, source)
    vm.synchronize()
    assert is_poison(host)


@unrelated
def test_a_kernel_that_overwrites_what_an_unordered_copy_reads_spoils_it(vm, then) -> None:
    copy, other = vm.stream(), vm.stream()
    static = vm.tensor([1, 2])
    host = copy_on(vm, copy, static)
    then(vm, other)
    vm.set_stream(vm.default_stream())
    static.fill_(-5)
    copy.synchronize()
    assert is_poison(host)
    copy.wait_stream(vm.current_stream())
    ordered = copy_on(vm, copy, static)
    vm.current_stream().wait_stream(copy)
    static.fill_(6)
    vm.synchronize()
    assert ordered.tolist() == [-5, -5]
    assert static.tolist() == [6, 6]


def test_unordered_uses_of_parts_that_share_no_byte_are_right(vm: VirtualMachine) -> None:
    other = vm.stream()
    both = vm.tensor([[1, 2], [3, 4]])
    host = copy_on(vm, other, both[:, 0].t())
    both[:, 1].fill_(9)
    vm.synchronize()
    assert host.tolist() == [1, 3]
    assert both.tolist() == [[1, 9], [3, 9]]
    host = copy_on(vm, other, both[1])
    both[:, 1].fill_(7)
    vm.synchronize()
    assert is_poison(host)


def test_a_value_may_go_through_host_memory_in_stream_order(vm: VirtualMachine) -> None:
    bounce = vm.empty_host((2,), torch.int64)
    target = vm.empty((2,), torch.int64)
    bounce.copy_(late_tensor(vm, [1, 2]), non_blocking=True)
    target.copy_(bounce, non_blocking=True)
    bounce.copy_(vm.tensor([3, 4]), non_blocking=True)
    assert is_poison(bounce)
    assert target.tolist() == [1, 2]


@unrelated
@pytest.mark.guards("asyncout/virtual/machine.py", "poison(target)", nth=2, only="[wait]")
def test_a_buffer_handed_to_the_next_copy_before_it_was_read_is_poison(vm, then) -> None:
    other = vm.stream()
    buffer = vm.empty_host((2,), torch.int64)
    buffer.copy_(vm.tensor([1, 2]), non_blocking=True)
    first = vm.current_stream().record_event()
    source = late_tensor(vm, [3, 4])
    buffer.copy_(source, non_blocking=True)
    second = vm.current_stream().record_event()
    then(vm, other)
    first.synchronize()
    assert is_poison(buffer)
    second.synchronize()
    assert buffer.tolist() == [3, 4]
    vm.set_stream(vm.default_stream())
    buffer.copy_(vm.tensor([5, 6]), non_blocking=True)
    vm.synchronize()
    assert buffer.tolist() == [5, 6]


def test_two_unordered_copies_into_one_buffer_spoil_it_and_disjoint_ones_do_not(
    vm: VirtualMachine,
) -> None:
    other = vm.stream()
    buffer = vm.empty_host((2, 2), torch.int64)
    one, two = vm.tensor([1, 2]), vm.tensor([3, 4])

    def copy_both(first: torch.Tensor, second: torch.Tensor) -> None:
        first.copy_(one, non_blocking=True)
        vm.set_stream(other)
        second.copy_(two, non_blocking=True)
        vm.set_stream(vm.default_stream())
        vm.synchronize()

    copy_both(buffer[0], buffer[1])
    assert buffer.tolist() == [[1, 2], [3, 4]]
    copy_both(buffer[0], buffer[0])
    assert is_poison(buffer[0])
    assert buffer[1].tolist() == [3, 4]


def test_a_shape_that_depends_on_values_waits_for_its_own_stream_only(vm: VirtualMachine) -> None:
    other = vm.stream()
    host = copy_on(vm, other, vm.tensor([5]))
    source = late_tensor(vm, [7, 1])
    assert source[source > 3].tolist() == [7]
    assert is_poison(host)


def test_a_loop_whose_waits_cover_its_work_keeps_nothing_of_it(vm: VirtualMachine) -> None:
    copy = vm.stream()
    weights = vm.tensor([1, 2])
    for _ in range(500):
        copy.wait_stream(vm.current_stream())
        copy_on(vm, copy, weights)
        vm.current_stream().wait_event(copy.record_event())
        weights.add_(1)
        copy.synchronize()
    assert len(vm._host._origins) <= 2
    assert all(len(queue.unseen) <= 2 for queue in vm._simulation.queues)
    assert all(len(uses) <= 64 for uses in weights.memory.uses._by_stream.values())


@pytest.mark.parametrize("wrong", ["no wait", "freed"])
def test_a_wrong_program_fails_in_every_order(wrong: str) -> None:
    for seed in range(30):
        vm = VirtualMachine(seed=seed)
        main, copy = vm.stream(), vm.stream()
        vm.set_stream(main)
        source = late_tensor(vm, [5])
        if wrong != "no wait":
            copy.wait_stream(main)
        host = copy_on(vm, copy, source)
        if wrong == "freed":
            del source
        vm.synchronize()
        assert is_poison(host)


def test_a_view_keeps_the_memory_of_its_tensor(vm: VirtualMachine) -> None:
    view = vm.tensor([[1, 2], [3, 4]])[1]
    gc.collect()
    vm.synchronize()
    assert view.tolist() == [3, 4]


# --- time -------------------------------------------------------------------------------------


def test_one_stream_adds_up_and_two_overlap(vm: VirtualMachine) -> None:
    size = 55_200_000  # a millisecond at the profile's bandwidth
    source = vm.empty((size,), torch.uint8)
    vm.moves_up_to = 0

    def run(copy_stream) -> float:
        vm.synchronize()
        begin = vm.now
        main = vm.current_stream()
        vm.busy(2 * MS, main)
        vm.set_stream(copy_stream)
        host = source.to("cpu", non_blocking=True)
        vm.set_stream(main)
        vm.synchronize()
        del host
        return vm.now - begin

    assert run(vm.stream()) == pytest.approx(2 * MS, rel=0.02)
    assert run(vm.current_stream()) == pytest.approx(3 * MS, rel=0.02)


def test_kernels_share_the_processors_and_both_copy_directions_overlap(
    vm: VirtualMachine,
) -> None:
    a, b = vm.stream(), vm.stream()
    vm.busy(MS, a)
    vm.busy(MS, b)
    vm.synchronize()
    assert vm.now == pytest.approx(2 * MS, rel=0.02)
    ends = [(r.start, r.end) for r in vm.history if r.op == "kernel"]
    assert ends[0][1] <= ends[1][0]


def test_a_copy_that_has_to_wait_holds_up_no_ready_one(vm: VirtualMachine) -> None:
    slow, quick = vm.stream(), vm.stream()
    source = vm.tensor([1, 2, 3])
    vm.busy(10 * MS, slow)
    vm.set_stream(slow)
    late = source.to("cpu", non_blocking=True)
    vm.set_stream(quick)
    soon = source.to("cpu", non_blocking=True)
    quick.synchronize()
    assert vm.now < MS
    assert soon.tolist() == [1, 2, 3]
    assert is_poison(late)


@pytest.mark.parametrize("backlog_is_older", [True, False])
def test_an_engine_serves_in_the_order_of_becoming_ready(
    vm: VirtualMachine, backlog_is_older: bool
) -> None:
    streams = [vm.stream(), vm.stream()]
    backlog, short = streams if backlog_is_older else reversed(streams)
    for index in range(4):
        vm.kernel(MS, backlog, name=f"long{index}")
    vm.kernel(MS / 10, short, name="short")
    vm.synchronize()
    # long1 became ready when long0 ended, later than the short one.
    order = [r.name for r in vm.history if r.op == "kernel"]
    assert order == ["long0", "short", "long1", "long2", "long3"]


@pytest.mark.parametrize("pauses", [False, True])
def test_a_copy_engine_stays_with_a_stream_while_that_has_more_for_it(
    vm: VirtualMachine, pauses: bool
) -> None:
    backlog, other = vm.stream(), vm.stream()
    big, small = vm.empty((5_520_000,), torch.uint8), vm.tensor([1])
    vm.set_stream(backlog)
    held = [big.to("cpu", non_blocking=True)]
    if pauses:
        vm.busy(MS / 1000, backlog)
    held += [big.to("cpu", non_blocking=True) for _ in range(2)]
    vm.busy(MS / 20, other)  # ready in the middle of the first copy
    vm.set_stream(other)
    held.append(small.to("cpu", non_blocking=True))
    vm.synchronize()
    sizes = [r.num_bytes for r in vm.history if r.op == "d2h"]
    assert sizes.index(small.nbytes) == (1 if pauses else 3)


def test_of_what_became_ready_together_an_engine_serves_the_first_enqueued(
    vm: VirtualMachine,
) -> None:
    main, *others = (vm.stream() for _ in range(4))
    vm.busy(MS, main)
    for stream in others:
        stream.wait_stream(main)
    for index in (2, 0, 1):
        vm.kernel(MS, others[index], name=str(index))
    vm.synchronize()
    assert [r.name for r in vm.history if r.op == "kernel"] == ["busy", "2", "0", "1"]


@pytest.mark.parametrize("holds", [False, True])
def test_a_batch_into_pageable_memory_holds_the_host_where_the_profile_says_so(holds: bool) -> None:
    vm = VirtualMachine(VirtualMachine().profile.replace(pageable_batch_holds=holds))
    arrived, _sources = enqueue_batch(vm, LONE_COPIES + 1)
    assert (vm.now >= MS) == holds
    assert (arrived.tolist() == [0, 1, 2]) == holds
    vm.synchronize()
    assert arrived.tolist() == [0, 1, 2]


@pytest.mark.parametrize("copies", range(1, LONE_COPIES + 2))
@pytest.mark.parametrize("pinned", [False, True])
def test_as_few_copies_as_cuda_makes_one_by_one_hold_the_host(copies: int, pinned: bool) -> None:
    vm = VirtualMachine()
    assert not vm.profile.pageable_batch_holds
    arrived, _sources = enqueue_batch(vm, copies, pinned)
    holds = copies <= LONE_COPIES and not pinned
    assert (vm.now >= MS) == holds
    assert (arrived.tolist() == list(range(copies))) == holds
    assert LONE_COPIES == cuda_driver.FEW_COPIES


def enqueue_batch(
    vm: VirtualMachine, copies: int, pinned: bool = False
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Enqueue a batch behind a kernel of 1 ms; give where its numbers will be, and its sources."""
    stream, memory = vm.stream(), vm.empty_host((8 * copies,), torch.uint8, pinned)
    sources = [vm.tensor([number]) for number in range(copies)]
    vm.busy(MS, stream)
    vm.copy_into_block(stream, sources, list(range(0, 8 * copies, 8)), memory)
    return memory.view(torch.int64), sources


def copy_seconds(vm: VirtualMachine) -> list[float]:
    vm.synchronize()
    return [record.end - record.start for record in vm.history if record.op == "d2h"]


@pytest.mark.parametrize("copies", [1, 2, 3, 48])
@pytest.mark.parametrize("pinned", [False, True])
def test_pageable_copies_cost_more_each_as_the_profile_says(copies: int, pinned: bool) -> None:
    plain = VirtualMachine().profile
    own = plain.replace(pageable_copy_s=7e-6, pageable_batch_copy_s=50e-6)
    taken = []
    for profile in (plain, own):
        vm = VirtualMachine(profile)
        enqueue_batch(vm, copies, pinned)
        taken.append(copy_seconds(vm))
    more = [b - a for a, b in zip(*taken, strict=True)]
    if pinned:
        assert more == [0.0]
    elif copies <= LONE_COPIES:
        assert more == pytest.approx([7e-6] * copies)
    else:
        assert more == pytest.approx([copies * 50e-6])


def taken_by(profile: CostProfile, program: Callable[[VirtualMachine], object]) -> list[float]:
    """Give what a program's copies take, none of which moves a byte."""
    vm = VirtualMachine(profile)
    vm.moves_up_to = 0
    program(vm)
    return copy_seconds(vm)


def of_own(vm: VirtualMachine, num_bytes: int) -> None:
    for _ in range(2):
        vm.empty((num_bytes,), torch.uint8).cpu()


def into_ordinary(vm: VirtualMachine, num_bytes: int) -> None:
    copy_to_pageable(vm.empty((num_bytes,), torch.uint8))


def into_pinned(vm: VirtualMachine, num_bytes: int) -> None:
    vm.empty((num_bytes,), torch.uint8).to("cpu", non_blocking=True)


def into_block_twice(vm: VirtualMachine, num_bytes: int) -> None:
    memory, size = vm.empty_host((num_bytes,), torch.uint8, False), num_bytes // 4
    sources = [vm.empty((size,), torch.uint8) for _ in range(4)]
    for _ in range(2):
        vm.copy_into_block(vm.stream(), sources, list(range(0, num_bytes, size)), memory)


@pytest.mark.parametrize(
    ("program", "are_new"),
    [(of_own, [1, 1]), (into_ordinary, [1]), (into_pinned, [0]), (into_block_twice, [1, 0])],
)
@pytest.mark.parametrize("num_bytes", [NEW_FROM_BYTES // 2, NEW_FROM_BYTES])
def test_pages_are_made_for_large_pageable_memory_when_it_is_new(
    program, are_new, num_bytes: int
) -> None:
    plain = VirtualMachine().profile
    copies = partial(program, num_bytes=num_bytes)
    before, after = (taken_by(plain.replace(new_page_s=cost), copies) for cost in (0.0, 2e-6))
    pages = num_bytes / PAGE_BYTES if num_bytes >= NEW_FROM_BYTES else 0
    more = [b - a for a, b in zip(before, after, strict=True)]
    assert more == pytest.approx([pages * 2e-6 * new for new in are_new], abs=1e-12)


def test_pageable_memory_holds_the_host_and_pinned_does_not(vm: VirtualMachine) -> None:
    source = vm.tensor([5])
    vm.busy(3 * MS)
    source.to("cpu", non_blocking=True)
    assert vm.now < MS
    ordinary = torch.empty(1, dtype=torch.int64)
    ordinary.copy_(source, non_blocking=True)
    assert vm.now > 3 * MS
    assert ordinary.tolist() == [5]


def test_sleeping_and_spinning_waits_cost_what_the_profile_says(vm: VirtualMachine) -> None:
    for blocking, late, burnt in (
        (True, vm.profile.block_wake_s, vm.profile.block_cpu_s),
        (False, vm.profile.spin_wake_s, 2 * MS),
    ):
        event = vm.new_event(blocking=blocking)
        vm.busy(2 * MS)
        event.record()
        cpu = vm.cpu_time
        event.synchronize()
        assert vm.now - event.op.end == pytest.approx(late)
        assert vm.cpu_time - cpu == pytest.approx(burnt, rel=0.05)


@pytest.mark.parametrize("ask", ["cpu", "item", "tolist", "bool_index"])
def test_whatever_needs_a_value_waits_for_it(vm: VirtualMachine, ask: str) -> None:
    source = late_tensor(vm, [7])
    asked = {
        "cpu": lambda: source.cpu().tolist(),
        "item": lambda: [source.item()],
        "tolist": source.tolist,
        "bool_index": lambda: source[source > 3].tolist(),
    }
    assert asked[ask]() == [7]
    assert vm.now > MS


# --- events and streams -----------------------------------------------------------------------


def test_an_event_that_is_recorded_again_moves_for_later_waiters_only(vm: VirtualMachine) -> None:
    main, early, late = vm.current_stream(), vm.stream(), vm.stream()
    event = vm.new_event()
    vm.busy(MS)
    event.record(main)
    early.wait_event(event)
    vm.busy(5 * MS)
    event.record(main)
    late.wait_event(event)
    early.synchronize()
    assert vm.now < 2 * MS
    late.synchronize()
    assert vm.now > 6 * MS


def test_an_event_that_was_never_recorded_holds_up_nobody(vm: VirtualMachine) -> None:
    event = vm.new_event()
    assert event.query()
    event.synchronize()
    vm.current_stream().wait_event(event)
    vm.synchronize()
    assert vm.now < MS


def test_a_query_never_runs_ahead_of_the_hosts_clock(vm: VirtualMachine) -> None:
    event = vm.new_event()
    vm.busy(MS)
    event.record()
    assert not event.query()
    vm.host_work(2 * MS)
    assert event.query()


def test_elapsed_time_is_the_devices_and_refuses_what_it_cannot_know(vm: VirtualMachine) -> None:
    start, end = vm.new_event(timing=True), vm.new_event(timing=True)
    with pytest.raises(TimingError, match="never recorded"):
        start.elapsed_time(end)
    start.record()
    vm.busy(3 * MS)
    end.record()
    with pytest.raises(TimingError, match="has not passed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(3, rel=0.01)
    with pytest.raises(TimingError, match="without timing"):
        start.elapsed_time(vm.new_event())


def test_streams_are_current_per_thread_and_of_one_machine(vm: VirtualMachine) -> None:
    vm.set_stream(vm.stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(vm.current_stream()))
    thread.start()
    thread.join()
    assert seen == [vm.default_stream()]
    with pytest.raises(StreamTypeError, match="this virtual machine"):
        vm.set_stream(VirtualMachine().stream())


def test_a_stream_that_waits_for_itself_through_another_is_a_deadlock_and_said_so() -> None:
    vm = VirtualMachine()
    a, b = vm.stream(), vm.stream()
    first, second = vm.new_event(), vm.new_event()
    vm.busy(MS, a)
    first.record(a)
    b.wait_event(first)
    second.record(b)
    # Put an operation in front of what it waits for, as no real program could.
    a.queue.waiting[0].after = (second.op,)
    with pytest.raises(RuntimeError, match="deadlock"):
        vm.synchronize()


# --- tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        torch.tensor([0.5, 1.5], dtype=torch.bfloat16),
        torch.empty((0, 3)),
        torch.arange(6).view(2, 3),
        torch.tensor([True, False]),
    ],
    ids=["bf16", "empty", "matrix", "bool"],
)
def test_ordinary_tensors_travel_both_ways(vm: VirtualMachine, host: torch.Tensor) -> None:
    device = vm.empty(host.shape, host.dtype)
    device.copy_(host)
    assert torch.equal(device.cpu(), host)
    if host.ndim == 2:
        assert torch.equal(device.t().to("cpu", non_blocking=False), host.t())


def test_a_strided_source_is_packed_by_a_kernel_first(vm: VirtualMachine) -> None:
    source = vm.tensor([[1, 2], [3, 4]]).t()
    host = source.to("cpu", non_blocking=True)
    vm.synchronize()
    assert host.tolist() == [[1, 3], [2, 4]]
    assert [r.name for r in vm.history if r.op == "kernel"] == ["contiguous"]


def test_operations_compute_what_torch_computes(vm: VirtualMachine) -> None:
    a, b = vm.tensor([1.0, 4.0]), vm.tensor([2.0, 2.0])
    targets = [vm.empty((2,)), vm.empty((2,))]
    torch._foreach_copy_(targets, [a, b])
    assert (a * b + 1).tolist() == [3.0, 9.0]
    assert [t.tolist() for t in targets] == [[1.0, 4.0], [2.0, 2.0]]
    a.fill_(7)
    assert a.max().item() == 7


def test_pinned_memory_is_known_through_views_and_forgotten_when_gone(vm: VirtualMachine) -> None:
    host = vm.empty_host((4,), torch.int32)
    assert vm.is_pinned(host[1:])
    assert not vm.is_pinned(torch.empty(4))
    assert not VirtualMachine(pinned_available=False).is_pinned(host)
    del host
    assert not vm._host._pinned


def test_tensors_and_streams_live_on_their_own_devices() -> None:
    vm = VirtualMachine(devices=2)
    assert vm.stream(1).device != vm.stream(0).device
    tensor = vm.tensor([1], device=1)
    assert tensor.device == vm.stream(1).device
    assert tensor.tolist() == [1]


# --- objects of another machine ---------------------------------------------------------------


def foreign_uses() -> dict:
    """Give each call that could be handed an object of another machine, by name."""

    class Block:
        def __init__(self, vm: VirtualMachine) -> None:
            self.memory = vm.empty_host((64,), torch.uint8)

    def mine(vm):
        return vm.tensor([1, 2])

    return {
        "wait_stream": lambda vm, other: vm.default_stream().wait_stream(other.stream()),
        "wait_event": lambda vm, other: vm.default_stream().wait_event(other.new_event()),
        "record_event": lambda vm, other: vm.default_stream().record_event(other.new_event()),
        "record": lambda vm, other: vm.new_event().record(other.stream()),
        "wait": lambda vm, other: vm.new_event().wait(other.stream()),
        "elapsed_time": lambda vm, other: vm.new_event(timing=True).elapsed_time(
            other.new_event(timing=True)
        ),
        "set_stream": lambda vm, other: vm.set_stream(other.stream()),
        "kernel": lambda vm, other: vm.kernel(MS, other.stream()),
        "busy": lambda vm, other: vm.busy(MS, other.stream()),
        "copy_": lambda vm, other: mine(vm).copy_(mine(other)),
        "foreach_copy": lambda vm, other: torch._foreach_copy_(
            [mine(vm), mine(vm)], [mine(vm), mine(other)]
        ),
        "add": lambda vm, other: mine(vm) + mine(other),
        "cat": lambda vm, other: torch.cat([mine(vm), mine(other)]),
        "add_": lambda vm, other: mine(vm).add_(mine(other)),
        "out": lambda vm, other: torch.add(mine(vm), 1, out=mine(other)),
        "index": lambda vm, other: mine(vm)[other.tensor([True, False])],
        "copy_to_host": lambda vm, other: vm.copy_to_host(mine(other), torch.int64, True),
        "copy_into_host": lambda vm, other: vm.copy_into_host(
            torch.empty(2, dtype=torch.int64), mine(other), True
        ),
        "copy_to_device": lambda vm, other: vm.copy_to_device(
            mine(other), torch.tensor([1, 2]), True
        ),
        "block_copier": lambda vm, other: vm.block_copier(other.stream()),
        "block sources": lambda vm, other: vm.block_copier(vm.default_stream())(
            [mine(vm), mine(other)], [16, 16], [0, 16], Block(vm)
        ),
        "record_stream": lambda vm, other: mine(vm).record_stream(other.stream()),
        "record_stream of a tensor": lambda vm, other: vm.record_stream(
            mine(other), vm.default_stream()
        ),
        "follower main": lambda vm, other: vm.follower(other.stream(), vm.default_stream()),
        "follower copy": lambda vm, other: vm.follower(vm.default_stream(), other.stream()),
    }


FOREIGN_USES = foreign_uses()


@pytest.mark.parametrize("use", FOREIGN_USES.values(), ids=FOREIGN_USES)
def test_an_object_of_another_machine_is_refused_and_nothing_is_left_half_done(
    vm: VirtualMachine, use
) -> None:
    other = VirtualMachine()
    with pytest.raises((StreamTypeError, DeviceMismatchError), match=r"another one.*; ma"):
        use(vm, other)
    assert vm.current_stream() is vm.default_stream()
    for machine in (vm, other):
        machine.synchronize()
        # What was made for the call, and went again, is all that there may be.
        assert {record.op for record in machine.history} <= {"free"}


def test_what_is_no_stream_event_or_tensor_at_all_is_refused_by_its_type(
    vm: VirtualMachine,
) -> None:
    stream = vm.default_stream()
    with pytest.raises(StreamTypeError, match=r"stream of this virtual machine.*of type int"):
        stream.wait_stream(3)
    with pytest.raises(StreamTypeError, match=r"event of this virtual machine.*of type NoneType"):
        stream.wait_event(None)
    with pytest.raises(DeviceMismatchError, match=r"on this virtual machine, got tensor\(.*none"):
        vm.copy_into_block(stream, [torch.ones(1)], [0], vm.empty_host((8,), torch.uint8))
    now = vm.now
    vm.synchronize()
    assert not vm.history
    assert now < MS


# --- faults, programs, orders -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copy", "record", "synchronize", "allocate"])
def test_a_planted_fault_is_raised_once(vm: VirtualMachine, kind: str) -> None:
    source, event = vm.tensor([1]), vm.new_event()

    def step() -> None:
        source.to("cpu", non_blocking=True)
        event.record()
        event.synchronize()

    vm.fail_next(kind, OSError("planted"))
    with pytest.raises(OSError, match="planted"):
        step()
    step()
    with pytest.raises(ValueError, match="no fault kind 'coffee'"):
        vm.fail_next("coffee", OSError())


def test_a_lost_device_fails_every_wait(vm: VirtualMachine) -> None:
    event = vm.new_event()
    event.record()
    vm.fail_device(RuntimeError("lost"))
    for ask in (event.synchronize, event.query, vm.current_stream().synchronize):
        with pytest.raises(RuntimeError, match="lost"):
            ask()


def test_a_long_loop_keeps_nothing(vm: VirtualMachine) -> None:
    for step in range(3000):
        event = vm.new_event()
        late_tensor(vm, [step], 1e-5).to("cpu", non_blocking=True)
        event.record()
        event.synchronize()
    assert all(len(queue.waiting) <= 4 for queue in vm._simulation.queues)


def small_program(vm: VirtualMachine) -> None:
    main, copy = vm.stream(), vm.stream()
    done = vm.new_event(blocking=True)
    vm.kernel(MS, main, name="forward")
    done.record(main)
    copy.wait_event(done)
    vm.kernel(MS, copy, name="pack")
    copy.synchronize()


def run_again(program: str) -> VirtualMachine:
    namespace: dict[str, object] = {"VirtualMachine": VirtualMachine, "torch": torch}
    exec(program, namespace)
    again = namespace["vm"]
    assert isinstance(again, VirtualMachine)
    return again


def tensor_program(vm: VirtualMachine) -> None:
    """Do of each kind of call something, with tensors that live, are viewed, and die."""
    main, copy = vm.stream(), vm.stream()
    vm.set_stream(main)
    a = vm.tensor([[1.5, float("nan")], [float("-inf"), 4.0]])
    flags = vm.tensor([True, False])
    b = vm.empty((2, 2)).copy_(a) * 2 + torch.ones(2, 2)
    values, places = b.max(dim=1)
    parts = torch.cat([a.t(), b]).split(2)
    parts[0].mul_(3).add_(parts[1], alpha=2)
    torch._foreach_add_(list(parts), 1.0)
    chosen = b[flags]
    cast = chosen.to(torch.bfloat16)[:, ::2]
    del chosen
    done = vm.new_event(blocking=True, timing=True)
    done.record()
    copy.wait_event(done)
    vm.set_stream(copy)
    hosts = [t.to("cpu", non_blocking=True) for t in (a, b.t(), values, places, cast)]
    a.record_stream(copy)
    vm.set_stream(main)
    del a, values, parts
    block = vm.empty_host((256,), torch.uint8)
    vm.copy_into_block(copy, [b, flags], [0, 64], block)
    vm.busy(MS)
    late = copy.record_event(vm.new_event())
    main.wait_event(late)
    busy = main.record_event()
    assert not busy.query()
    vm.host_work(MS)
    vm.sleep(MS)
    assert busy.query()
    end = vm.new_event(timing=True)
    copy.record_event(end)
    end.synchronize()
    assert done.elapsed_time(end) > 0
    block[128:144].view(torch.float32).fill_(2.5)
    b.copy_(block[128:144].view(torch.float32).view(2, 2), non_blocking=True)
    b.copy_(torch.arange(4.0).view(2, 2).t())
    torch.empty(2, 2).copy_(b, non_blocking=True)
    big = vm.tensor(torch.arange(3000).view(2, 1500)).to(torch.int16)
    assert big.sum().item() == 4498500
    main.wait_stream(copy)
    vm.kernel(MS, copy, name="user's")
    del b, big
    assert not copy.query()
    copy.synchronize()
    assert hosts[3].tolist() == [1, 1]
    vm.follower(main, copy)()
    vm.synchronize()


def step_program(vm: VirtualMachine) -> None:
    from steps import ALL_POLICIES, Box

    box = Box(vm)
    for number, policy in enumerate(ALL_POLICIES):
        output = box.output([[number], [2]], logprobs=box.logprobs(2, 3), policy=policy)
        box.vm.empty((2,), torch.int64).fill_(-7)
        assert output.get_output().sampled_token_ids == [[number], [2]]
    box.output([[1]])  # dropped unread


def threaded_program(vm: VirtualMachine) -> None:
    stream = vm.stream()
    source = vm.tensor([1, 2])

    def work() -> None:
        vm.set_stream(stream)
        for _ in range(3):
            (source + 1).to("cpu", non_blocking=True)
            turn.wait()
            turn.wait()

    turn = threading.Barrier(2)
    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(3):
        turn.wait()
        (source * 2).to("cpu", non_blocking=True)
        turn.wait()
    thread.join()
    vm.synchronize()


def faulty_program(vm: VirtualMachine) -> None:
    source, event = vm.tensor([1, 2]), vm.new_event()
    for kind in ("copy", "record", "synchronize", "allocate"):
        vm.fail_next(kind, OSError("planted"))
        for call in (lambda: source.to("cpu", non_blocking=True), event.record, event.synchronize):
            with suppress(OSError):
                call()
    three = vm.tensor([1, 2, 3])
    with pytest.raises(RuntimeError):
        source + three
    vm.fail_next("synchronize", OSError("planted"))
    with pytest.raises(OSError, match="planted"):
        three[three > 1]
    event.record()
    vm.host_work(MS)
    event.query()
    vm.fail_device(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"):
        vm.synchronize()


PROGRAMS = [small_program, tensor_program, step_program, threaded_program, faulty_program]
MACHINES = {
    "default": {},
    "two devices": {"devices": 2},
    "no pinned memory": {"pinned_available": False},
    "slow calls": {"profile": CostProfile.load().replace(call_copy_s=1e-4, machine="slow 'one'")},
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_that_is_printed_can_be_run_again(program, machine) -> None:
    if program is step_program and "pinned_available" in machine:
        pytest.skip("warns, as it should, that there is no pinned memory")
    vm = VirtualMachine(**machine)
    program(vm)
    again = run_again(vm.program())
    assert again.history == vm.history
    assert (again.now, again.cpu_time) == (vm.now, vm.cpu_time)
    # Behind it come the objects that only went when the program's names did.
    assert again.program().startswith(vm.program())


@pytest.mark.parametrize("seed", range(5))
def test_a_seeded_program_is_run_again_in_its_order(seed: int) -> None:
    vm = VirtualMachine(seed=seed)
    step_program(vm)
    vm.synchronize()
    assert run_again(vm.program()).history == vm.history


def test_a_printed_program_moves_the_same_values(vm: VirtualMachine) -> None:
    a = vm.tensor([[1.0, 2.0], [3.0, float("inf")]])
    host = (a.t() @ a).to("cpu", non_blocking=True)
    vm.synchronize()
    namespace: dict[str, object] = {"VirtualMachine": VirtualMachine, "torch": torch}
    exec(vm.program(), namespace)
    (name,) = [name for name in namespace if name.startswith("h")]
    assert torch.equal(namespace[name], host)


def test_a_program_that_has_lost_its_beginning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncout.virtual.program.HISTORY_LENGTH", 10)
    vm = VirtualMachine()
    for _ in range(9):
        vm.host_work(MS)
    assert "# Only" not in vm.program()
    vm.host_work(MS)
    vm.host_work(MS)
    assert "# Only the last 10 calls are known." in vm.program()


def test_a_printed_program_says_where_data_is_made_up(vm: VirtualMachine) -> None:
    small, big = vm.tensor([1, 2]), vm.tensor(torch.zeros(1000))
    lines = vm.program().splitlines()
    assert [line for line in lines if "stands in" in line] == [
        line for line in lines if line.startswith(big.program_name)
    ]
    assert "[1, 2]" in next(line for line in lines if line.startswith(small.program_name))


def test_a_long_loops_program_names_a_view_once_and_forgets_its_tensors(
    vm: VirtualMachine,
) -> None:
    weights = vm.tensor([[1, 2], [3, 4]])
    for _ in range(20):
        weights[1] + 1
    program = vm.program()
    assert program.count(".select.int(") == 1
    assert program.count("del t") == 20
    assert run_again(program).history == vm.history


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> list:
        vm = VirtualMachine(seed=seed)
        streams = [vm.stream() for _ in range(3)]
        for index in range(9):
            vm.kernel(MS, streams[index % 3], name=str(index))
        vm.synchronize()
        return [r.name for r in vm.history]

    assert history(3) == history(3)
    assert len({tuple(history(seed)) for seed in range(8)}) > 1


def racing(vm: VirtualMachine, waits: bool) -> None:
    main, copy = vm.stream(), vm.stream()
    vm.set_stream(main)
    source = vm.empty((1,), torch.int64)
    source.copy_(vm.tensor([5]))
    if waits:
        copy.wait_stream(main)
    vm.set_stream(copy)
    host = source.to("cpu", non_blocking=True)
    copy.synchronize()
    assert host.tolist() == [5]


def test_exploring_finds_the_order_that_fails_and_replays_it() -> None:
    with pytest.raises(InterleavingError, match="AssertionError") as caught:
        explore(lambda vm: racing(vm, waits=False))
    vm = VirtualMachine(choose=replay(caught.value.choices))
    with pytest.raises(AssertionError):
        racing(vm, waits=False)
    assert "to_host" in caught.value.program or "d2h" in caught.value.program


@pytest.mark.parametrize("machine", [{}, {"devices": 2}], ids=["one device", "two"])
def test_the_program_of_a_failing_order_runs_again_in_that_order(machine) -> None:
    def program(vm: VirtualMachine) -> None:
        source, copy = vm.tensor([1, 2]), vm.stream()
        doubled = source * 2
        done: list[str] = []
        for name in ("a", "b"):
            vm.kernel(MS, vm.stream(), lambda name=name: done.append(name), name=name)
        copy.wait_stream(vm.current_stream())
        host = copy_on(vm, copy, doubled)
        copy.synchronize()
        assert host.tolist() == [2, 4]
        del doubled
        vm.synchronize()
        assert done == ["a", "b"]

    with pytest.raises(InterleavingError) as caught:
        explore(program, **machine)
    vm = VirtualMachine(choose=replay(caught.value.choices), **machine)
    with pytest.raises(AssertionError):
        program(vm)
    again = run_again(caught.value.program)
    assert again.history == vm.history
    kernels = [record.name for record in again.history if record.name in ("a", "b")]
    assert kernels == ["b", "a"]
    assert "\n\n" + caught.value.program in str(caught.value)


def test_exploring_runs_every_order_of_a_right_program() -> None:
    def program(vm: VirtualMachine) -> None:
        vm.busy(MS, vm.stream())  # independent of the rest: before, between or after it
        racing(vm, waits=True)

    runs, all_of_them = explore(program)
    assert all_of_them
    assert runs > 3


@pytest.mark.parametrize("copies", ["per_tensor", "batched"])
def test_an_output_is_right_in_every_order_of_its_step(copies: str) -> None:
    from steps import Box

    from asyncout import CopyPolicy

    def program(vm: VirtualMachine) -> None:
        box = Box(vm)
        output = box.output([[1], [2]], policy=CopyPolicy(copies=copies, wait="spin"))
        box.vm.empty((2,), torch.int64).fill_(-7)
        assert output.get_output().sampled_token_ids == [[1], [2]]

    runs, _ = explore(program, max_runs=400)
    assert runs > 10


def test_an_output_that_does_not_wait_for_the_main_stream_is_wrong_in_some_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from steps import Box

    from asyncout import ORIGINAL
    from asyncout.virtual import VirtualStream

    monkeypatch.setattr(VirtualStream, "wait_stream", lambda self, other: None)

    def program(vm: VirtualMachine) -> None:
        assert Box(vm).output([[1]], policy=ORIGINAL).get_output().sampled_token_ids == [[1]]

    with pytest.raises(InterleavingError):
        explore(program, max_runs=400)


# --- profiles ---------------------------------------------------------------------------------


def test_a_profile_survives_its_file(tmp_path) -> None:
    profile = CostProfile.load().replace(machine="mine", block_wake_s=1e-4)
    profile.to_json(tmp_path / "mine.json")
    assert CostProfile.load(tmp_path / "mine.json") == profile
