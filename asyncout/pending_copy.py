"""A set of copies under way: their sources, their destinations, the event after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asyncout import inflight
from asyncout.copy_path import CopyPath
from asyncout.errors import DeviceMismatchError, GraphCaptureError
from asyncout.runtime import Event
from asyncout.tree import gather, named_tensors, rebuild


class PendingCopy:
    """Enqueues the copies of everything that `sources` holds, then one event.

    Parameters
    ----------
    path : CopyPath
    sources : record
        Its tensors are copied in field order (see :mod:`asyncout.tree`).
    then : callable, optional
        Called on the copy stream with the host twin of `sources` (contents not yet
        there) to enqueue copies of its own before the event. Kept alive with it.

    Raises
    ------
    GraphCaptureError
        The current stream is being captured. Nothing was enqueued.
    DeviceMismatchError
        A tensor is on another device than the streams. Nothing was enqueued.
    """

    __slots__ = ("_event", "_host", "_kept", "_landing", "_path", "_sources")

    def __init__(
        self, path: CopyPath, sources: Any, then: Callable[[Any], None] | None = None
    ) -> None:
        self._kept: Any = None
        tensors: list[torch.Tensor] = []
        gather(sources, tensors)
        _check_can_copy(path, sources, tensors)
        inflight.release_passed()

        self._path = path
        self._sources = sources
        self._host: Any = None
        self._event: Event | None = None
        self._landing = landing = path.prepare(tensors)
        touched = (sources, landing, then)
        switches = path.switches or then is not None
        try:
            if switches:
                path.runtime.set_stream(path.stream)
            path.follow_main()
            landing.enqueue(path.stream)
            if then is not None:
                then(self.host())
            self._event = path.record()
        except BaseException:
            _leave_behind(path, touched)
            raise
        finally:
            if switches:
                path.runtime.set_stream(path.main_stream)
        # Another stream reads the sources: without a reference the allocator would
        # give their memory to the main stream's next kernel.
        self._kept = touched
        path.look_at_memory(tensors, landing)

    def host(self) -> Any:
        """Give the twin of `sources` on the host; read it only after :meth:`wait`.

        Making it takes time that is free until the copies have arrived.
        """
        if self._host is None:
            self._host = rebuild(self._sources, iter(self._landing.arrivals()))
        return self._host

    def wait(self) -> None:
        """Return when every copy has arrived, and let go of the sources.

        Raises
        ------
        Exception
            What the driver reports, as it reports it; the sources stay kept.
        """
        event = self._event
        if event is None:
            return
        self._path.wait(event)
        self.host()
        self._event = self._kept = self._sources = self._landing = None  # type: ignore[assignment]
        self._path.recycle(event)

    def has_arrived(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        event = self._event
        # Asked again behind the query: another thread's wait may have given the event away.
        return event is None or event.query() or self._event is None

    def make_stream_wait(self, stream: Any = None) -> None:
        """Make later work of `stream` (default: the main stream) wait for the copies."""
        event = self._event
        if event is not None:
            path = self._path
            target = path.main_stream if stream is None else path.runtime.as_stream(stream)
            event.wait(target)

    def __del__(self) -> None:
        if self._kept is not None:
            assert self._event is not None
            inflight.keep_until(self._event, self._kept, self._path.recycle)


def _check_can_copy(path: CopyPath, sources: Any, tensors: list[torch.Tensor]) -> None:
    if path.runtime.is_capturing():
        raise GraphCaptureError(
            "an output was constructed while a CUDA graph is being captured: its copies would "
            "become part of the graph and its event would never pass; construct it after the "
            "capture, behind each replay"
        )
    device = path.device
    for tensor in tensors:
        if tensor.device != device and not tensor.is_cpu:
            names = [name for name, part in named_tensors(sources) if part is tensor]
            raise DeviceMismatchError(
                f"{names[0]} is on {tensor.device} and the streams are on {device}; use the "
                "streams of the device that computed it"
            )


def _leave_behind(path: CopyPath, touched: Any) -> None:
    """Keep what the copies of a failed construction touch until they are done."""
    try:
        inflight.keep_until(path.record(), touched, path.recycle)
    except Exception:
        # No event to be had. The one wait in a constructor, and only on this path:
        # returning would free memory under a running copy.
        try:
            path.stream.synchronize()
        except Exception:
            # The device is lost; its copies will not run. The first error tells why.
            inflight.keep_forever(touched)
