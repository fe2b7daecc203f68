"""The way that results of one pair of streams take under one policy.

Everything that depends on the policy or on the streams is decided here, once,
and kept; an output only follows its path.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from asyncout.errors import (
    DeviceMismatchError,
    MemoryFallbackWarning,
    SameStreamWarning,
    StreamTypeError,
)
from asyncout.events import waiter_for
from asyncout.policy import CopyPolicy
from asyncout.runtime import Event, Runtime, Stream, runtime_of
from asyncout.transfer import transfer_for

#: Pairs of streams whose paths are kept. An engine has one or two; a program that
#: makes a stream per step must not fill memory with paths.
MAX_KEPT_PATHS = 64


class CopyPath:
    """Streams, transfer and waiter for one policy and one pair of streams.

    Use :func:`copy_path`, which keeps paths, instead of making one.

    Attributes
    ----------
    runtime : Runtime
    main_stream, stream : Stream
        Where the sources are computed, and where copies are enqueued: the copy
        stream under ``streams="dual"``, else the main stream.
    """

    def __init__(self, policy: CopyPolicy, main_stream: Any, copy_stream: Any) -> None:
        runtime = runtime_of(main_stream)
        if runtime_of(copy_stream) is not runtime:
            raise StreamTypeError(
                f"main_stream {main_stream!r} and copy_stream {copy_stream!r} "
                "belong to different kinds of device"
            )
        main = runtime.as_stream(main_stream)
        copy = runtime.as_stream(copy_stream)
        if main.device != copy.device:
            raise DeviceMismatchError(
                f"main_stream is on {main.device} and copy_stream on {copy.device}; "
                "make both on the device that computes the step"
            )
        dual = policy.streams == "dual"
        if dual and main == copy:
            warnings.warn(
                "copy_stream is main_stream under another name, so copies overlap nothing; "
                "torch hands streams out of a pool: make the copy stream first and keep it",
                SameStreamWarning,
                stacklevel=4,
            )
        self.runtime: Runtime = runtime
        self.main_stream: Stream = main
        self.stream: Stream = copy if dual else main
        self.device: torch.device = main.device
        self._transfer = transfer_for(policy)
        self._waiter = waiter_for(policy, runtime, main.device)
        # On one stream the order of work is the order of calls.
        self.follow_main: Callable[[], None] = self._wait_for_main if dual else _do_nothing
        self.memory = policy.memory
        self._memory_is_known = policy.memory != "pinned"
        self.wait: Callable[[Event], None] = self._waiter.wait

    def _wait_for_main(self) -> None:
        self.stream.wait_stream(self.main_stream)

    def enqueue(self, sources: Sequence[torch.Tensor], arrived: list[torch.Tensor]) -> None:
        """Enqueue copies on the current stream; append their destinations to `arrived`."""
        self._transfer.enqueue(sources, arrived)
        if not self._memory_is_known:
            self._look_at_memory(sources, arrived)

    def _look_at_memory(
        self, sources: Sequence[torch.Tensor], arrived: Sequence[torch.Tensor]
    ) -> None:
        """Find out, at the first real copy, whether pinned memory was really obtained.

        Drivers fall back without a word (vllm issues 312 and 41496: WSL), and asking
        earlier would have to make a CUDA context.
        """
        for source, destination in zip(sources, arrived, strict=True):
            if source.is_cpu or source.numel() == 0:
                continue  # neither tells anything: not copied, or no memory at all
            self._memory_is_known = True
            if not self.runtime.is_pinned(destination):
                self.memory = "pageable"
                warnings.warn(
                    "pinned memory was asked for and pageable memory was obtained: copies "
                    "hold the host until they are done; check the limit on locked memory, "
                    "and whether this is WSL or a container without it",
                    MemoryFallbackWarning,
                    stacklevel=5,
                )
            return

    def record(self) -> Event:
        """Record a new event behind the copies enqueued so far."""
        event = self._waiter.new_event()
        event.record(self.stream)
        return event


def copy_path(policy: CopyPolicy, main_stream: Any, copy_stream: Any) -> CopyPath:
    """Give the kept path for a policy and a pair of streams.

    Parameters
    ----------
    policy : CopyPolicy
    main_stream, copy_stream : torch.cuda.Stream or asyncout.virtual.VirtualStream

    Returns
    -------
    CopyPath

    Raises
    ------
    StreamTypeError
        An argument is no stream, or the two belong to different kinds of device.
    DeviceMismatchError
        The streams are on different devices.

    Warns
    -----
    SameStreamWarning
        Under ``streams="dual"`` both are one stream. Said once per pair.
    """
    try:
        return _kept_path(policy, main_stream, copy_stream)
    except TypeError:
        # What cannot be hashed is no stream: let the checks say so by name.
        return CopyPath(policy, main_stream, copy_stream)


_kept_path = lru_cache(maxsize=MAX_KEPT_PATHS)(CopyPath)


def _do_nothing() -> None:
    """Order copies behind the main stream's work where they run on it anyway."""
