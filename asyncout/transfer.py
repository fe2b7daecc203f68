"""How bytes reach the host: one class per value of ``CopyPolicy.copies``.

A transfer prepares landings, where a step's tensors will be on the host, and enqueues
the copies into them. It never waits for the device, but for pageable destinations, for
which the driver itself holds the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from asyncout.landing import ALIGNMENT, Block, BlockPool, Lease, view_of
from asyncout.policy import CopyPolicy
from asyncout.runtime import BlockCopier, Runtime


class Landing(Protocol):
    """Where the tensors of one step land. Whoever holds it keeps sources and memory alive."""

    def enqueue(self) -> None:
        """Enqueue the copies."""

    def arrivals(self) -> list[torch.Tensor]:
        """Give one host tensor per source, in order; read them only after the copies."""


class Transfer(Protocol):
    """Makes landings of one kind.

    Attributes
    ----------
    on_current_stream : bool
        Whether copies run on the current stream, which then has to be the right one.
    prepare : callable
        Makes room for sources. Called while the main stream is current.
    """

    on_current_stream: bool

    @property
    def prepare(self) -> Callable[[Sequence[torch.Tensor]], Landing]:
        """Make room for sources."""


class PerTensorTransfer:
    """One driver call and one allocation per tensor, on the current stream, as torch does it.

    Parameters
    ----------
    copy : callable
        Enqueues the copy of one device tensor and returns its destination.
    """

    on_current_stream = True

    def __init__(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.prepare: Callable[[Sequence[torch.Tensor]], Landing] = partial(_TensorLanding, copy)


class _TensorLanding:
    __slots__ = ("_arrived", "_copy", "_sources")

    def __init__(
        self, copy: Callable[[torch.Tensor], torch.Tensor], sources: Sequence[torch.Tensor]
    ) -> None:
        self._sources = sources
        self._copy = copy
        self._arrived: list[torch.Tensor] = []

    def enqueue(self) -> None:
        for source in self._sources:
            self._arrived.append(source.clone() if source.is_cpu else self._copy(source))

    def arrivals(self) -> list[torch.Tensor]:
        return self._arrived


class BatchedTransfer:
    """One block of memory for a step and one driver call for all of its copies.

    Parameters
    ----------
    runtime : Runtime
    stream : Stream
        On which copies are enqueued, whatever stream is current.
    pinned : bool
    """

    on_current_stream = False

    def __init__(self, runtime: Runtime, stream: Any, pinned: bool) -> None:
        self.pool = BlockPool(runtime, pinned)
        self.prepare: Callable[[Sequence[torch.Tensor]], Landing] = partial(
            _BlockLanding, self.pool, runtime.block_copier(stream)
        )


class _BlockLanding:
    """A leased block. What a copy engine cannot read is packed first, on the main stream.

    There the packing kernel runs at once behind the kernels that computed the tensor. On
    the copy stream it would wait for a multiprocessor behind the next step's kernels.
    """

    __slots__ = ("_copy", "_lease", "_offsets", "_on_host", "_sizes", "_sources")

    def __init__(self, pool: BlockPool, copy: BlockCopier, sources: Sequence[torch.Tensor]) -> None:
        self._copy = copy
        # Copies of sources that were on the host, by their place; None while all need the device.
        self._on_host: dict[int, torch.Tensor] | None = None
        readable: list[torch.Tensor] = []
        offsets: list[int] = []
        sizes: list[int] = []
        end = 0
        for source in sources:
            size = source.nbytes
            if not source.is_contiguous():
                source = source.contiguous()
            if not size or source.is_cpu:
                self._on_host = {}
            readable.append(source)
            offsets.append(end)
            sizes.append(size)
            end += (size + ALIGNMENT - 1) & -ALIGNMENT
        self._sources, self._offsets, self._sizes = readable, offsets, sizes
        self._lease: Lease = pool.lend(end)

    def enqueue(self) -> None:
        block = self._lease.block
        assert block is not None
        if self._on_host is None:
            self._copy(self._sources, self._sizes, self._offsets, block)
        else:
            self._enqueue_the_others(block, self._on_host)

    def _enqueue_the_others(self, block: Block, on_host: dict[int, torch.Tensor]) -> None:
        """Copy what is on the host already at once, and leave out what has no bytes."""
        places = []
        for place, source in enumerate(self._sources):
            if source.is_cpu:
                on_host[place] = source.clone()
            elif self._sizes[place]:
                places.append(place)
        if places:
            self._copy(
                [self._sources[place] for place in places],
                [self._sizes[place] for place in places],
                [self._offsets[place] for place in places],
                block,
            )

    def arrivals(self) -> list[torch.Tensor]:
        lease = self._lease
        views = [
            view_of(lease, offset, source)
            for offset, source in zip(self._offsets, self._sources, strict=True)
        ]
        for place, copy in (self._on_host or {}).items():
            views[place] = copy
        return views


def copy_to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Enqueue a copy into pinned memory that torch allocates and tracks.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape and dtype, on a device.

    Returns
    -------
    torch.Tensor
        Same shape and dtype, on the host; its contents arrive later.
    """
    # torch pins the destination of a non-blocking copy to the host by itself.
    return tensor.to("cpu", non_blocking=True)


def copy_to_pageable(tensor: torch.Tensor) -> torch.Tensor:
    """Copy into ordinary memory; the driver holds the host until it is done.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape and dtype, on a device.

    Returns
    -------
    torch.Tensor
        Same shape and dtype, on the host, complete.
    """
    destination = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    destination.copy_(tensor, non_blocking=True)
    return destination


def async_copy_to_np(tensor: torch.Tensor) -> np.ndarray:
    """Enqueue a copy on the current stream and return the host array at once.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape, of a dtype that NumPy has. A tensor on the host is copied too.

    Returns
    -------
    numpy.ndarray
        Same shape and dtype. For a device tensor the contents arrive later: wait
        for an event recorded after this call before reading them.

    Raises
    ------
    TypeError
        NumPy has no such dtype (bfloat16): copy with ``tensor.to("cpu",
        non_blocking=True)`` and keep a tensor. Nothing was enqueued.
    """
    if tensor.dtype is torch.bfloat16:
        raise TypeError(
            "async_copy_to_np cannot give bfloat16: NumPy has no such dtype; "
            'use tensor.to("cpu", non_blocking=True) and keep a tensor'
        )
    host = tensor.clone() if tensor.is_cpu else copy_to_pinned(tensor)
    array: np.ndarray = host.numpy()
    return array


def transfer_for(policy: CopyPolicy, runtime: Runtime, stream: Any) -> Transfer:
    """Choose the transfer of a policy, for copies on `stream`."""
    pinned = policy.memory == "pinned"
    if policy.copies == "batched":
        return BatchedTransfer(runtime, stream, pinned)
    return PerTensorTransfer(copy_to_pinned if pinned else copy_to_pageable)
