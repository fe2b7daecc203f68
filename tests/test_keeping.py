"""Kept references beside ``record_stream``: the protocol here, the allocator on the GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import keeping
from benchmarks.devices import VirtualDevice, cuda_device
from benchmarks.grids import keeping as grid


class Source:
    """A tensor that knows who was told of its use."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def to(self, where: str, non_blocking: bool) -> str:
        assert (where, non_blocking) == ("cpu", True)
        self.log.append("copy")
        return "host"

    def record_stream(self, stream: Any) -> None:
        self.log.append(f"recorded on {stream.name}")


class Event:
    def record(self, stream: Any) -> None:
        stream.log.append(f"event on {stream.name}")

    def synchronize(self) -> None:
        pass


def device_with(log: list[str]) -> Any:
    main = SimpleNamespace(name="main", log=log)
    copy = SimpleNamespace(name="copy", log=log, wait_stream=lambda s: log.append("waits"))
    runtime = SimpleNamespace(
        new_event=Event, set_stream=lambda stream: log.append(f"on {stream.name}")
    )
    return SimpleNamespace(main=main, copy=copy, runtime=runtime)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_sources_are_kept_or_recorded_and_never_both(is_recorded: bool) -> None:
    log: list[str] = []
    sources = [Source(log)]
    bare = sys.getrefcount(sources[0])
    output = keeping.FreshOutput(device_with(log), sources, is_recorded)
    source = sources[0]
    del sources
    kept = sys.getrefcount(source) == bare + 1  # the output's list, and the name here
    assert kept != is_recorded
    called = ["waits", "on copy", "copy", "event on copy", "on main"]
    assert log == called + ["recorded on copy"] * is_recorded
    assert output.get_output() == ["host"]
    assert sys.getrefcount(source) == bare


def test_virtual_memory_has_no_allocator() -> None:
    for name in grid.NAMES:
        assert list(grid.cells(VirtualDevice(), name)) == []


@pytest.mark.gpu
def test_a_full_memory_has_room_for_kept_references_and_no_more() -> None:
    device = cuda_device()
    size = grid.LARGE.num_bytes
    with keeping.room_for(grid.ROOM * size):
        seconds, most = keeping.step_time(device, grid.LARGE, is_recorded=False, behind=1)
        assert seconds > 0
        assert 2 * size <= most <= grid.ROOM * size
        # What was recorded before must not be counted as in use now.
        _, recorded = keeping.step_time(device, grid.LARGE, is_recorded=True, behind=1)
        _, again = keeping.step_time(device, grid.LARGE, is_recorded=False, behind=1)
        assert again == most
        assert size <= recorded <= grid.ROOM * size
        with pytest.raises(torch.cuda.OutOfMemoryError):
            grid.LARGE.__class__(grid.ROOM + 1, size).make()
    assert len(keeping.Sources(grid.ROOM + 1, size).make()) == grid.ROOM + 1
