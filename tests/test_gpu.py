"""The library on a real GPU. ``make test-gpu`` runs these, and fails when none ran."""

from __future__ import annotations

import gc
import threading
import time

import pytest
import torch
from steps import ALL_POLICIES, policy_name

from asyncout import (
    AsyncOutput,
    CopyPolicy,
    GraphCaptureError,
    ModelRunnerOutput,
    SamplerOutput,
    StepTimingCollector,
    async_copy_to_np,
    inflight,
    stream,
)
from asyncout.events import waiter_for
from benchmarks.devices import BenchDevice
from benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.gpu

every_policy = pytest.mark.parametrize("policy", ALL_POLICIES, ids=policy_name)

#: Kernels that a test's copies wait behind: far longer than any call should take.
BEHIND_S = 50e-3

#: The same for a whole garbage collection with all that tests have imported.
BEHIND_COLLECTION_S = 2.0


@pytest.fixture(scope="module")
def device() -> BenchDevice:
    from benchmarks.devices import cuda_device

    return cuda_device()


@pytest.fixture(autouse=True)
def main_is_current(device: BenchDevice):
    torch.cuda.set_stream(device.main)
    yield
    device.synchronize()


def small_output(device: BenchDevice, value: int, **arguments) -> AsyncOutput:
    ids = torch.full((4, 1), value, device="cuda")
    counts = torch.ones(4, dtype=torch.int32, device="cuda")
    runner = ModelRunnerOutput(req_ids=list("abcd"), req_id_to_index={})
    return AsyncOutput(
        runner,
        SamplerOutput(sampled_token_ids=ids),
        counts,
        device.main,
        arguments.pop("copy_stream", device.copy),
        **arguments,
    )


@every_policy
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_value_of_every_workload_arrives(
    device: BenchDevice, name: str, policy: CopyPolicy
) -> None:
    step = WORKLOADS[name].build(device)
    for _ in range(3):
        device.busy(1e-3)
        step.verify(step.enqueue(step.prepare(), policy).get_output())


PINNED_POLICIES = [policy for policy in ALL_POLICIES if policy.memory == "pinned"]


@pytest.mark.parametrize("policy", PINNED_POLICIES, ids=policy_name)
def test_construction_returns_before_the_gpu_is_done(
    device: BenchDevice, policy: CopyPolicy
) -> None:
    # pytorch issue 39694
    small_output(device, 1, policy=policy).get_output()  # memory and events are there
    device.busy(BEHIND_S)
    behind = torch.cuda.Event()
    behind.record(device.main)
    output = small_output(device, 2, policy=policy)
    assert not behind.query()
    assert torch.cuda.current_stream() == device.main
    assert output.get_output().sampled_token_ids == [[2]] * 4
    assert behind.query()


@every_policy
def test_the_memory_obtained_is_the_memory_asked_for(
    device: BenchDevice, policy: CopyPolicy
) -> None:
    output = small_output(device, 1, policy=policy)
    host = output._landing().tensor(0)
    assert host.is_pinned() == (policy.memory == "pinned")
    assert output.memory == policy.memory
    output.get_output()


@pytest.mark.parametrize("wait", ["block", "spin"])
def test_the_blocking_flag_is_honoured(device: BenchDevice, wait: str) -> None:
    # vllm issue 47081, pytorch issue 189017
    waiter = waiter_for(CopyPolicy(wait=wait), device.runtime, device.main.device)
    device.busy(BEHIND_S)
    event = waiter.record(device.main)
    wall, cpu = time.perf_counter(), time.thread_time()
    waiter.wait(event)
    burnt = (time.thread_time() - cpu) / (time.perf_counter() - wall)
    assert (burnt > 0.5) == (wait == "spin")


def test_a_thread_that_never_touched_cuda_gets_the_output(device: BenchDevice) -> None:
    # vllm issue 37449
    output = small_output(device, 7)
    got = []
    thread = threading.Thread(target=lambda: got.append(output.get_output().sampled_token_ids))
    thread.start()
    thread.join()
    assert got == [[[7]] * 4]


def test_a_fresh_thread_and_a_fresh_worker_may_construct(device: BenchDevice) -> None:
    # The first driver call of a thread without a context fails.
    from asyncout import copy_path

    device.runtime._workers.clear()
    copy_path._kept_path.cache_clear()
    copy_path._last = (None, None, None, None)
    got = []

    def construct() -> None:
        torch.cuda.set_stream(device.main)
        for policy in (CopyPolicy(submit="thread"), CopyPolicy()):
            got.append(small_output(device, 8, policy=policy).get_output().sampled_token_ids)

    thread = threading.Thread(target=construct)
    thread.start()
    thread.join()
    assert got == [[[8]] * 4] * 2


def test_memory_that_the_caller_freed_is_not_reused_before_it_is_copied(
    device: BenchDevice,
) -> None:
    # torchrec issue 4231
    for round_ in range(50):
        device.busy(2e-4)
        output = small_output(device, round_)
        device.busy(2e-4, device.copy)  # the copy stream is late
        late = small_output(device, round_ + 1000)
        for _ in range(8):
            torch.full((4, 1), -7, device="cuda")
            torch.full((4,), -7, dtype=torch.int32, device="cuda")
        assert output.get_output().sampled_token_ids == [[round_]] * 4
        assert late.get_output().sampled_token_ids == [[round_ + 1000]] * 4


def test_outputs_that_are_dropped_unread_disturb_nobody(device: BenchDevice) -> None:
    inflight.kept.clear()
    for round_ in range(50):
        device.busy(2e-4, device.copy)
        small_output(device, -1)  # dropped
        output = small_output(device, round_)
        assert output.get_output().sampled_token_ids == [[round_]] * 4
    device.synchronize()
    small_output(device, 0).get_output()
    assert inflight.kept_count() <= 1


def test_a_replay_that_overwrites_the_sources_waits_when_it_is_told_to(
    device: BenchDevice,
) -> None:
    # sglang-omni issue 1369
    ids = torch.zeros((4, 1), dtype=torch.int64, device="cuda")
    counts = torch.ones(4, dtype=torch.int32, device="cuda")
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids.add_(1)
    torch.cuda.set_stream(device.main)
    ids.zero_()
    for step in range(1, 51):
        graph.replay()
        device.busy(1e-4, device.copy)  # the copy stream is late
        runner = ModelRunnerOutput(req_ids=list("abcd"), req_id_to_index={})
        output = AsyncOutput(runner, SamplerOutput(ids), counts, device.main, device.copy)
        output.make_stream_wait()
        device.busy(1e-5)
        pending = step
        if step < 50:
            continue
        assert output.get_output().sampled_token_ids == [[pending]] * 4


def test_construction_during_capture_is_refused(device: BenchDevice) -> None:
    # pytorch issue 172156
    ids = torch.zeros((4, 1), dtype=torch.int64, device="cuda")
    counts = torch.ones(4, dtype=torch.int32, device="cuda")
    runner = ModelRunnerOutput(req_ids=list("abcd"), req_id_to_index={})
    device.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        ids.add_(1)  # an empty graph is a warning
        with pytest.raises(GraphCaptureError):
            AsyncOutput(runner, SamplerOutput(ids), counts, device.main, device.copy)
    torch.cuda.set_stream(device.main)
    assert small_output(device, 3).get_output().sampled_token_ids == [[3]] * 4


def test_the_generic_stream_class_is_accepted(device: BenchDevice) -> None:
    # pytorch issue 173792
    generic = torch.accelerator.current_stream()
    runner = ModelRunnerOutput(req_ids=["a"], req_id_to_index={})
    ids = torch.full((1, 1), 5, device="cuda")
    counts = torch.ones(1, dtype=torch.int32, device="cuda")
    output = AsyncOutput(runner, SamplerOutput(ids), counts, generic, device.copy)
    assert output.get_output().sampled_token_ids == [[5]]
    assert torch.cuda.current_stream() == device.main


def test_what_no_copy_engine_can_read_as_it_is_arrives(device: BenchDevice) -> None:
    from asyncout import AsyncPoolingOutput

    host = torch.arange(12.0).view(3, 4)
    turned = torch.tensor([1 + 2j, 3 - 4j])  # torch conjugates and negates lazily
    for source, expected in (
        (host.cuda().t(), host.t()),
        (host.to(torch.bfloat16).cuda(), host.to(torch.bfloat16)),
        (torch.empty((2, 0), device="cuda"), torch.empty((2, 0))),
        (turned.cuda().conj(), turned.conj().resolve_conj()),
        (turned[:1].cuda().conj().imag, turned[:1].conj().imag.resolve_neg()),
    ):
        rows = len(expected)
        runner = ModelRunnerOutput(req_ids=[str(i) for i in range(rows)], req_id_to_index={})
        output = AsyncPoolingOutput(runner, source, [True] * rows, device.main, device.copy)
        pooled = output.get_output().pooler_output
        assert all(torch.equal(a, b) for a, b in zip(pooled, expected, strict=True))


def test_async_copy_to_np_is_asynchronous_and_right(device: BenchDevice) -> None:
    source = torch.arange(5, device="cuda")
    device.busy(BEHIND_S)
    end = torch.cuda.Event()
    array = async_copy_to_np(source)
    end.record(device.main)
    assert not end.query()
    end.synchronize()
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_stream_switches_and_switches_back(device: BenchDevice) -> None:
    with stream(device.copy, device.main):
        assert torch.cuda.current_stream() == device.copy
    assert torch.cuda.current_stream() == device.main


def test_step_timing_sees_the_kernels(device: BenchDevice) -> None:
    collector = StepTimingCollector()
    with collector.collect() as samples:
        for _ in range(3):
            collector.forward_start()
            device.busy(2e-3)
            collector.forward_end()
            collector.drafter_start()
            device.busy(5e-4)
            collector.drafter_end()
    assert [round(s.forward_ms) for s in samples] == [2, 2, 2]
    assert all(0.4 < s.drafter_ms < 0.7 for s in samples)


def test_pinned_memory_stays_bounded(device: BenchDevice) -> None:
    for _ in range(20):
        small_output(device, 1).get_output()
    gc.collect()
    before = torch.cuda.host_memory_stats()["num_host_alloc"]
    for _ in range(2000):
        small_output(device, 1).get_output()
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == before


def test_an_unread_output_in_a_cycle_keeps_its_event_until_its_copy_is_done(
    device: BenchDevice,
) -> None:
    gc.collect()
    device.synchronize()
    device.busy(BEHIND_COLLECTION_S)
    output = small_output(device, 1)
    output.itself = output
    del output
    gc.collect()
    event, _, _ = inflight.kept[-1]
    assert not event.query()
    device.synchronize()
    assert event.query()
    assert small_output(device, 2).get_output().sampled_token_ids
