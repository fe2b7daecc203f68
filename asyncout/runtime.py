"""The seam: all that the library asks of a device.

Two runtimes implement it: :mod:`asyncout.cuda_runtime` on ``torch.cuda`` and
:mod:`asyncout.virtual` in virtual time. A stream knows its runtime, and nothing
else in the library asks which one it has. Tensors speak torch on every runtime, so a
copy needs a method here only where it is to be more direct than torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch

from asyncout.errors import StreamTypeError


class Event(Protocol):
    """A point in a stream. Same method names as ``torch.cuda.Event``."""

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work now in `stream` (default: the current one)."""

    def synchronize(self) -> None:
        """Hold the calling thread until the point has passed."""

    def query(self) -> bool:
        """Whether the point has passed; never waits."""

    def wait(self, stream: Any = None) -> None:
        """Hold later work of `stream` (default: the current one) until the point has passed."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to a later one, both passed and timed."""


class Stream(Protocol):
    """A queue of device work. Same method names as ``torch.cuda.Stream``."""

    @property
    def device(self) -> torch.device:
        """The device that the stream's work runs on."""

    def wait_stream(self, stream: Any) -> None:
        """Hold this stream's later work until `stream`'s present work is done."""

    def wait_event(self, event: Any) -> None:
        """Hold this stream's later work until `event` has passed."""

    def synchronize(self) -> None:
        """Hold the calling thread until the stream is empty."""


class HostBlock(Protocol):
    """A block of host memory that copies arrive in.

    Attributes
    ----------
    memory : torch.Tensor, uint8
    address : int
    """

    memory: torch.Tensor
    address: int


class Submit(Protocol):
    """Enqueues a step's copies as one, behind the main stream's present work.

    Attributes
    ----------
    lane : Lane or None
        The same, compiled, for steps that need nothing but copies; None without it.
    """

    lane: Any

    def __call__(
        self,
        sources: list[torch.Tensor],
        sizes: list[int],
        offsets: list[int],
        block: HostBlock,
        event: Any,
    ) -> None:
        """Enqueue copies of contiguous tensors, with bytes in each, to offsets in a block.

        `event`, if there is one, is recorded behind them. The caller keeps all of it.
        """


#: What a worker runs: called with what kept its thread from its stream, or None.
Job = Callable[["BaseException | None"], None]


class Worker(Protocol):
    """A thread that runs jobs one after the other, with a stream of its own.

    Attributes
    ----------
    stream : Stream
    """

    stream: Any

    def run(self, job: Job) -> None:
        """Have a job run behind the earlier ones. It must not raise."""


class Runtime(Protocol):
    """A kind of device: how to make its events and switch its streams."""

    def as_stream(self, stream: Any) -> Stream:
        """Give `stream` as this runtime's own class, or raise StreamTypeError."""

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> Event:
        """Make an event; with `blocking` its ``synchronize`` sleeps, else it spins."""

    def new_pooled_event(
        self, device: torch.device, *, blocking: bool = False, timing: bool = False
    ) -> Event:
        """Make an event of a device, to be recorded again and again, as cheaply as can be.

        From any thread, whatever device is current there.
        """

    def recorder(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that records an event in the current stream of a device."""

    def current_device(self) -> torch.device:
        """Give the calling thread's current device."""

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""

    def empty_host(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        """Make a host tensor, page-locked if asked for and to be had."""

    def is_pinned(self, host_tensor: torch.Tensor) -> bool:
        """Whether a host tensor's memory is page-locked for this device."""

    def device_count(self) -> int:
        """How many devices there are: with one, no tensor can be on another."""

    def set_stream(self, stream: Any) -> None:
        """Make `stream`, and its device, current for the calling thread."""

    def switch(self, stream: Any) -> Callable[[], None]:
        """Give a function that does what :meth:`set_stream` does with `stream`."""

    def submitter(self, main: Any, copy: Any) -> Submit:
        """Give a function that enqueues a step's copies on `copy` behind the work of `main`.

        With `main` None they wait for nothing. The current stream plays no part.
        """

    def worker(self, device: torch.device) -> Worker:
        """Give the one worker of a device; its thread starts with the first job."""

    def synchronizer(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that waits for an event, from any thread, touching only `device`."""

    def clock(self) -> float:
        """Seconds on the host's clock."""

    def sleep(self, seconds: float) -> None:
        """Let the calling thread sleep, as exactly as the system can."""


def runtime_of(stream: Any) -> Runtime:
    """Find the runtime that a stream belongs to.

    Parameters
    ----------
    stream : torch.cuda.Stream, torch.Stream or asyncout.virtual.VirtualStream

    Raises
    ------
    StreamTypeError
        `stream` is no stream, or one of a device type without a runtime here.
    """
    if not isinstance(stream, torch.Stream):
        runtime = getattr(stream, "asyncout_runtime", None)
        if runtime is None:
            raise StreamTypeError(
                f"expected a stream, got {type(stream).__name__}; "
                "pass a torch.cuda.Stream or an asyncout.virtual stream"
            )
        return cast(Runtime, runtime)
    global _cuda_runtime
    if _cuda_runtime is None:
        from asyncout.cuda_runtime import CUDA  # imported late: it imports this module

        _cuda_runtime = CUDA
    return _cuda_runtime


_cuda_runtime: Runtime | None = None
