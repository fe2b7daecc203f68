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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from asyncout import hot
from asyncout.lifetime import when_gone
from asyncout.runtime import Runtime

#: Every result begins at a multiple of this: a cache line, and more than any dtype needs.
ALIGNMENT = 64  # csrc/landing.c has it too

#: Least size of a block: a small step's results, so that steps of any batch size share blocks.
SMALLEST_BLOCK = 16 << 10

#: NumPy's dtype of each of torch's that it has.
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
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}
#: For a dtype that NumPy lacks, one of its size.
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
    make another lease, which lends nothing. The compiled one is a buffer and no array.
    """

    block: Block
    _life: np.ndarray


def lease_in_python(block: Block) -> Lease:
    """Lend a block that nobody has."""
    lease: Lease = _new_array(Lease, block.shape, np.uint8, block.buffer)
    lease.block = block
    lease._life = when_gone(block.home.append, block)
    return lease


new_lease: Callable[[Block], Any] = lease_in_python if hot.COMPILED is None else hot.COMPILED.Lease


class Block:
    """Host memory of one size.

    Attributes
    ----------
    memory : torch.Tensor, uint8 [size]
    address : int
    home : deque of Block
        Where it waits for its next step.
    size : int
        Bytes.
    shape, buffer
        What a lease is made of in Python.
    """

    __slots__ = ("address", "buffer", "home", "memory", "shape", "size")

    def __init__(self, memory: torch.Tensor, home: deque[Block]) -> None:
        self.memory = memory
        self.address = memory.data_ptr()
        self.home = home
        self.size = memory.numel()
        self.shape = (self.size,)
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
        #: Free blocks of each size.
        self.homes: dict[int, deque[Block]] = {}
        self.num_bytes = 0

    def lend(self, num_bytes: int) -> Any:
        """Lend a block of at least `num_bytes`; a new one where none is free."""
        size = max(SMALLEST_BLOCK, 1 << (num_bytes - 1).bit_length())
        home = self.homes.get(size)
        if home is None:
            home = self.homes.setdefault(size, deque())
        try:
            block = home.pop()  # the one that came back last: its pages are in the cache
        except IndexError:
            memory = self._runtime.empty_host((size,), torch.uint8, self._pinned)
            self.num_bytes += size
            block = Block(memory, home)
        return new_lease(block)


def _is_plain(source: torch.Tensor) -> bool:
    # Torch conjugates and negates lazily: such a tensor's memory holds other values.
    return source.is_contiguous() and not (source.is_cpu or source.is_conj() or source.is_neg())


def lay_out(
    sources: Sequence[torch.Tensor], alignment: int
) -> tuple[list[int], list[int], int, bool]:
    """Give each of some tensors a place in one block.

    Parameters
    ----------
    sources : sequence of torch.Tensor
    alignment : int
        Bytes; a power of two. Every place begins at a multiple of it.

    Returns
    -------
    sizes, offsets : list of int
        Bytes.
    end : int
        Bytes of all places.
    are_plain : bool
        Whether a copy engine can read every one as it is: on the device, contiguous, not
        empty, and not to be conjugated or negated by whoever reads it.
    """
    sizes: list[int] = []
    offsets: list[int] = []
    end, are_plain = 0, True
    for source in sources:
        size = source.nbytes
        sizes.append(size)
        offsets.append(end)
        end += (size + alignment - 1) & -alignment
        are_plain = are_plain and size > 0 and _is_plain(source)
    return sizes, offsets, end, are_plain


class Form(NamedTuple):
    """What a view of a block has of its source, whatever becomes of that meanwhile."""

    shape: Sequence[int]
    dtype: torch.dtype


def array_of(lease: Any, offset: int, like: torch.Tensor | Form) -> np.ndarray:
    """Make a NumPy array of a part of a block; where NumPy lacks the dtype, one of its size.

    Parameters
    ----------
    lease : Lease, of Python or compiled
    offset : int
        Bytes.
    like : torch.Tensor or Form
        Whose shape and dtype it gets; it is contiguous.
    """
    dtype = _NUMPY_DTYPES.get(like.dtype) or _OF_SIZE[like.dtype.itemsize]
    return np.ndarray(like.shape, dtype, lease, offset)


def view_of(lease: Any, offset: int, like: torch.Tensor | Form) -> torch.Tensor:
    """Make a host tensor of a part of a block; arguments as of :func:`array_of`."""
    dtype = like.dtype
    tensor = torch.from_numpy(array_of(lease, offset, like))
    return tensor if dtype in _NUMPY_DTYPES else tensor.view(dtype)
