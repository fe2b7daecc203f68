"""The protocol of AsyncPoolingOutput, proven on the virtual device."""

from __future__ import annotations

import pytest
import torch
from steps import ALL_POLICIES, Box, policy_name

from asyncout import (
    ORIGINAL,
    AsyncPoolingOutput,
    CopyPolicy,
    KVConnectorOutput,
    LengthMismatchError,
)


@pytest.fixture
def box() -> Box:
    return Box()


def pooled(box: Box, pooler_output, finished, **arguments) -> AsyncPoolingOutput:
    return AsyncPoolingOutput(
        box.runner_output(len(finished)), pooler_output, finished, box.main, box.copy, **arguments
    )


def copies(box: Box) -> int:
    """Count the copies to the host so far."""
    box.vm.synchronize()
    return sum(record.op == "d2h" for record in box.vm.history)


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=policy_name)
@pytest.mark.guards("asyncout/pooling_output.py", "self._wait()", only="dual-pinned-block")
def test_all_rows_finished_travel_in_one_copy_and_come_back_as_views(
    box: Box, policy: CopyPolicy
) -> None:
    values = torch.arange(12.0).view(3, 4)
    output = pooled(box, box.computed(values, torch.float32), [True] * 3, policy=policy)
    rows = output.get_output().pooler_output
    assert [row.tolist() for row in rows] == values.tolist()
    assert len({row.untyped_storage().data_ptr() for row in rows}) == 1
    assert copies(box) == 1
    assert output.get_output().pooler_output is rows


def test_only_finished_rows_are_copied_and_neighbours_share_a_copy(box: Box) -> None:
    values = torch.arange(10.0).view(5, 2)
    finished = [True, True, False, False, True]
    output = pooled(box, box.computed(values, torch.float32), finished, policy=ORIGINAL)
    rows = output.get_output().pooler_output
    assert [None if row is None else row.tolist() for row in rows] == [
        [0.0, 1.0],
        [2.0, 3.0],
        None,
        None,
        [8.0, 9.0],
    ]
    assert copies(box) == 2


def test_ragged_results_keep_their_shapes_and_missing_ones_stay_none(box: Box) -> None:
    parts = [
        box.computed([1.0, 2.0], torch.float32),
        None,
        box.computed([[3.0]], torch.float32),
        box.computed([4.0], torch.float32),
    ]
    rows = pooled(box, parts, [True, True, True, False]).get_output().pooler_output
    assert rows[0].tolist() == [1.0, 2.0]
    assert rows[1] is None
    assert rows[2].tolist() == [[3.0]]
    assert rows[3] is None


def test_nothing_finished_enqueues_nothing(box: Box) -> None:
    source = box.computed([[1.0], [2.0]], torch.float32)
    waits = len(box.vm.history)
    output = pooled(box, source, [False, False])
    assert len(box.vm.history) == waits
    assert output.get_output().pooler_output == [None, None]
    assert copies(box) == 0


def test_bfloat16_stays_a_tensor(box: Box) -> None:
    # pytorch issue 110285
    rows = pooled(box, box.computed([[0.5]], torch.bfloat16), [True]).get_output().pooler_output
    assert rows[0].dtype is torch.bfloat16
    assert rows[0].tolist() == [0.5]


def test_a_strided_source_arrives_right(box: Box) -> None:
    # pytorch issue 10690
    source = box.computed(torch.arange(6.0).view(2, 3), torch.float32).t()
    rows = pooled(box, source, [True, False, True]).get_output().pooler_output
    assert [None if row is None else row.tolist() for row in rows] == [[0.0, 3.0], None, [2.0, 5.0]]


def test_sources_that_only_the_output_knows_are_not_reused_before_they_are_read(box: Box) -> None:
    output = pooled(box, box.computed([[1.5], [2.5]], torch.float32), [True, True])
    box.overwrite_freed_memory()
    assert [row.tolist() for row in output.get_output().pooler_output] == [[1.5], [2.5]]


def test_a_replay_that_overwrites_the_source_waits_when_it_is_told_to(box: Box) -> None:
    static = box.computed([[1.5]], torch.float32)
    output = pooled(box, static, [True])
    output.make_stream_wait()
    static.fill_(-1)
    assert output.get_output().pooler_output[0].tolist() == [1.5]


@pytest.mark.parametrize("requests", [1, 3])
def test_lengths_that_differ_are_refused(box: Box, requests: int) -> None:
    source = box.computed([[1.0], [2.0]], torch.float32)
    with pytest.raises(LengthMismatchError, match=f"{requests} requests.*2 results.*2 entries"):
        AsyncPoolingOutput(box.runner_output(requests), source, [True, True], box.main, box.copy)
    with pytest.raises(LengthMismatchError, match="3 entries in finished_mask"):
        AsyncPoolingOutput(box.runner_output(2), source, [True] * 3, box.main, box.copy)
    assert box.vm.current_stream() == box.main


def test_the_kv_connectors_output_is_there_at_once(box: Box) -> None:
    runner = box.runner_output(1)
    output = AsyncPoolingOutput(
        runner, box.computed([[1.0]], torch.float32), [True], box.main, box.copy
    )
    runner.kv_connector_output = KVConnectorOutput(finished_recving={"r0"})
    before = box.vm.now
    assert output.get_kv_connector_output().finished_recving == {"r0"}
    assert box.vm.now == before
