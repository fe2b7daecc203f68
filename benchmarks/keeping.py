"""Two ways to keep a step's tensors until they are copied, on memory that is new each step.

``kept``: the output holds references until it has been read, as the library does.
``recorded``: ``Tensor.record_stream`` tells torch's allocator of the copy stream, and the
references are dropped at once. Torch's allocator is what differs, so these run on a GPU only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.devices import BenchDevice
from benchmarks.loops import go_cold

#: Kernel time of a step, seconds: short, so that the host's time and the copies show.
COMPUTE_S = 0.5e-3

#: Steps of a sample.
STEPS = 20


@dataclass(frozen=True)
class Sources:
    """The tensors of a step: how many, and bytes of each."""

    tensors: int
    num_bytes: int

    def make(self) -> list[torch.Tensor]:
        """Allocate them on the current stream, as a sampler does."""
        return [
            torch.empty(self.num_bytes, dtype=torch.uint8, device="cuda")
            for _ in range(self.tensors)
        ]


class FreshOutput:
    """Copies of one step's tensors on their way, one call a tensor.

    Parameters
    ----------
    device : BenchDevice
    sources : list of torch.Tensor
    is_recorded : bool
        Tell the allocator of the copy stream, and keep no reference.
    """

    def __init__(self, device: BenchDevice, sources: list[Any], is_recorded: bool) -> None:
        self._event = device.runtime.new_event()
        device.copy.wait_stream(device.main)
        device.runtime.set_stream(device.copy)
        self._host = [source.to("cpu", non_blocking=True) for source in sources]
        self._event.record(device.copy)
        device.runtime.set_stream(device.main)
        self._kept: Sequence[Any] = ()
        if is_recorded:
            for source in sources:
                source.record_stream(device.copy)
        else:
            self._kept = sources

    def get_output(self) -> list[torch.Tensor]:
        """Wait, let the sources go and give the tensors on the host."""
        self._event.synchronize()
        self._kept = ()
        return self._host


def step_time(
    device: BenchDevice, sources: Sources, is_recorded: bool, behind: int
) -> tuple[float, float]:
    """Run a loop that reads each output some steps later.

    Returns
    -------
    (float, float)
        Seconds a step; bytes of device memory that the sources had at the most, those
        included that wait for the allocator to see that their copy is done.
    """
    device.synchronize()
    # The allocator looks only when it is asked for memory; until then, what the last loop
    # recorded counts as in use.
    torch.empty(1, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = _active_bytes("current")
    pending: deque[FreshOutput] = deque()
    begin = device.clock()
    for _ in range(STEPS):
        made = sources.make()
        device.busy(COMPUTE_S)
        pending.append(FreshOutput(device, made, is_recorded))
        del made
        if len(pending) > behind:
            pending.popleft().get_output()
    while pending:
        pending.popleft().get_output()
    elapsed = device.clock() - begin
    return elapsed / STEPS, float(_active_bytes("peak") - before)


def host_time(device: BenchDevice, sources: Sources, is_recorded: bool) -> float:
    """Time a step's calls on a cold host: allocation, copies, keeping, and letting go.

    The wait between is not in it.
    """
    go_cold(device)
    begin = device.clock()
    output = FreshOutput(device, sources.make(), is_recorded)
    enqueued = device.clock() - begin
    device.synchronize()
    begin = device.clock()
    output.get_output()
    return enqueued + device.clock() - begin


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Let torch have so many bytes of device memory beside what it has now, inside this block."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + num_bytes) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _active_bytes(which: str) -> int:
    """Count bytes in use, or not yet known to be free."""
    return int(torch.cuda.memory_stats()[f"active_bytes.all.{which}"])
