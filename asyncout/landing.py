"""Where a step's results land: one block of host memory, and views into it.

A block is lent to one step at a time. The lease is the base of every view of it, NumPy's
and torch's, and is held by whoever knows of a copy into it: the block goes back to its
pool when the last of them is gone, so no view's memory is ever written again.

Pinned bytes are bounded by what is in use at once: of the blocks lent together at the
worst moment, each is at most twice its step's results (or :data:`SMALLEST_BLOCK`).
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
import torch

from asyncout.runtime import Runtime

#: Every result begins at a multiple of this: a cache line, and more than any dtype needs.
ALIGNMENT = 64

#: Least size of a block: a small step's results, so that steps of any batch size share blocks.
SMALLEST_BLOCK = 16 << 10

#: NumPy's dtype of each of torch's; for one that NumPy lacks, one of its size.
_NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
_OF_SIZE: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}

_new_array: Any = np.ndarray.__new__


class Lease(np.ndarray):
    """A block's memory while it is lent: the base of all views of it.

    NumPy keeps an instance of a subclass as a view's base, and not what lies behind it.
    Make views with ``numpy.ndarray(shape, dtype, lease, offset)``; slicing a lease would
    make another lease, which lends nothing.
    """

    block: Block | None = None

    def __del__(self) -> None:
        if self.block is not None:
            self.block.home.append(self.block)


class Block:
    """Host memory of one size.

    Attributes
    ----------
    memory : torch.Tensor, uint8 [size]
    address : int
    home : deque of Block
        Where it waits for its next step.
    shape, buffer
        What a lease is made of.
    """

    __slots__ = ("address", "buffer", "home", "memory", "shape")

    def __init__(self, memory: torch.Tensor, home: deque[Block]) -> None:
        self.memory = memory
        self.address = memory.data_ptr()
        self.home = home
        self.shape = (memory.numel(),)
        # No array: NumPy would take an array, and not the lease, as the views' base.
        self.buffer = (ctypes.c_uint8 * memory.numel()).from_address(self.address)


class BlockPool:
    """Blocks of one kind of memory, by size.

    Parameters
    ----------
    runtime : Runtime
    pinned : bool
    """

    def __init__(self, runtime: Runtime, pinned: bool) -> None:
        self._runtime = runtime
        self._pinned = pinned
        # Leases go back from destructors, in any thread: deque's methods take no lock.
        self._homes: dict[int, deque[Block]] = {}
        self.num_bytes = 0

    def lend(self, num_bytes: int) -> Lease:
        """Lend a block of at least `num_bytes`; a new one where none is free."""
        size = max(SMALLEST_BLOCK, 1 << (num_bytes - 1).bit_length())
        home = self._homes.get(size)
        if home is None:
            home = self._homes.setdefault(size, deque())
        try:
            block = home.pop()  # the one that came back last: its pages are in the cache
        except IndexError:
            memory = self._runtime.empty_host((size,), torch.uint8, self._pinned)
            self.num_bytes += size
            block = Block(memory, home)
        lease: Lease = _new_array(Lease, block.shape, np.uint8, block.buffer)
        lease.block = block
        return lease


def view_of(lease: Lease, offset: int, like: torch.Tensor) -> torch.Tensor:
    """Make a host tensor of a part of a block.

    Parameters
    ----------
    lease : Lease
    offset : int
        Bytes.
    like : torch.Tensor
        Whose shape and dtype it gets; it is contiguous.
    """
    dtype = like.dtype
    plain = _NUMPY_DTYPES.get(dtype)
    if plain is not None:
        return torch.from_numpy(np.ndarray(like.shape, plain, lease, offset))
    same_size = np.ndarray(like.shape, _OF_SIZE[dtype.itemsize], lease, offset)
    return torch.from_numpy(same_size).view(dtype)
