"""Waiting as users want it: with a time limit, by asking, and in asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from steps import Box

from asyncout import AsyncOutput, AsyncPoolingOutput, OutputTimeoutError

MS = 1e-3


@pytest.fixture
def box() -> Box:
    return Box()


def late_output(box: Box, seconds: float = 50 * MS, **arguments) -> AsyncOutput:
    box.vm.busy(seconds)
    return box.output([[1], [2]], **arguments)


def test_a_timeout_names_requests_and_fields_and_the_output_stays_readable(box: Box) -> None:
    # vllm issues 42897 and 53771
    output = late_output(box, nans=[0, 0])
    before = box.vm.now
    with pytest.raises(
        OutputTimeoutError, match=r"2 requests \(r0, r1\).*after 0\.005 s"
    ) as caught:
        output.get_output(timeout=5 * MS)
    assert "waiting for num_nans, num_sampled_tokens, sampled_token_ids" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    assert 5 * MS <= box.vm.now - before < 7 * MS
    assert output.get_kv_connector_output() is None
    assert output.get_output(timeout=100 * MS).sampled_token_ids == [[1], [2]]
    assert output.get_output(timeout=0).sampled_token_ids == [[1], [2]]


def test_a_timeout_of_nothing_asks_once(box: Box) -> None:
    output = late_output(box)
    with pytest.raises(OutputTimeoutError):
        output.get_output(timeout=0)
    box.vm.host_work(100 * MS)
    assert output.get_output(timeout=0).sampled_token_ids == [[1], [2]]


def test_ready_answers_at_once(box: Box) -> None:
    output = late_output(box)
    before = box.vm.now
    assert not output.ready()
    assert box.vm.now - before < 0.1 * MS
    box.vm.host_work(100 * MS)
    assert output.ready()
    output.get_output()
    assert output.ready()
    nothing = AsyncPoolingOutput(
        box.runner_output(1), box.vm.empty((1, 2), torch.float32), [False], box.main, box.copy
    )
    assert nothing.ready()


def test_a_lost_device_is_ready_to_raise(box: Box) -> None:
    output = late_output(box)
    box.vm.fail_device(RuntimeError("lost"))
    assert output.ready()
    with pytest.raises(RuntimeError, match="lost"):
        output.get_output()
    with pytest.raises(RuntimeError, match="lost"):
        output.get_output(timeout=1)


def test_outputs_are_awaited_while_the_loop_runs_on(box: Box) -> None:
    # lmdeploy polls an event every millisecond
    async def main() -> list:
        outputs = [late_output(box, MS) for _ in range(3)]
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            for _ in range(5):
                await asyncio.sleep(0)
                ticks += 1

        async def read(output: AsyncOutput):
            return await output

        *results, _ = await asyncio.gather(*(read(o) for o in outputs), tick())
        assert ticks == 5
        assert await outputs[0] is results[0]
        return results

    for result in asyncio.run(main()):
        assert result.sampled_token_ids == [[1], [2]]


def test_an_error_reaches_whoever_awaits(box: Box) -> None:
    async def main() -> None:
        output = box.output([[1]], [7])
        for _ in range(2):
            with pytest.raises(ValueError, match="r0: 7"):
                await output

    asyncio.run(main())


def test_two_threads_that_wait_get_one_object(box: Box) -> None:
    output = late_output(box)
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda t=t: got.append(output.get_output(timeout=t)))
        for t in (None, 1.0, 2.0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 3
    assert len({id(each) for each in got}) == 1
