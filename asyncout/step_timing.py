"""``StepTimingCollector``: device time of an engine's steps, with one wait at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from asyncout.errors import DeviceUnavailableError, TimingError
from asyncout.runtime import Runtime


class StepTimingSample(NamedTuple):
    """One step's device times.

    Attributes
    ----------
    forward_ms : float
        Milliseconds on the device from ``forward_start`` to ``forward_end``.
    drafter_ms : float
        Milliseconds on the device from ``drafter_start`` to ``drafter_end``.
    num_target_tokens : int
        Tokens of the batch (``input_batch.num_tokens``).
    num_reqs : int
        Requests of the batch.
    full_cudagraph : bool
        Whether the step ran as one CUDA graph.
    """

    forward_ms: float
    drafter_ms: float
    num_target_tokens: int
    num_reqs: int
    full_cudagraph: bool


#: A step's marks in their order, as errors name them.
MARKS = ("forward_start", "forward_end", "drafter_start", "drafter_end")


class _Step:
    """The events of one step, recorded again for another once they have been read.

    Attributes
    ----------
    events : list of Event
        One per mark.
    device : torch.device
    batch : tuple
    reached : list of int
        Marks of the present step.
    """

    __slots__ = ("_record", "batch", "device", "events", "reached")

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.events = [runtime.new_pooled_event(device, timing=True) for _ in MARKS]
        self.device = device
        self.batch = (0, 0, False)
        self.reached: list[int] = []
        self._record = runtime.recorder(device)

    def mark(self, number: int) -> None:
        self._record(self.events[number])
        self.reached.append(number)

    def sample(self) -> StepTimingSample:
        forward_start, forward_end, drafter_start, drafter_end = self.events
        return StepTimingSample(
            forward_start.elapsed_time(forward_end),
            drafter_start.elapsed_time(drafter_end),
            *self.batch,
        )


class StepTimingCollector:
    """Times forward and drafter of each step inside a ``collect()`` block.

    The marks record events on the current stream and never wait; outside a block
    they do nothing, so an engine may leave them in its step for good.

    Parameters
    ----------
    runtime : Runtime, optional
        Which device the events belong to. Default: ``torch.cuda``.
    """

    def __init__(self, runtime: Runtime | None = None) -> None:
        self._runtime = runtime
        self._batch = (0, 0, False)
        self._steps: list[_Step] | None = None
        self._current: _Step | None = None
        #: Steps whose events nobody will read any more, by their device.
        self._free: dict[torch.device, list[_Step]] = {}

    @contextmanager
    def collect(self) -> Iterator[list[StepTimingSample]]:
        """Collect samples of the steps that run inside the block.

        Yields
        ------
        list of StepTimingSample
            Empty until the block ends, then one sample per step that reached
            :meth:`drafter_end`, in order. The end of the block waits once, for the
            last step's last event.

        Raises
        ------
        TimingError
            The collector is collecting already.
        DeviceUnavailableError
            No runtime was given and there is no CUDA device.
        """
        if self._steps is not None:
            raise TimingError(
                "collect() inside collect(): the collector is collecting already; use the list "
                "of the outer block, or a second StepTimingCollector"
            )
        self._find_runtime()
        samples: list[StepTimingSample] = []
        steps: list[_Step] = []
        self._steps = steps
        self._current = None
        try:
            yield samples
        finally:
            # Before anything can raise: the next block must start afresh.
            self._steps = None
            self._current = None
        if steps:
            last = steps[-1].events[-1]
            last.synchronize()
            samples.extend(step.sample() for step in steps)
            for step in steps:
                self._free[step.device].append(step)

    def record_batch(self, input_batch: Any, full_cudagraph: bool) -> None:
        """Note the batch of the steps that follow.

        Parameters
        ----------
        input_batch : object
            With ``num_tokens`` and ``num_reqs``.
        full_cudagraph : bool
        """
        self._batch = (input_batch.num_tokens, input_batch.num_reqs, full_cudagraph)

    def forward_start(self) -> None:
        """Mark the start of a step; a step under way that did not end is forgotten."""
        if self._steps is not None:
            step = self._current
            if step is None:
                step = self._current = self._take_step()
            step.batch = self._batch
            step.reached.clear()
            step.mark(0)

    def forward_end(self) -> None:
        """Mark the end of the step's forward pass."""
        if self._current is not None:
            self._current.mark(1)

    def drafter_start(self) -> None:
        """Mark the start of the step's drafter."""
        if self._current is not None:
            self._current.mark(2)

    def drafter_end(self) -> None:
        """Mark the end of the step, which now has a sample.

        Raises
        ------
        TimingError
            The step has no :meth:`forward_end` or no :meth:`drafter_start`.
        """
        step, self._current = self._current, None
        if step is None or self._steps is None:
            return
        if step.reached[-2:] != [1, 2]:
            missing = [name for n, name in enumerate(MARKS[:-1]) if n not in step.reached]
            raise TimingError(
                f"drafter_end() on a step without {' and '.join(missing)}(): call the four marks "
                "of a step in order; this step leaves no sample"
            )
        step.mark(3)
        self._steps.append(step)

    def _take_step(self) -> _Step:
        """Give a step with events of the current device; a new one where all are in use."""
        assert self._runtime is not None  # found when the block began
        device = self._runtime.current_device()
        free = self._free.setdefault(device, [])
        return free.pop() if free else _Step(self._runtime, device)

    def _find_runtime(self) -> None:
        """Take ``torch.cuda`` where no runtime was given."""
        if self._runtime is not None:
            return
        if not torch.cuda.is_available():
            raise DeviceUnavailableError(
                "step timing found no CUDA device; pass the runtime of another device's streams"
            )
        from asyncout.cuda_runtime import CUDA

        self._runtime = CUDA
