"""The runtime seam on ``torch.cuda``."""

from __future__ import annotations

from typing import Any

import torch

from asyncout.errors import StreamTypeError


class CudaRuntime:
    """Streams and events of ``torch.cuda``. Importing or making it needs no GPU."""

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
        torch.cuda.set_stream(stream)

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> torch.cuda.Event:
        """Make an event; with `blocking` its ``synchronize`` sleeps, else it spins.

        ``torch.Event(blocking=True)`` ignores the flag on CUDA (pytorch issue
        189017); ``torch.cuda.Event`` honours it.
        """
        return torch.cuda.Event(enable_timing=timing, blocking=blocking)

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a CUDA graph."""
        return torch.cuda.is_current_stream_capturing()

    def is_pinned(self, host_tensor: torch.Tensor) -> bool:
        """Whether a host tensor's memory is page-locked."""
        return host_tensor.is_pinned()

    def synchronize_event(self, event: Any, device: torch.device) -> None:
        """Wait for `event` with `device` current.

        A thread that never touched CUDA has device 0 current, and a driver call
        there would make a context of hundreds of MiB on it (vllm issue 37449).
        """
        with torch.cuda.device(device):
            event.synchronize()


#: The one CUDA runtime of the process.
CUDA = CudaRuntime()
