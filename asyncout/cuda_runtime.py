"""The runtime seam on ``torch.cuda``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any

import torch

from asyncout.cuda_driver import DriverEvent, driver, recorder, submitter
from asyncout.errors import StreamTypeError
from asyncout.precise_sleep import precise_sleep
from asyncout.runtime import Event, Submit
from asyncout.worker import ThreadWorker


class CudaRuntime:
    """Streams and events of ``torch.cuda``. Importing or making it needs no GPU."""

    def __init__(self) -> None:
        self._workers: dict[torch.device, ThreadWorker] = {}
        self._making = Lock()

    def as_stream(self, stream: Any) -> torch.cuda.Stream:
        """Give `stream` as a ``torch.cuda.Stream``.

        ``torch.accelerator.current_stream()`` gives the generic ``torch.Stream``,
        which ``torch.cuda.Event.record`` refuses (pytorch issue 173792); the same
        stream under its CUDA class works everywhere.
        """
        if isinstance(stream, torch.cuda.Stream):
            return stream
        if isinstance(stream, torch.Stream) and stream.device.type == "cuda":
            return torch.cuda.Stream(
                stream_id=stream.stream_id,
                device_index=stream.device_index,
                device_type=stream.device_type,
            )
        raise StreamTypeError(
            f"expected a CUDA stream, got {stream!r} of type {type(stream).__name__}; "
            "pass a torch.cuda.Stream"
        )

    def set_stream(self, stream: Any) -> None:
        """Make `stream`, and its device, current for the calling thread."""
        _set_stream(stream.stream_id, stream.device_index, stream.device_type)

    def switch(self, stream: Any) -> Callable[[], None]:
        """Give a function that does what :meth:`set_stream` does with `stream`."""
        own = self.as_stream(stream)
        return partial(_set_stream, own.stream_id, own.device_index, own.device_type)

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> torch.cuda.Event:
        """Make an event; with `blocking` its ``synchronize`` sleeps, else it spins.

        ``torch.Event(blocking=True)`` ignores the flag on CUDA (pytorch issue
        189017); ``torch.cuda.Event`` honours it.
        """
        return torch.cuda.Event(enable_timing=timing, blocking=blocking)

    def new_pooled_event(
        self, device: torch.device, *, blocking: bool = False, timing: bool = False
    ) -> Event:
        """Make an event of the driver's, without torch's object around it."""
        return DriverEvent(device.index, blocking, timing)

    def recorder(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that records a pooled event in the current stream of a device."""
        return recorder(device.index)

    def current_device(self) -> torch.device:
        """Give the calling thread's current device."""
        return torch.device("cuda", _current_device())

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a CUDA graph."""
        return _is_capturing()

    def empty_host(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        """Make a host tensor, page-locked if asked for."""
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=pinned)

    def device_count(self) -> int:
        """How many devices there are."""
        return torch.cuda.device_count()

    def submitter(self, main: Any, copy: Any) -> Submit:
        """Give a function that enqueues a step's copies with as few driver calls as can be."""
        return submitter(main, copy)

    def worker(self, device: torch.device) -> ThreadWorker:
        """Give the one worker of a device, with a stream of its own there."""
        with self._making:
            if device not in self._workers:
                stream = torch.cuda.Stream(device)
                enter = partial(self._enter, stream)
                self._workers[device] = ThreadWorker(stream, enter)
            return self._workers[device]

    def _enter(self, stream: torch.cuda.Stream) -> None:
        """Make a stream and its context current in a new thread."""
        self.set_stream(stream)
        driver().enter(stream.device_index)

    def is_pinned(self, host_tensor: torch.Tensor) -> bool:
        """Whether a host tensor's memory is page-locked."""
        return host_tensor.is_pinned()

    def synchronizer(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that waits for an event, from any thread, touching only `device`.

        A thread that never touched CUDA has device 0 current, and torch's wait there would
        make a context of hundreds of MiB on it (vllm issue 37449). With one device there is
        no other to touch; a pooled event knows its own context.
        """
        if self.device_count() == 1:
            return _synchronize

        def synchronize_on_device(event: Any) -> None:
            if isinstance(event, DriverEvent):
                event.synchronize()
            else:
                with torch.cuda.device(device):
                    event.synchronize()

        return synchronize_on_device

    #: Seconds on the host's clock: the system's function itself, without a frame around it.
    clock = staticmethod(perf_counter)

    def sleep(self, seconds: float) -> None:
        """Let the calling thread sleep with the least timer slack."""
        precise_sleep(seconds)


def _synchronize(event: Any) -> None:
    event.synchronize()


# What torch.cuda.is_current_stream_capturing and torch.cuda.set_stream call, without the Python
# around them; a build without CUDA has neither, and needs none.
_is_capturing: Callable[[], bool] = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_set_stream: Callable[[int, int, int], None] = getattr(torch._C, "_cuda_setStream", None)  # type: ignore[assignment]

#: The one CUDA runtime of the process.
CUDA = CudaRuntime()
