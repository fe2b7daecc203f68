"""``StepTimingCollector`` on the virtual device, where every duration is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from steps import Box

from asyncout import DeviceUnavailableError, StepTimingCollector, TimingError

FORWARD, DRAFTER = 2e-3, 5e-4
BATCH = SimpleNamespace(num_tokens=12, num_reqs=3)


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def collector(box: Box) -> StepTimingCollector:
    return StepTimingCollector(box.main.asyncout_runtime)


def run_step(box: Box, collector: StepTimingCollector, upto: int = 4, scale: float = 1) -> None:
    """Run the first `upto` marks of a step with its kernels between them."""
    marks = [
        collector.forward_start,
        collector.forward_end,
        collector.drafter_start,
        collector.drafter_end,
    ]
    kernels = [FORWARD * scale, 0, DRAFTER * scale, 0]
    for mark, seconds in list(zip(marks, kernels, strict=True))[:upto]:
        mark()
        box.vm.busy(seconds)


@pytest.mark.guards("asyncout/step_timing.py", "last.synchronize()")
@pytest.mark.guards("asyncout/step_timing.py", "self._record(self.events[number])")
@pytest.mark.guards("asyncout/step_timing.py", "samples.extend(step.sample() for step in steps)")
def test_each_step_leaves_one_sample_in_order(box: Box, collector: StepTimingCollector) -> None:
    # pytorch issue 85796
    collector.record_batch(BATCH, True)
    with collector.collect() as samples:
        run_step(box, collector)
        run_step(box, collector, scale=2)
        collector.record_batch(SimpleNamespace(num_tokens=1, num_reqs=1), False)
        run_step(box, collector, scale=3)
        assert samples == []
    assert [s.forward_ms for s in samples] == pytest.approx([2, 4, 6], rel=0.01)
    assert [s.drafter_ms for s in samples] == pytest.approx([0.5, 1, 1.5], rel=0.02)
    assert [tuple(s)[2:] for s in samples] == [(12, 3, True), (12, 3, True), (1, 1, False)]


def test_the_marks_never_wait_and_the_block_waits_once(
    box: Box, collector: StepTimingCollector
) -> None:
    with collector.collect():
        before = box.vm.now
        for _ in range(5):
            run_step(box, collector)
        assert box.vm.now - before < FORWARD
    assert box.vm.now - before > 5 * (FORWARD + DRAFTER)


@pytest.mark.guards("asyncout/step_timing.py", "self._free[step.device].append(step)")
def test_events_are_used_again_once_their_samples_are_there(
    box: Box, collector: StepTimingCollector
) -> None:
    for _ in range(3):
        with collector.collect() as samples:
            for scale in (1, 2, 3):
                run_step(box, collector, scale=scale)
        assert [s.forward_ms for s in samples] == pytest.approx([2, 4, 6], rel=0.01)
    made = [line for line in box.vm.program().splitlines() if "new_event(" in line]
    assert len(made) == 3 * 4


@pytest.mark.parametrize("upto", [1, 2, 3])
def test_a_step_that_does_not_end_leaves_no_sample_and_no_trace(
    box: Box, collector: StepTimingCollector, upto: int
) -> None:
    with collector.collect() as samples:
        run_step(box, collector, upto, scale=9)
        run_step(box, collector)
        run_step(box, collector, upto, scale=9)
    assert [s.forward_ms for s in samples] == pytest.approx([2], rel=0.01)
    with collector.collect() as samples:
        collector.drafter_end()  # of the step that the last block left unfinished
    assert samples == []


def test_outside_a_block_and_outside_a_step_marks_do_nothing(
    box: Box, collector: StepTimingCollector
) -> None:
    before = len(box.vm.history), box.vm.now
    run_step(box, collector, upto=0)
    for mark in ("forward_start", "forward_end", "drafter_start", "drafter_end"):
        getattr(collector, mark)()
    with collector.collect() as samples:
        for mark in ("forward_end", "drafter_start", "drafter_end"):
            getattr(collector, mark)()
    assert samples == []
    assert (len(box.vm.history), box.vm.now) == before


def test_nested_blocks_are_an_error_and_the_outer_one_goes_on(
    box: Box, collector: StepTimingCollector
) -> None:
    with collector.collect() as samples:
        with pytest.raises(TimingError, match="already"), collector.collect():
            pytest.fail("the block must not run")
        run_step(box, collector)
    assert len(samples) == 1


@pytest.mark.guards("asyncout/step_timing.py", "self._steps = None")
def test_an_exception_in_a_block_leaves_the_collector_ready(
    box: Box, collector: StepTimingCollector
) -> None:
    lost = []

    def fail_inside() -> None:
        with collector.collect() as samples:
            lost.append(samples)
            run_step(box, collector)
            raise KeyError("body")

    with pytest.raises(KeyError):
        fail_inside()
    assert lost == [[]]
    with collector.collect() as samples:
        run_step(box, collector)
    assert len(samples) == 1


def test_a_step_that_skips_a_mark_is_told_which(box: Box, collector: StepTimingCollector) -> None:
    with collector.collect() as samples:
        collector.forward_start()
        with pytest.raises(TimingError, match=r"without forward_end and drafter_start\(\)"):
            collector.drafter_end()
        run_step(box, collector)
    assert len(samples) == 1


def test_without_a_cuda_device_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    collector = StepTimingCollector()
    collector.forward_start()  # outside a block: nothing, on any machine
    with pytest.raises(DeviceUnavailableError, match="no CUDA device"), collector.collect():
        pytest.fail("the block must not run")
    with pytest.raises(DeviceUnavailableError), collector.collect():
        pytest.fail("the block must not run")
