"""The way that results of one pair of streams take under one policy.

Everything that depends on the policy or on the streams is decided here, once,
and kept; an output only follows its path.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from asyncout import hot, inflight
from asyncout.errors import (
    DeviceMismatchError,
    MemoryFallbackWarning,
    SameStreamWarning,
    StreamTypeError,
)
from asyncout.events import PooledWait, Waiter, waiter_for
from asyncout.landing import SMALLEST_BLOCK
from asyncout.policy import CopyPolicy
from asyncout.runtime import Event, Runtime, Stream, Worker, runtime_of
from asyncout.step_fields import PROMPT_FIELDS, names_of_type
from asyncout.transfer import BatchedTransfer, Landing, Transfer, transfer_for

#: Pairs of streams whose paths are kept. An engine has one or two; a program that
#: makes a stream per step must not fill memory with paths.
MAX_KEPT_PATHS = 64

#: Enqueues other copies behind a landing's, whose arrays it may hand on but not read.
Then = Callable[[Landing], None]

#: Enqueues an output, given it, the model runner's output, the sampler's and the counts, and gives
#: True; gives False where the step is not plain, and then nothing was done.
PlainStep = Callable[[Any, Any, Any, Any], bool]


class CopyPath:
    """Streams, transfer and waiter for one policy and one pair of streams.

    Use :func:`copy_path`, which keeps paths, instead of making one.

    Attributes
    ----------
    runtime : Runtime
    main_stream, stream : Stream
        Where the sources are computed, and where copies are enqueued: the copy
        stream under ``streams="dual"``, the worker's own under ``submit="thread"``,
        else the main stream.
    device : torch.device
        Of both streams, and of every tensor that this path copies.
    may_mismatch : bool
        Whether there is a device that a tensor could be on by mistake.
    worker : Worker or None
        Who enqueues; None where the constructor does.
    plain : PlainStep or None
        All that a plain step's constructor does, in one compiled call; None where there is
        none, and until it is known what memory copies arrive in.
    memory : {"pinned", "pageable"}
        What copies arrive in. Differs from the policy's field where pinned memory
        was asked for and is not to be had; known for sure after the first copy.
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
        self.worker: Worker | None = None
        if policy.submit == "thread":
            self.worker = runtime.worker(main.device)
            copy = self.worker.stream
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
        self.memory = policy.memory
        self.memory_is_known = policy.memory != "pinned"
        self.may_mismatch = runtime.device_count() > 1
        self.is_capturing: Callable[[], bool] = runtime.is_capturing
        # A worker makes its stream wait for a point that the constructor marks.
        follows = dual and self.worker is None
        transfer = transfer_for(policy, runtime, main, self.stream, follows)
        waiter = waiter_for(policy, runtime, main.device)
        self._to_stream = runtime.switch(self.stream)
        self._to_main = runtime.switch(main)
        self._follows = follows
        self._markers = PooledWait(runtime, main.device, blocking=False)
        self.prepare: Callable[[list[torch.Tensor]], Landing] = transfer.prepare
        # Compiled, for a constructor that enqueues a plain step itself.
        self._plain = None if self.worker else _plain_step(runtime, transfer, waiter)
        self.plain: PlainStep | None = self._plain if self.memory_is_known else None
        self.wait: Callable[[Event], None] = waiter.wait
        self.recycle: Callable[[Event], None] = waiter.recycle
        self._take: Callable[[], Event] = waiter.take
        #: Records an event behind the copies enqueued so far.
        self.record: Callable[[], Event] = partial(waiter.record, self.stream)
        #: Enqueues a landing's copies, then what else there is to enqueue, then an event.
        self.enqueue: Callable[[Landing, Then | None], Event] = (
            self._enqueue_batch if transfer.is_batch else self._enqueue_on_current
        )

    def _enqueue_batch(self, landing: Landing, then: Then | None) -> Event:
        """Let one call do it all; only other copies need their stream to be current."""
        if then is None:
            event = self._take()
            landing.enqueue(event)
            return event
        landing.enqueue()
        try:
            self._to_stream()
            then(landing)
            return self.record()
        finally:
            self._to_main()

    def _enqueue_on_current(self, landing: Landing, then: Then | None) -> Event:
        """Make the copies' stream current, as the original does."""
        try:
            self._to_stream()
            if self._follows:
                self.stream.wait_stream(self.main_stream)
            landing.enqueue()
            if then is not None:
                then(landing)
            return self.record()
        finally:
            self._to_main()

    def mark_main(self) -> Event:
        """Mark the main stream's present work, for :meth:`follow`."""
        return self._markers.record(self.main_stream)

    def follow(self, marker: Event) -> None:
        """Hold copies enqueued from now on until `marker` has passed."""
        marker.wait(self.stream)
        # A waiting stream keeps the point that it was told of: the event may move on.
        self._markers.recycle(marker)

    def look_at_memory(self, sources: Sequence[torch.Tensor], landing: Landing) -> None:
        """Find out, at the first real copy, whether pinned memory was really obtained.

        Drivers fall back without a word (vllm issues 312 and 41496: WSL), and asking
        earlier would have to make a CUDA context.
        """
        for place, source in enumerate(sources):
            if source.is_cpu or source.numel() == 0:
                continue  # neither tells anything: not copied, or no memory at all
            self.memory_is_known = True
            self.plain = self._plain
            if not self.runtime.is_pinned(landing.tensor(place)):
                self.memory = "pageable"
                warnings.warn(
                    "pinned memory was asked for and pageable memory was obtained: copies "
                    "hold the host until they are done; check the limit on locked memory, "
                    "and whether this is WSL or a container without it",
                    MemoryFallbackWarning,
                    stacklevel=5,
                )
            return


def _plain_step(runtime: Runtime, transfer: Transfer, waiter: Waiter) -> PlainStep | None:
    if not isinstance(transfer, BatchedTransfer) or transfer.lane is None:
        return None
    step: PlainStep = hot.COMPILED.PlainStep(
        lane=transfer.lane,
        homes=transfer.pool.homes,
        lend=transfer.pool.lend,
        smallest_block=SMALLEST_BLOCK,
        waiter=waiter,
        clock=runtime.clock,
        dropped=inflight.kept,
        names_of_type=names_of_type,
        prompt_fields=PROMPT_FIELDS,
    )
    return step


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
    global _last
    last_policy, last_main, last_copy, last_path = _last
    # An engine passes the same objects each step: three comparisons, and no hash of a stream.
    if last_main is main_stream and last_copy is copy_stream and last_policy is policy:
        assert last_path is not None
        return last_path
    try:
        path = _kept_path(policy, main_stream, copy_stream)
    except TypeError:
        # What cannot be hashed is no stream: let the checks say so by name.
        path = CopyPath(policy, main_stream, copy_stream)
    _last = (policy, main_stream, copy_stream, path)
    return path


_kept_path = lru_cache(maxsize=MAX_KEPT_PATHS)(CopyPath)
_last: tuple[CopyPolicy | None, Any, Any, CopyPath | None] = (None, None, None, None)
