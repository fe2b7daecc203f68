"""How bytes reach the host: one class per value of ``CopyPolicy.copies``.

A transfer prepares landings, where a step's tensors will be on the host, and enqueues
the copies into them. It never waits for the device, but for pageable destinations, for
which the driver itself holds the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from asyncout.landing import BlockPool, Lease, offsets_of, view_of
from asyncout.policy import CopyPolicy
from asyncout.runtime import Runtime


class Landing(Protocol):
    """Where the tensors of one step land. Whoever holds it keeps sources and memory alive."""

    def enqueue(self, stream: Any) -> None:
        """Enqueue the copies on `stream`."""

    def arrivals(self) -> list[torch.Tensor]:
        """Give one host tensor per source, in order; read them only after the copies."""


class Transfer(Protocol):
    """Makes landings of one kind.

    Attributes
    ----------
    on_current_stream : bool
        Whether copies run on the current stream, which then has to be the right one.
    """

    on_current_stream: bool

    def prepare(self, sources: Sequence[torch.Tensor]) -> Landing:
        """Make room for `sources`. Called while the main stream is current."""


class PerTensorTransfer:
    """One driver call and one allocation per tensor, on the current stream, as torch does it.

    Parameters
    ----------
    copy : callable
        Enqueues the copy of one device tensor and returns its destination.
    """

    on_current_stream = True

    def __init__(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._copy = copy

    def prepare(self, sources: Sequence[torch.Tensor]) -> _TensorLanding:
        """Give an empty landing: each copy makes its own room."""
        return _TensorLanding(sources, self._copy)


class _TensorLanding:
    __slots__ = ("_arrived", "_copy", "_sources")

    def __init__(
        self, sources: Sequence[torch.Tensor], copy: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._sources = sources
        self._copy = copy
        self._arrived: list[torch.Tensor] = []

    def enqueue(self, stream: Any) -> None:
        for source in self._sources:
            self._arrived.append(source.clone() if source.is_cpu else self._copy(source))

    def arrivals(self) -> list[torch.Tensor]:
        return self._arrived


class BatchedTransfer:
    """One block of memory for a step and one driver call for all of its copies.

    Parameters
    ----------
    runtime : Runtime
    pinned : bool
    """

    on_current_stream = False

    def __init__(self, runtime: Runtime, pinned: bool) -> None:
        self._runtime = runtime
        self.pool = BlockPool(runtime, pinned)

    def prepare(self, sources: Sequence[torch.Tensor]) -> _BlockLanding:
        """Lease a block; pack what a copy engine cannot read, on the main stream.

        There the packing kernel runs at once behind the kernels that computed the tensor.
        On the copy stream it would wait behind the next step's (1.5 ms behind large matrix
        products on an H200).
        """
        return _BlockLanding(self._runtime, self.pool, sources)


class _BlockLanding:
    __slots__ = ("_lease", "_offsets", "_on_host", "_runtime", "_sources")

    def __init__(self, runtime: Runtime, pool: BlockPool, sources: Sequence[torch.Tensor]) -> None:
        self._runtime = runtime
        #: Copies of sources that were on the host, by their place among the sources.
        self._on_host: dict[int, torch.Tensor] = {}
        self._sources = [
            source if source.is_contiguous() else source.contiguous() for source in sources
        ]
        self._offsets, num_bytes = offsets_of(sources)
        self._lease: Lease = pool.take(num_bytes).lend()

    def enqueue(self, stream: Any) -> None:
        sources, offsets = self._sources, self._offsets
        if any(source.is_cpu or not source.nbytes for source in sources):
            sources, offsets = self._without_trivial()
            if not sources:
                return
        assert self._lease.block is not None
        self._runtime.copy_to_block(sources, self._lease.block.memory, offsets, stream)

    def _without_trivial(self) -> tuple[list[torch.Tensor], list[int]]:
        """Copy what is on the host already and leave out what has no bytes."""
        sources, offsets = [], []
        for place, source in enumerate(self._sources):
            if source.is_cpu:
                self._on_host[place] = source.clone()
            elif source.nbytes:
                sources.append(source)
                offsets.append(self._offsets[place])
        return sources, offsets

    def arrivals(self) -> list[torch.Tensor]:
        lease = self._lease
        views = [
            view_of(lease, offset, source)
            for offset, source in zip(self._offsets, self._sources, strict=True)
        ]
        for place, copy in self._on_host.items():
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


def transfer_for(policy: CopyPolicy, runtime: Runtime) -> Transfer:
    """Choose the transfer of a policy."""
    pinned = policy.memory == "pinned"
    if policy.copies == "batched":
        return BatchedTransfer(runtime, pinned)
    return PerTensorTransfer(copy_to_pinned if pinned else copy_to_pageable)
