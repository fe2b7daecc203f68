"""How bytes reach the host: one class per value of ``CopyPolicy.copies``.

A transfer prepares landings, where a step's tensors will be on the host, and enqueues
the copies into them. It never waits for the device, but for pageable destinations, for
which the driver itself holds the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from asyncout import hot
from asyncout.landing import ALIGNMENT, Block, BlockPool, Form, array_of, lay_out, view_of
from asyncout.policy import CopyPolicy
from asyncout.runtime import Runtime, Submit


class Landing(Protocol):
    """Where the tensors of one step land. Whoever holds it keeps sources and memory alive."""

    def enqueue(self, event: Any = None) -> None:
        """Enqueue the copies; a batch also records `event` behind them, if there is one."""

    def part(self, place: int) -> Any:
        """Give what arrives of one source, of a dtype that NumPy has, as a buffer with a shape.

        Whatever reads the buffer protocol takes it, ``numpy.asarray`` too; read it only
        after the copies.
        """

    def tensor(self, place: int) -> torch.Tensor:
        """Give the host tensor of one source; read it only after the copies."""

    def tensors(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Give the host tensors of the sources from place `start` to `stop`."""


class Transfer(Protocol):
    """Makes landings of one kind.

    Attributes
    ----------
    is_batch : bool
        Whether copies run on a stream of their own choice, with an event behind them.
        Else they run on the current stream, which then has to be the right one.
    prepare : callable
        Makes room for sources, and packs on the main stream what has to be.
    """

    is_batch: bool

    @property
    def prepare(self) -> Callable[[list[torch.Tensor]], Landing]:
        """Make room for sources."""


class PerTensorTransfer:
    """One driver call and one allocation per tensor, on the current stream, as torch does it.

    Parameters
    ----------
    copy : callable
        Enqueues the copy of one device tensor and returns its destination.
    """

    is_batch = False

    def __init__(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.prepare: Callable[[list[torch.Tensor]], Landing] = partial(_TensorLanding, copy)


class _TensorLanding:
    __slots__ = ("_arrived", "_copy", "_sources")

    def __init__(
        self, copy: Callable[[torch.Tensor], torch.Tensor], sources: list[torch.Tensor]
    ) -> None:
        self._sources = sources
        self._copy = copy
        self._arrived: list[torch.Tensor] = []

    def enqueue(self, event: Any = None) -> None:
        for source in self._sources:
            self._arrived.append(source.clone() if source.is_cpu else self._copy(source))

    def part(self, place: int) -> Any:
        return self._arrived[place].numpy()

    def tensor(self, place: int) -> torch.Tensor:
        return self._arrived[place]

    def tensors(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        return iter(self._arrived[start:stop])


class BatchedTransfer:
    """One block of memory for a step and one driver call for all of its copies.

    Parameters
    ----------
    runtime : Runtime
    main, copy : Stream
        Where sources are computed, and where copies are enqueued, whatever stream is current.
    pinned : bool
    follows : bool
        Whether the copies have to be told to wait for the work of `main`.
    """

    is_batch = True

    def __init__(
        self, runtime: Runtime, main: Any, copy: Any, pinned: bool, follows: bool = True
    ) -> None:
        self.pool = BlockPool(runtime, pinned)
        submit = runtime.submitter(main if follows else None, copy)
        self.lane = submit.lane
        self.prepare: Callable[[list[torch.Tensor]], Landing] = partial(
            _BlockLanding, self.pool, submit, runtime.switch(main)
        )
        if submit.lane is not None:
            # Compiled, for what a copy engine can read as it is; any other step falls back.
            self.prepare = partial(hot.COMPILED.land, submit.lane, self.pool.lend, self.prepare)


class _BlockLanding:
    """A leased block. What a copy engine cannot read is packed first, on the main stream.

    There the packing kernel runs at once behind the kernels that computed the tensor. On
    the copy stream it would wait for a multiprocessor behind the next step's kernels.
    """

    __slots__ = ("_forms", "_lease", "_offsets", "_on_host", "_sizes", "_sources", "_submit")

    def __init__(
        self,
        pool: BlockPool,
        submit: Submit,
        to_main: Callable[[], None],
        sources: list[torch.Tensor],
    ) -> None:
        self._submit = submit
        # Copies of sources that were on the host, by their place; None while all need the device.
        self._on_host: dict[int, torch.Tensor] | None = None
        self._sizes, self._offsets, end, are_plain = lay_out(sources, ALIGNMENT)
        if not are_plain:
            # The copies wait for the main stream alone: a kernel elsewhere would be read too soon.
            to_main()
            sources = [s.resolve_conj().resolve_neg().contiguous() for s in sources]
            self._on_host = {}
        self._sources = sources
        # Read now: the caller may resize a source while its copy is on the way.
        self._forms = [Form(source.shape, source.dtype) for source in sources]
        self._lease = pool.lend(end)

    def enqueue(self, event: Any = None) -> None:
        block = self._lease.block
        assert block is not None
        if self._on_host is None:
            self._submit(self._sources, self._sizes, self._offsets, block, event)
        else:
            self._enqueue_the_others(block, self._on_host, event)

    def _enqueue_the_others(
        self, block: Block, on_host: dict[int, torch.Tensor], event: Any
    ) -> None:
        """Copy what is on the host already at once, and leave out what has no bytes."""
        places = []
        for place, source in enumerate(self._sources):
            if source.is_cpu:
                on_host[place] = source.clone()
            elif self._sizes[place]:
                places.append(place)
        self._submit(
            [self._sources[place] for place in places],
            [self._sizes[place] for place in places],
            [self._offsets[place] for place in places],
            block,
            event,
        )

    def part(self, place: int) -> Any:
        if self._on_host and place in self._on_host:
            return self._on_host[place].numpy()
        return array_of(self._lease, self._offsets[place], self._forms[place])

    def tensor(self, place: int) -> torch.Tensor:
        if self._on_host and place in self._on_host:
            return self._on_host[place]
        return view_of(self._lease, self._offsets[place], self._forms[place])

    def tensors(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        return map(self.tensor, range(start, stop))


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


def transfer_for(
    policy: CopyPolicy, runtime: Runtime, main: Any, copy: Any, follows: bool
) -> Transfer:
    """Choose the transfer of a policy, for copies on `copy` of what is computed on `main`.

    With `follows`, copies in a batch are told to wait for the work of `main`. Copies one by one
    are put behind it by whoever makes their stream current.
    """
    pinned = policy.memory == "pinned"
    if policy.copies == "batched":
        return BatchedTransfer(runtime, main, copy, pinned, follows)
    return PerTensorTransfer(copy_to_pinned if pinned else copy_to_pageable)
