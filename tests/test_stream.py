"""``stream()`` keeps its two promises: the block's stream is current, and the other after it."""

from __future__ import annotations

import pytest
from steps import Box

from asyncout import StreamTypeError, stream
from asyncout.virtual import VirtualMachine


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.mark.guards("asyncout/stream.py", "self._to()")
@pytest.mark.guards("asyncout/stream.py", "self._from()", nth=2)
def test_the_block_runs_on_one_stream_and_the_other_is_current_after_it(box: Box) -> None:
    with stream(box.copy, box.main):
        assert box.vm.current_stream() == box.copy
    assert box.vm.current_stream() == box.main


def test_it_goes_back_when_the_body_raises(box: Box) -> None:
    with pytest.raises(KeyError), stream(box.copy, box.main):
        raise KeyError("body")
    assert box.vm.current_stream() == box.main


def test_it_goes_back_to_what_it_was_told_and_asks_nothing(box: Box) -> None:
    third = box.vm.stream()
    with stream(box.copy, third):
        pass
    assert box.vm.current_stream() == third


@pytest.mark.guards("asyncout/stream.py", "self._from()")
def test_a_switch_that_fails_leaves_the_main_stream_current() -> None:
    box = Box(VirtualMachine(devices=2))
    block = stream(box.copy, box.main)
    switch = block._to

    def fail_after_switching() -> None:
        switch()
        raise RuntimeError("planted")

    block._to = fail_after_switching
    with pytest.raises(RuntimeError, match="planted"), block:
        pytest.fail("the block must not run")
    assert box.vm.current_stream() == box.main


def test_one_switch_serves_nested_blocks_and_many_threads(box: Box) -> None:
    with stream(box.copy, box.main):
        with stream(box.copy, box.main):
            assert box.vm.current_stream() == box.copy
        assert box.vm.current_stream() == box.main
    third = box.vm.stream()
    with stream(third, box.main):
        assert box.vm.current_stream() == third
    with stream(box.copy, third):
        assert box.vm.current_stream() == box.copy
    assert box.vm.current_stream() == third


@pytest.mark.parametrize("bad", [None, "stream", 3])
def test_what_is_no_stream_is_refused_before_anything_is_switched(box: Box, bad: object) -> None:
    for arguments in ((bad, box.main), (box.copy, bad)):
        with pytest.raises(StreamTypeError, match=type(bad).__name__):
            stream(*arguments)
    assert box.vm.current_stream() == box.main


def test_streams_of_different_kinds_of_device_are_refused(box: Box) -> None:
    with pytest.raises(StreamTypeError, match="different kinds of device"):
        stream(box.copy, Box().main)
