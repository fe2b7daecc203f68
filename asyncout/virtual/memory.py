"""Memory of a virtual machine: poison, page-locked blocks, and what becomes of freed memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

#: Byte that memory without contents is filled with: no likely token id, count or mask.
POISON_BYTE = 0xA5


def poison(tensor: torch.Tensor) -> None:
    """Fill a host tensor's own elements with the poison pattern."""
    if tensor.numel():
        num_bytes = tensor.numel() * tensor.element_size()
        pattern = torch.full((num_bytes,), POISON_BYTE, dtype=torch.uint8, device="cpu")
        tensor.copy_(pattern.view(tensor.dtype).view(tensor.shape))


def is_poison(tensor: torch.Tensor) -> bool:
    """Whether every byte of a host tensor is poison; an empty one holds none."""
    data = tensor.contiguous().view(-1).view(torch.uint8)
    return data.numel() > 0 and bool((data == POISON_BYTE).all())


class HostMemory:
    """Makes host tensors and remembers which are page-locked, which plain torch cannot be here."""

    def __init__(self) -> None:
        self._pinned: dict[int, int] = {}

    def empty(
        self, shape: Sequence[int], dtype: torch.dtype, pinned: bool, poisoned: bool = True
    ) -> torch.Tensor:
        """Make a host tensor that holds poison, or whatever was there."""
        num_bytes = math.prod(shape) * dtype.itemsize
        block = np.empty(max(num_bytes, 1), np.uint8)
        if poisoned:
            block.fill(POISON_BYTE)
        if pinned:
            address = block.ctypes.data
            self._pinned[address] = len(block)
            # The block goes with the tensor's storage; its address may then be anybody's.
            weakref.finalize(block, self._pinned.pop, address, None)
        return torch.from_numpy(block)[:num_bytes].view(dtype).view(tuple(shape))

    def pinned_bytes(self) -> int:
        """Count the bytes that are page-locked now."""
        return sum(self._pinned.copy().values())

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor's memory is page-locked, also through a view of it."""
        return tensor.untyped_storage().data_ptr() in self._pinned


class DeviceMemory:
    """A block of device memory, shared by all views of it.

    Parameters
    ----------
    index : int
        Device.
    free : callable
        Called with `users` when the last view is gone.

    Attributes
    ----------
    users : list
        Other streams that use the memory (``record_stream``).
    name : str or None
        In a machine's program, once it has one there.
    """

    __slots__ = ("__weakref__", "index", "name", "users")

    def __init__(self, index: int, free: Callable[[list[Any]], None]) -> None:
        self.index = index
        self.name: str | None = None
        self.users: list[Any] = []
        # At the interpreter's end nobody reads it any more.
        weakref.finalize(self, free, self.users).atexit = False
