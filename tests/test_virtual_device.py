"""What the virtual device promises: order, time, poison, faults."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from asyncout import StreamTypeError, TimingError
from asyncout.virtual import (
    CostProfile,
    InterleavingError,
    VirtualMachine,
    explore,
    is_poison,
    replay,
)

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


def test_a_copy_engine_serves_in_the_order_of_becoming_ready(vm: VirtualMachine) -> None:
    backlog, other = vm.stream(), vm.stream()
    big, small = vm.empty((5_520_000,), torch.uint8), vm.tensor([1])
    vm.set_stream(backlog)
    held = [big.to("cpu", non_blocking=True) for _ in range(3)]
    vm.busy(MS / 20, other)  # ready in the middle of the first copy
    vm.set_stream(other)
    held.append(small.to("cpu", non_blocking=True))
    vm.synchronize()
    sizes = [r.num_bytes for r in vm.history if r.op == "d2h"]
    assert sizes == [big.nbytes, small.nbytes, big.nbytes, big.nbytes]


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


def test_a_program_that_is_printed_can_be_run_again(vm: VirtualMachine) -> None:
    small_program(vm)
    namespace: dict[str, object] = {"VirtualMachine": VirtualMachine, "torch": torch}
    exec(vm.program(), namespace)
    again = namespace["vm"]
    assert isinstance(again, VirtualMachine)
    assert [(r.op, r.name, r.stream) for r in again.history] == [
        (r.op, r.name, r.stream) for r in vm.history
    ]


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
    from asyncout.copy_path import CopyPath

    monkeypatch.setattr(CopyPath, "_wait_stream", lambda self: None)

    def program(vm: VirtualMachine) -> None:
        assert Box(vm).output([[1]], policy=ORIGINAL).get_output().sampled_token_ids == [[1]]

    with pytest.raises(InterleavingError):
        explore(program, max_runs=400)


# --- profiles ---------------------------------------------------------------------------------


def test_a_profile_survives_its_file(tmp_path) -> None:
    profile = CostProfile.load().replace(machine="mine", block_wake_s=1e-4)
    profile.to_json(tmp_path / "mine.json")
    assert CostProfile.load(tmp_path / "mine.json") == profile
