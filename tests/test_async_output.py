"""The protocol of AsyncOutput, proven on the virtual device.

A test marked ``guards`` names the line of the library that it guards;
``python -m tests.mutate`` removes each such line and sees the test fail.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from steps import ALL_POLICIES, Box, in_threads, policy_name

from asyncout import (
    ORIGINAL,
    AsyncOutput,
    CopyPolicy,
    CountOutOfRangeError,
    DeviceMismatchError,
    ExpertFaultError,
    FaultMonitorMissingError,
    GraphCaptureError,
    KVConnectorOutput,
    LengthMismatchError,
    LogprobsTensors,
    MemoryFallbackWarning,
    NanLogitsError,
    SameStreamWarning,
    SamplerOutput,
    SamplingMaskTensors,
    StreamTypeError,
    inflight,
)
from asyncout.virtual import VirtualMachine

every_policy = pytest.mark.parametrize("policy", ALL_POLICIES, ids=policy_name)


@pytest.fixture
def box() -> Box:
    inflight.kept.clear()  # what another test dropped on a machine of its own
    return Box()


class Aux:
    """An aux output that copies a tensor of its own, as an engine's expert routing does."""

    def __init__(self, box: Box, values: list[int]) -> None:
        self.box = box
        self.source = box.computed(values)
        self.stream_at_enqueue = None
        self.processed = 0

    def enqueue_cpu_copy(self, num_sampled: np.ndarray, num_rejected: np.ndarray | None) -> None:
        self.stream_at_enqueue = self.box.vm.current_stream()
        self.counts, self.rejected = num_sampled, num_rejected
        self.host = self.source.to("cpu", non_blocking=True)

    def process_output(self) -> dict:
        self.processed += 1
        return {
            "values": self.host.tolist(),
            "counts": self.counts.tolist(),
            "rejected": None if self.rejected is None else self.rejected.tolist(),
        }


class Monitor:
    """A fault monitor whose flag is computed on the device."""

    def __init__(self, box: Box, fault: bool, mask: list[int]) -> None:
        self.box, self.fault, self.mask = box, fault, mask

    def query_fault(self) -> torch.Tensor:
        return self.box.computed(self.fault, torch.bool)

    def query_active_mask(self) -> torch.Tensor:
        return self.box.computed(self.mask)


# --- what arrives -----------------------------------------------------------------------------


@every_policy
@pytest.mark.guards(
    "asyncout/virtual/machine.py",
    "self._follow()",
    only="dual-pinned-block-batched",
    unless="thread",
)
@pytest.mark.guards(
    "asyncout/pending_output.py",
    "self._path.follow(marker)",
    only="dual-pinned-block-batched-thread",
)
@pytest.mark.guards(
    "asyncout/copy_path.py", "marker.wait(self.stream)", only="dual-pinned-block-batched-thread"
)
def test_every_field_arrives_under_every_policy(box: Box, policy: CopyPolicy) -> None:
    runner = box.runner_output(3)
    runner.prompt_logprobs_dict = {"r0": box.logprobs(4), "r1": None}
    runner.prompt_token_id_logprobs_dict = {"r2": box.computed([0.5, 0.25], torch.float32)}
    masks = SamplingMaskTensors(
        box.computed([[1, 4], [2, 0], [0, 3], [0, 0], [0, 0], [0, 0]]),
        box.computed([[0b10010], [0b100], [0b1001], [0], [0], [0]], torch.uint8),
        box.computed([2, 1, 2, 0, 0, 0]),
        vocab_size=5,
        rows_per_request=2,
    )
    sampled = SamplerOutput(
        sampled_token_ids=box.computed([[1, 2], [3, -1], [-1, -1]], torch.int64),
        logprobs_tensors=box.logprobs(3),
        num_nans=box.computed([0, 2, 0]),
        sampling_mask_tensors=masks,
    )
    counts = box.computed([2, 1, 0])
    output = AsyncOutput(runner, sampled, counts, box.main, box.copy, policy=policy)
    del sampled, counts, masks

    result = output.get_output()

    assert result is runner
    assert result.sampled_token_ids == [[1, 2], [3], []]
    assert result.num_nans_in_logits == {"r0": 0, "r1": 2, "r2": 0}
    assert result.logprobs.logprob_token_ids.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert result.logprobs.sampled_token_ranks.tolist() == [0, 1, 2]
    assert result.logprobs.cu_num_generated_tokens == [0, 2, 3, 3]
    assert result.prompt_logprobs_dict["r0"].logprob_token_ids.tolist()[3] == [6, 7]
    assert result.prompt_logprobs_dict["r1"] is None
    assert result.prompt_token_id_logprobs_dict["r2"].tolist() == [0.5, 0.25]
    assert result.sampling_masks.slice_request(0, 2).to_nested_list() == [[1, 4], [2]]
    assert result.sampling_masks.slice_request(1, 1).to_nested_list() == [[0, 3]]
    assert output.get_output() is runner


def test_a_field_that_an_engine_adds_to_its_own_types_arrives(box: Box) -> None:
    from dataclasses import dataclass

    @dataclass
    class EngineSamplerOutput:
        sampled_token_ids: torch.Tensor
        logprobs_tensors: LogprobsTensors | None
        num_nans: torch.Tensor | None
        entropy: torch.Tensor

    sampled = EngineSamplerOutput(box.computed([[7]], torch.int64), None, None, box.computed([5]))
    output = AsyncOutput(box.runner_output(1), sampled, box.computed([1]), box.main, box.copy)
    result = output.get_output()
    assert result.sampled_token_ids == [[7]]
    assert result.entropy.tolist() == [5]  # handed on under its own name


def test_ragged_counts_give_the_boundaries_of_their_logprobs(box: Box) -> None:
    # vllm issues 27615 and 33391
    output = box.output([[1, 2, 3], [4, -1, -1], [5, 6, -1]], [3, 1, 2], logprobs=box.logprobs(6))
    logprobs = output.get_output().logprobs
    assert logprobs.cu_num_generated_tokens == [0, 3, 4, 6]
    assert logprobs.slice_request(2, 2).logprob_token_ids.tolist() == [[8, 9], [10, 11]]


def test_boundaries_that_are_only_on_the_device_arrive_with_the_rest(box: Box) -> None:
    logprobs = box.logprobs(5)._replace(cu_num_generated_tokens_tensor=box.computed([0, 3, 5]))
    output = box.output([[1, 2, -1], [3, -1, -1]], [2, 1], logprobs=logprobs)
    assert output.get_output().logprobs.cu_num_generated_tokens == [0, 3, 5]


def test_the_padding_never_reaches_a_list(box: Box) -> None:
    # vllm issue 40768
    ids = [[7, -1, -1], [8, 9, -1], [1, 2, 3], [-1, -1, -1]]
    assert box.output(ids, [1, 2, 3, 0]).get_output().sampled_token_ids == [
        [7],
        [8, 9],
        [1, 2, 3],
        [],
    ]


def test_bfloat16_logprobs_and_empty_batches_are_ordinary(box: Box) -> None:
    logprobs = LogprobsTensors(
        box.computed([[1]]), box.computed([[0.5]], torch.bfloat16), box.computed([0])
    )
    assert box.output([[1]], logprobs=logprobs).get_output().logprobs.logprobs.tolist() == [[0.5]]

    nothing = SamplerOutput(sampled_token_ids=box.vm.empty((0, 1), torch.int64))
    counts = box.vm.empty((0,), torch.int32)
    output = AsyncOutput(box.runner_output(0), nothing, counts, box.main, box.copy)
    assert output.get_output().sampled_token_ids == []


def test_a_host_tensor_of_the_caller_may_be_written_to_at_once(box: Box) -> None:
    counts = torch.tensor([2, 1], dtype=torch.int32)
    sampled = SamplerOutput(sampled_token_ids=box.computed([[1, 2], [3, 4]], torch.int64))
    output = AsyncOutput(box.runner_output(2), sampled, counts, box.main, box.copy)
    counts.zero_()
    assert output.get_output().sampled_token_ids == [[1, 2], [3]]


@pytest.mark.guards("asyncout/transfer.py", "to_main()", only="default")
@pytest.mark.parametrize("policy", [CopyPolicy(), ORIGINAL], ids=["default", "original"])
def test_a_strided_source_is_read_behind_the_main_stream_whatever_stream_is_current(
    box: Box, policy: CopyPolicy
) -> None:
    strided = box.computed([[1, 3], [2, 4]], torch.int64).t()
    sampled, counts = SamplerOutput(sampled_token_ids=strided), box.computed([2, 2])
    box.vm.set_stream(box.vm.stream())
    output = AsyncOutput(box.runner_output(2), sampled, counts, box.main, box.copy, policy=policy)
    assert output.get_output().sampled_token_ids == [[1, 2], [3, 4]]


def test_a_field_that_is_called_as_the_counts_are_is_handed_on(box: Box) -> None:
    @dataclass
    class Counting(SamplerOutput):
        num_sampled_tokens: Any = None

    counting = Counting(
        box.computed([[7, 8]], torch.int64),
        logprobs_tensors=box.logprobs(1),
        num_sampled_tokens=box.computed([3, 4, 5]),
    )
    runner = box.runner_output(1)
    result = AsyncOutput(runner, counting, box.computed([1]), box.main, box.copy).get_output()
    assert result.sampled_token_ids == [[7]]
    assert result.logprobs.logprob_token_ids.tolist() == [[0, 1]]
    assert result.num_sampled_tokens.tolist() == [3, 4, 5]


def test_logprobs_that_are_on_the_host_already_are_handed_on_as_they_are(box: Box) -> None:
    on_host = LogprobsTensors(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1))
    runner = box.runner_output(1)
    runner.prompt_logprobs_dict = {"r0": on_host}
    assert box.output([[1]], runner_output=runner).get_output().prompt_logprobs_dict == {
        "r0": on_host
    }
    assert runner.prompt_logprobs_dict["r0"] is on_host


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=policy_name)
def test_prompts_added_or_removed_before_the_read_change_no_others(
    box: Box, policy: CopyPolicy
) -> None:
    prompts = {"r0": box.computed([1]), "r1": box.computed([2])}
    runner = box.runner_output(2)
    runner.prompt_token_id_logprobs_dict = prompts
    output = box.output([[1], [1]], runner_output=runner, policy=policy)
    del prompts["r0"]
    prompts["r2"] = torch.zeros(1)
    prompts["r3"] = box.computed([3])
    arrived = output.get_output().prompt_token_id_logprobs_dict
    assert {name: part.tolist() for name, part in arrived.items()} == {"r0": [1], "r1": [2]}


# --- nothing is read before it is there, nothing freed before it is read ----------------------


def test_copies_wait_for_the_kernels_that_compute_their_sources(box: Box) -> None:
    assert box.output([[11], [12]]).get_output().sampled_token_ids == [[11], [12]]


@pytest.mark.guards("asyncout/async_output.py", "self._wait()")
@pytest.mark.guards("asyncout/pending_output.py", "self._path.wait(self._event)")
@pytest.mark.guards("asyncout/events.py", "self._synchronize(event)", nth=2)
@pytest.mark.guards("asyncout/virtual/machine.py", "event.record(self._copy)")
@pytest.mark.guards("asyncout/pending_output.py", "self._event = path.enqueue(landing, then)")
def test_results_are_read_only_after_their_copies(box: Box) -> None:
    # pytorch issues 127612 and 137951
    output = box.output([[21], [22]])
    assert not output._event.query()
    assert output.get_output().sampled_token_ids == [[21], [22]]


@pytest.mark.guards("asyncout/pending_output.py", "self._kept = (sources, landing, then)")
def test_sources_that_only_the_output_knows_are_not_reused_before_they_are_read(box: Box) -> None:
    # torchrec issue 4231
    output = box.output([[31], [32]], logprobs=box.logprobs(2))
    box.overwrite_freed_memory()
    result = output.get_output()
    assert result.sampled_token_ids == [[31], [32]]
    assert result.logprobs.logprob_token_ids.tolist() == [[0, 1], [2, 3]]


@pytest.mark.guards(
    "asyncout/pending_output.py",
    "self._kept = None",
)
def test_sources_are_let_go_once_they_have_been_read(box: Box) -> None:
    output = box.output([[1]])
    output.get_output()
    assert output._kept is None


@pytest.mark.guards(
    "asyncout/pending_output.py", "inflight.keep_until(self._event, self._kept, self._path.recycle)"
)
@pytest.mark.guards("asyncout/inflight.py", "kept.append((event, objects, recycle))")
def test_an_output_dropped_unread_keeps_what_its_copies_touch(box: Box) -> None:
    output = box.output([[41], [42]])
    host = output._landing().tensor(0)  # what the running copy writes to
    del output
    box.overwrite_freed_memory()
    box.vm.synchronize()
    assert host.tolist() == [[41], [42]]


@pytest.mark.guards("asyncout/inflight.py", "kept.append((event, objects, recycle))", nth=2)
@pytest.mark.guards("asyncout/pending_output.py", "inflight.release_passed()")
def test_what_was_dropped_is_kept_until_its_copies_are_done_and_no_longer(box: Box) -> None:
    before = inflight.kept_count()
    del_me = box.output([[1]])
    del del_me
    second = box.output([[2]])  # its construction releases what has passed: nothing has
    assert inflight.kept_count() == before + 1
    second.get_output()
    box.vm.synchronize()
    box.output([[3]]).get_output()
    assert inflight.kept_count() == before


def test_dropping_an_unread_output_needs_no_garbage_collector(box: Box) -> None:
    gc.disable()
    try:
        before = inflight.kept_count()
        box.output([[1]], pending_aux_output=Aux(box, [1]))
        assert inflight.kept_count() == before + 1
    finally:
        gc.enable()


def test_results_of_a_step_do_not_change_while_later_steps_run(box: Box) -> None:
    # vllm issues 36013, 53613, 54269
    first = box.output([[51], [52]], logprobs=box.logprobs(2)).get_output()
    ids, logprobs = first.sampled_token_ids, first.logprobs.logprob_token_ids
    outputs = [box.output([[n], [n]], logprobs=box.logprobs(2)) for n in range(16)]
    for n, output in enumerate(outputs):
        assert output.get_output().sampled_token_ids == [[n], [n]]
    assert ids == [[51], [52]]
    assert logprobs.tolist() == [[0, 1], [2, 3]]


@pytest.mark.guards("asyncout/pending_output.py", "event.wait(target)")
def test_a_replay_that_overwrites_the_sources_waits_when_it_is_told_to(box: Box) -> None:
    # sglang-omni issue 1369
    static = box.computed([[61]], torch.int64)
    sampled = SamplerOutput(sampled_token_ids=static)
    output = AsyncOutput(box.runner_output(1), sampled, box.computed([1]), box.main, box.copy)
    output.make_stream_wait()
    static.fill_(-5)
    assert output.get_output().sampled_token_ids == [[61]]


@pytest.mark.guards("asyncout/copy_path.py", "self.stream.wait_stream(self.main_stream)")
@pytest.mark.guards("asyncout/events.py", "event.record(stream)")
@pytest.mark.guards("asyncout/events.py", "self._synchronize(event)")
def test_the_originals_way_waits_for_the_kernels_and_for_the_copies(box: Box) -> None:
    output = box.output([[11], [12]], policy=ORIGINAL)
    assert output.get_output().sampled_token_ids == [[11], [12]]


# --- the main stream is always current again --------------------------------------------------


@every_policy
@pytest.mark.guards(
    "asyncout/copy_path.py",
    "self._to_main()",
    nth=2,
    only="dual-pinned-block-per_tensor",
    unless="thread",
)
@pytest.mark.guards(
    "asyncout/copy_path.py", "self._to_stream()", nth=2, only="dual-pageable-block-per_tensor"
)
def test_the_main_stream_is_current_after_construction(box: Box, policy: CopyPolicy) -> None:
    output = box.output([[1]], policy=policy)
    assert box.vm.current_stream() == box.main
    output.get_output()
    copies = {record.stream for record in box.vm.history if record.op == "d2h"}
    stream = box.copy if policy.streams == "dual" else box.main
    if policy.submit == "thread":
        stream = box.vm.worker(box.main.device).stream
    assert copies == {str(stream)}


@pytest.mark.parametrize("kind", ["copy", "record", "allocate"])
@pytest.mark.guards(
    "asyncout/pending_output.py",
    "inflight.keep_until(path.record(), touched, path.recycle)",
    only="copy",
)
@pytest.mark.guards("asyncout/pending_output.py", "self._leave_behind()", only="record")
def test_a_construction_that_fails_half_way_leaves_nothing_behind(box: Box, kind: str) -> None:
    sampled = SamplerOutput(
        sampled_token_ids=box.computed([[71]], torch.int64), num_nans=box.computed([0])
    )
    counts = box.computed([1])
    sources = [sampled.sampled_token_ids]
    before = inflight.kept_count()
    box.vm.fail_next(kind, RuntimeError("planted"))
    with pytest.raises(RuntimeError, match="planted"):
        AsyncOutput(box.runner_output(1), sampled, counts, box.main, box.copy)
    assert box.vm.current_stream() == box.main
    # Without a block nothing was enqueued; else what was is kept.
    assert inflight.kept_count() == before + (kind != "allocate")
    del sampled, counts, sources
    # The next step is not disturbed, and what was kept goes.
    assert box.output([[72]]).get_output().sampled_token_ids == [[72]]
    box.vm.synchronize()
    box.output([[73]]).get_output()
    assert inflight.kept_count() == before


@pytest.mark.guards("asyncout/pending_output.py", "path.stream.synchronize()")
def test_where_no_event_is_to_be_had_a_failed_construction_waits_for_its_copies(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("asyncout.virtual.VirtualEvent.record", refuse)
    with pytest.raises(RuntimeError, match="planted"):
        box.output([[1]], policy=ORIGINAL)
    assert box.copy.queue.last.done  # nothing still reads what the caller may now free
    assert inflight.kept_count() == 0


@pytest.mark.guards("asyncout/pending_output.py", "inflight.keep_forever(touched)")
@pytest.mark.guards("asyncout/inflight.py", "_lost.append(objects)")
def test_what_a_lost_device_may_still_touch_is_kept_for_good(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(inflight, "_lost", [])
    monkeypatch.setattr("asyncout.virtual.VirtualEvent.record", refuse)
    box.vm.fail_device(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="planted"):
        box.output([[1]])
    assert len(inflight._lost) == 1


def test_an_aux_output_that_cannot_enqueue_fails_the_construction(box: Box) -> None:
    class Broken(Aux):
        def enqueue_cpu_copy(self, num_sampled, num_rejected):
            raise OSError("no buffer")

    with pytest.raises(OSError, match="no buffer"):
        box.output([[1]], pending_aux_output=Broken(box, [1]))
    assert box.vm.current_stream() == box.main


# --- the aux output, faults and NaNs ----------------------------------------------------------


@pytest.mark.guards("asyncout/copy_path.py", "then(landing)")
@pytest.mark.guards("asyncout/copy_path.py", "self._to_stream()")
@pytest.mark.guards("asyncout/copy_path.py", "self._to_main()")
def test_an_aux_output_copies_on_the_copy_stream_and_is_processed_once(box: Box) -> None:
    aux = Aux(box, [81, 82])
    sampled = SamplerOutput(
        sampled_token_ids=box.computed([[1, 2]], torch.int64), num_rejected=box.computed([1])
    )
    output = AsyncOutput(
        box.runner_output(1), sampled, box.computed([1]), box.main, box.copy, False, aux
    )
    del sampled
    assert aux.stream_at_enqueue == box.copy
    assert box.vm.current_stream() == box.main
    assert aux.processed == 0
    expected = {"values": [81, 82], "counts": [1], "rejected": [1]}
    assert output.get_output().aux_output_connector_output == expected
    output.get_output()
    assert aux.processed == 1


def test_a_fault_outranks_everything_and_gives_the_aux_its_buffers_back(box: Box) -> None:
    # vllm issue 43637
    aux = Aux(box, [1])
    runner = box.runner_output(2)
    output = box.output(
        [[1], [2]],
        [1, 9],  # a count that is wrong too
        runner_output=runner,
        nans=[3, 0],
        raise_on_nan_logits=True,
        check_ep_fault=True,
        pending_aux_output=aux,
        fault_monitor=Monitor(box, True, [0, 1, 0, 1]),
    )
    runner.kv_connector_output = KVConnectorOutput(finished_sending={"r0"})
    for _ in range(2):
        with pytest.raises(ExpertFaultError, match=r"\[0, 1, 0, 1\].*\[1, 3\]"):
            output.get_output()
    assert aux.processed == 1
    assert output.get_kv_connector_output().finished_sending == {"r0"}


def test_no_fault_no_error(box: Box) -> None:
    output = box.output([[1]], check_ep_fault=True, fault_monitor=Monitor(box, False, [0, 0]))
    assert output.get_output().sampled_token_ids == [[1]]


def test_nan_logits_are_reported_for_the_requests_that_have_them_and_no_others(box: Box) -> None:
    # vllm issue 50323
    runner = box.runner_output(3)
    output = box.output(
        [[1], [2], [3]], runner_output=runner, nans=[0, 4, 0], raise_on_nan_logits=True
    )
    with pytest.raises(NanLogitsError, match=r"1 of 3 requests.*r1: 4$") as caught:
        output.get_output()
    assert "r0" not in str(caught.value)
    # Nothing is lost: the caller's object has all of the step.
    assert runner.sampled_token_ids == [[1], [2], [3]]
    assert runner.num_nans_in_logits == {"r0": 0, "r1": 4, "r2": 0}


@pytest.mark.guards(
    "asyncout/async_output.py", "self._counted = tuple(model_runner_output.req_ids)", nth=2
)
def test_nan_logits_keep_their_requests_while_the_engine_uses_the_list_again(box: Box) -> None:
    runner = box.runner_output(3)
    output = box.output([[1], [2], [3]], runner_output=runner, nans=[0, 7, 0])
    runner.req_ids[:] = ["r2", "new"]  # compacted in place: r1 has finished
    assert output.get_output().num_nans_in_logits == {"r0": 0, "r1": 7, "r2": 0}


def test_nan_logits_are_only_noted_by_default(box: Box) -> None:
    assert box.output([[1]], nans=[4]).get_output().num_nans_in_logits == {"r0": 4}


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "named"), [([1, 3], "r1: 3"), ([-1, 1], "r0: -1")], ids=["above", "negative"]
)
def test_a_count_that_no_row_can_hold_names_its_request(box: Box, counts, named) -> None:
    output = box.output([[1, 2], [3, 4]], counts)
    for _ in range(2):
        with pytest.raises(CountOutOfRangeError, match=rf"W = 2.*{named}"):
            output.get_output()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("sampled_token_ids", {"ids": [[1], [2], [3]]}),
        ("num_sampled_tokens", {"counts": [1, 1, 1]}),
        ("num_nans", {"nans": [0, 0, 0]}),
    ],
)
def test_lengths_that_disagree_are_refused_before_anything_is_enqueued(
    box: Box, field: str, change: dict
) -> None:
    arguments = {"ids": [[1], [2]], "counts": [1, 1], "nans": [0, 0], **change}
    with pytest.raises(LengthMismatchError, match=rf"^{field} has shape \[3.*the 2 requests"):
        box.output(runner_output=box.runner_output(2), **arguments)
    assert not any("to_host" in str(r) or "D2H" in str(r) for r in box.vm.history)
    assert box.vm.current_stream() == box.main


def test_logprobs_and_masks_that_disagree_are_refused_by_name(box: Box) -> None:
    short = box.logprobs(2)._replace(selected_token_ranks=box.computed([0]))
    with pytest.raises(LengthMismatchError, match="selected_token_ranks"):
        box.output([[1], [2]], logprobs=short)
    with pytest.raises(LengthMismatchError, match="3 boundaries for 1 requests"):
        box.output([[1]], logprobs=box.logprobs(1, cu_num_generated_tokens=[0, 1, 2]))
    masks = SamplingMaskTensors(
        box.computed([[1]]), box.computed([[1]], torch.uint8), box.computed([1]), 8, 2
    )
    sampled = SamplerOutput(box.computed([[1]], torch.int64), sampling_mask_tensors=masks)
    with pytest.raises(LengthMismatchError, match=r"sampling_mask_tensors.token_ids.*\[2, "):
        AsyncOutput(box.runner_output(1), sampled, box.computed([1]), box.main, box.copy)


def test_logprobs_that_fit_neither_requests_nor_tokens_are_refused(box: Box) -> None:
    output = box.output([[1, 2], [3, 4]], [2, 2], logprobs=box.logprobs(3))
    with pytest.raises(LengthMismatchError, match="3 rows for 2 requests with 4 sampled"):
        output.get_output()


def test_a_fault_check_needs_a_monitor(box: Box) -> None:
    with pytest.raises(FaultMonitorMissingError, match="fault_monitor"):
        box.output([[1]], check_ep_fault=True)


def test_construction_during_capture_is_refused(box: Box) -> None:
    # pytorch issue 172156
    sampled, counts = SamplerOutput(box.computed([[1]], torch.int64)), box.computed([1])
    box.vm.begin_capture()
    try:
        with pytest.raises(GraphCaptureError, match="captured"):
            AsyncOutput(box.runner_output(1), sampled, counts, box.main, box.copy)
    finally:
        box.vm.end_capture()
    assert box.vm.current_stream() == box.main


def test_streams_and_tensors_must_be_on_one_device() -> None:
    # RetrievalAttention issue 15
    box = Box(VirtualMachine(devices=2))
    sampled, counts = SamplerOutput(box.computed([[1]], torch.int64)), box.computed([1])
    elsewhere = box.vm.stream(device=1)
    with pytest.raises(DeviceMismatchError, match=r"main_stream is on \S+ and copy_stream on"):
        AsyncOutput(box.runner_output(1), sampled, counts, box.main, elsewhere)
    with pytest.raises(DeviceMismatchError, match=r"^sampled_token_ids is on"):
        AsyncOutput(box.runner_output(1), sampled, counts, elsewhere, box.vm.stream(device=1))


@pytest.mark.parametrize("no_stream", [None, 0, [1], "cuda"])
def test_what_is_no_stream_is_refused_by_name(box: Box, no_stream: object) -> None:
    sampled, counts = SamplerOutput(box.computed([[1]], torch.int64)), box.computed([1])
    with pytest.raises(StreamTypeError, match=f"got {type(no_stream).__name__}"):
        AsyncOutput(box.runner_output(1), sampled, counts, no_stream, box.copy)
    with pytest.raises(StreamTypeError):
        AsyncOutput(box.runner_output(1), sampled, counts, box.main, no_stream)


def test_a_copy_stream_that_is_the_main_stream_is_pointed_out(box: Box) -> None:
    box.copy = box.main
    with pytest.warns(SameStreamWarning, match="overlap nothing"):
        output = box.output([[1]])
    assert output.get_output().sampled_token_ids == [[1]]


def test_pinned_memory_that_is_not_to_be_had_is_said_once_and_shown() -> None:
    # vllm-omni issue 4860; vllm issues 312 and 41496
    box = Box(VirtualMachine(pinned_available=False))
    with pytest.warns(MemoryFallbackWarning, match="pageable memory was obtained"):
        output = box.output([[1]])
    assert output.memory == "pageable"
    assert box.output([[1]]).memory == "pageable"  # warns again: an error in this suite
    assert Box().output([[1]]).memory == "pinned"


# --- threads and errors -----------------------------------------------------------------------


def test_from_many_threads_the_work_is_done_once(box: Box) -> None:
    aux = Aux(box, [1])
    output = box.output([[1]], pending_aux_output=aux)
    results: list[object] = []
    in_threads(8, lambda _: results.append(output.get_output()))
    assert len(results) == 8
    assert len({id(result) for result in results}) == 1
    assert aux.processed == 1


def test_an_error_of_the_device_reaches_every_call(box: Box) -> None:
    # vllm-tt-plugin issue 6
    aux = Aux(box, [1])
    output = box.output([[1]], pending_aux_output=aux)
    box.vm.fail_device(RuntimeError("unspecified launch failure"))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="unspecified launch failure"):
            output.get_output()
    assert aux.processed == 0  # its copies were never waited for
    assert output.get_kv_connector_output() is None


def test_an_error_of_the_aux_output_reaches_every_call(box: Box) -> None:
    class Broken(Aux):
        def process_output(self):
            self.processed += 1
            raise ValueError("bad routing")

    aux = Broken(box, [1])
    output = box.output([[1]], pending_aux_output=aux)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad routing"):
            output.get_output()
    assert aux.processed == 1
