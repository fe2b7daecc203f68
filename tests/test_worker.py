"""``submit="thread"``: one worker, order kept, errors at the reader, the constructor not held."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from steps import Box

from asyncout import AsyncOutput, CopyPolicy, OutputTimeoutError, SamplerOutput, pending_output
from asyncout.worker import Handover, ThreadWorker

ROOT = Path(__file__).resolve().parent.parent

THREAD = CopyPolicy(submit="thread")
HELD = CopyPolicy(memory="pageable", submit="thread")


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def worker() -> ThreadWorker:
    return ThreadWorker("stream", lambda: None)


def test_jobs_run_in_order_in_one_thread_that_starts_with_the_first(worker: ThreadWorker) -> None:
    before = threading.active_count()
    ran: list[tuple[int, str]] = []
    assert threading.active_count() == before
    for number in range(50):
        worker.run(lambda _, n=number: ran.append((n, threading.current_thread().name)))
    done = Handover()
    worker.run(done.settle)
    done.wait()
    assert [number for number, _ in ran] == list(range(50))
    assert {name for _, name in ran} == {"asyncout copies"}
    assert threading.active_count() == before + 1


def test_the_thread_enters_its_stream_before_the_first_job() -> None:
    # Without a context the first driver call of a new thread fails.
    seen: list[str] = []
    worker = ThreadWorker("stream", lambda: seen.append("entered"))
    for _ in range(2):
        done = Handover()
        worker.run(lambda error, done=done: (seen.append("job"), done.settle(error)))
        done.wait()
    assert seen == ["entered", "job", "job"]


def test_a_stream_that_cannot_be_entered_fails_the_job_and_the_next_one_tries_again() -> None:
    failures = iter([MemoryError("planted"), None])

    def enter() -> None:
        if (failure := next(failures)) is not None:
            raise failure

    worker = ThreadWorker("stream", enter)
    first, second, third = Handover(), Handover(), Handover()
    for handover in (first, second, third):
        worker.run(handover.settle)
    with pytest.raises(MemoryError, match="planted"):
        first.wait()
    second.wait()
    third.wait()


def test_an_output_raises_what_kept_the_worker_from_its_stream(box: Box) -> None:
    def enter() -> None:
        raise MemoryError("planted")

    output = box.output([[1]], policy=THREAD)
    output.get_output()
    output._path.worker = ThreadWorker(output._path.worker.stream, enter)
    output = box.output([[1]], policy=THREAD)
    for _ in range(2):
        with pytest.raises(MemoryError, match="planted"):
            output.get_output()


def test_a_timed_reader_gets_the_result_that_another_finishes_behind_its_last_look(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.vm.busy(50e-3)
    output = box.output([[1], [2]])

    def too_late(*arguments: object) -> bool:
        output.get_output()  # as another thread does just then
        return False

    monkeypatch.setattr(pending_output, "wait_until", too_late)
    assert output.get_output(timeout=5e-3).sampled_token_ids == [[1], [2]]


def test_a_job_is_let_go_when_it_has_run(worker: ThreadWorker) -> None:
    import weakref

    class Job:
        def __call__(self, error: BaseException | None) -> None:
            assert error is None

    job = Job()
    gone = threading.Event()
    weakref.finalize(job, gone.set)
    worker.run(job)
    del job
    assert gone.wait(10)


def test_a_handover_gives_its_error_to_everyone_who_waits() -> None:
    handover = Handover()
    assert not handover.is_settled()
    handover.settle(OSError("planted"))
    assert handover.is_settled()
    for _ in range(2):
        with pytest.raises(OSError, match="planted"):
            handover.wait()


def test_the_worker_ends_with_the_process_and_its_jobs_are_done() -> None:
    program = (
        "import time; from asyncout.worker import ThreadWorker\n"
        "worker = ThreadWorker(None, lambda: None)\n"
        "for n in range(5): worker.run(lambda _, n=n: (time.sleep(0.02), print(n, flush=True)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.split() == list("01234")


def test_a_pageable_destination_no_longer_holds_the_engine(box: Box) -> None:
    box.vm.busy(50e-3)
    before = box.vm.now
    output = box.output([[1], [2]], policy=HELD)
    assert box.vm.now - before < 1e-3
    assert output.get_output().sampled_token_ids == [[1], [2]]
    assert box.vm.now - before > 50e-3


def test_an_error_in_the_worker_reaches_the_reader_each_time(box: Box) -> None:
    # vllm-tt-plugin issue 6: the helper thread died and the engine hung
    box.vm.fail_next("copy", RuntimeError("planted"))
    output = box.output([[1]], policy=THREAD)
    assert output.ready()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="planted"):
            output.get_output()
    with pytest.raises(RuntimeError, match="planted"):
        output.get_output(timeout=1)
    assert output.get_kv_connector_output() is None
    assert box.output([[2]], policy=THREAD).get_output().sampled_token_ids == [[2]]


class SlowWorker:
    """Runs nothing until it is told to."""

    def __init__(self, stream: object) -> None:
        self.stream = stream
        self.jobs: list = []

    def run(self, job) -> None:
        self.jobs.append(job)


@pytest.fixture
def slow(box: Box, monkeypatch: pytest.MonkeyPatch) -> SlowWorker:
    worker = SlowWorker(box.vm.stream())
    monkeypatch.setattr(box.vm, "worker", lambda device: worker)
    return worker


@pytest.mark.parametrize("copies", ["batched", "per_tensor"])
def test_a_host_tensor_may_be_written_to_before_the_worker_comes(
    box: Box, slow: SlowWorker, copies: str
) -> None:
    counts = torch.tensor([2, 1], dtype=torch.int32)
    sampled = SamplerOutput(sampled_token_ids=box.computed([[1, 2], [3, 4]], torch.int64))
    policy = dataclasses.replace(THREAD, copies=copies)
    output = AsyncOutput(box.runner_output(2), sampled, counts, box.main, box.copy, policy=policy)
    counts.zero_()
    slow.jobs.pop()(None)
    assert output.get_output().sampled_token_ids == [[1, 2], [3]]


def test_what_is_not_enqueued_yet_is_not_ready_and_times_out(box: Box, slow: SlowWorker) -> None:
    output = box.output([[3]], policy=THREAD)
    box.vm.synchronize()
    assert not output.ready()
    with pytest.raises(OutputTimeoutError):
        output.get_output(timeout=1e-3)
    slow.jobs.pop()(None)
    assert output.get_output(timeout=1).sampled_token_ids == [[3]]


def test_copies_wait_for_the_work_at_construction_and_for_no_more(
    box: Box, slow: SlowWorker
) -> None:
    output = box.output([[4]], policy=THREAD)
    box.vm.busy(1.0)  # the next step
    slow.jobs.pop()(None)
    assert output.get_output().sampled_token_ids == [[4]]
    assert box.vm.now < 0.5


def test_an_output_that_is_dropped_before_it_was_enqueued_disturbs_nobody(
    box: Box, slow: SlowWorker
) -> None:
    box.output([[5]], policy=THREAD)  # dropped: only the worker knows it
    box.overwrite_freed_memory()
    later = box.output([[6]], policy=THREAD)
    for job in slow.jobs:
        job(None)
    slow.jobs.clear()
    assert later.get_output().sampled_token_ids == [[6]]


def test_a_stream_that_is_made_to_wait_waits_for_copies_that_are_enqueued_later(
    box: Box, slow: SlowWorker
) -> None:
    output = box.output([[7]], policy=THREAD)
    waited = threading.Thread(target=output.make_stream_wait)
    waited.start()
    waited.join(0.05)
    assert waited.is_alive()
    slow.jobs.pop()(None)
    waited.join(10)
    assert not waited.is_alive()
