"""Memory of a virtual machine: page-locked host blocks, and device memory until it is freed."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch

from asyncout.lifetime import when_gone
from asyncout.virtual.order import Uses
from asyncout.virtual.poison import POISON_BYTE

#: Bytes from which an ordinary allocation is memory that the system maps anew, and gets back
#: when it is freed: the most to which glibc raises that limit by itself on 64-bit machines
#: (DEFAULT_MMAP_THRESHOLD_MAX). Smaller ones mostly come from memory that was written to before.
NEW_FROM_BYTES = 32 << 20

#: Bytes of a page that the system makes when it is first written to.
PAGE_BYTES = 4 << 10


class DestructorLock:
    """A re-entrant lock that destructors need not wait for.

    What they leave with :meth:`defer` is done at once if nobody holds the lock, else at
    the latest when it is next taken: never in the middle of another call.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._deferred: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._deferred and self._depth == 1:
            self._catch_up()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._deferred and self._depth == 1:
                self._catch_up()
        finally:
            self._depth -= 1
            self._lock.release()

    def defer(self, call: Callable[[], None]) -> None:
        """Call something under the lock, now or soon. Never waits."""
        self._deferred.append(call)
        if self._lock.acquire(blocking=False):
            self._depth += 1
            self.__exit__(None, None, None)

    def _catch_up(self) -> None:
        while self._deferred:
            self._deferred.popleft()()


@dataclass(frozen=True)
class BlockOrigin:
    """How the machine made a host block, and which copies use it.

    Attributes
    ----------
    name : str
        In the machine's program.
    shape, dtype
        Of its first tensor.
    uses : Uses
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    uses: Uses = field(default_factory=Uses)


class HostMemory:
    """Makes host tensors and remembers which are page-locked, which plain torch cannot be here.

    Parameters
    ----------
    freed : callable
        Called with a block's name when its last tensor is gone.
    """

    def __init__(self, freed: Callable[[str], None]) -> None:
        self._origins: dict[int, BlockOrigin] = {}
        self._pinned: dict[int, int] = {}
        self._written: set[int] = set()
        self._freed = freed

    def empty(self, origin: BlockOrigin, pinned: bool, poisoned: bool = True) -> torch.Tensor:
        """Make a host tensor that holds poison, or whatever was there."""
        num_bytes = math.prod(origin.shape) * origin.dtype.itemsize
        block = np.empty(max(num_bytes, 1), np.uint8)
        if poisoned:
            block.fill(POISON_BYTE)
        address = block.ctypes.data
        self._origins[address] = origin
        if pinned:
            self._pinned[address] = len(block)
        # The block goes with the tensor's storage; its address may then be anybody's.
        weakref.finalize(block, self._forget, address).atexit = False
        return torch.from_numpy(block)[:num_bytes].view(origin.dtype).view(origin.shape)

    def _forget(self, address: int) -> None:
        self._pinned.pop(address, None)
        self._written.discard(address)
        self._freed(self._origins.pop(address).name)

    def origin_of(self, tensor: torch.Tensor) -> BlockOrigin | None:
        """Give the origin of the block that a host tensor is a view of, if it is one of these."""
        return self._origins.get(tensor.untyped_storage().data_ptr())

    def new_pages(self, tensors: Sequence[torch.Tensor]) -> int:
        """Count the pages that a copy into host tensors makes: those of large, new memory.

        A block of this machine is new until the first copy into it. Of memory that it did not
        make it cannot tell, and takes it to be new: an ordinary tensor made for one copy.
        """
        bases = [tensor.untyped_storage() for tensor in tensors]
        made = sum(
            -(-tensor.nbytes // PAGE_BYTES)
            for tensor, base in zip(tensors, bases, strict=True)
            if base.nbytes() >= NEW_FROM_BYTES
            and base.data_ptr() not in self._pinned
            and base.data_ptr() not in self._written
        )
        self._written.update(self._origins.keys() & {base.data_ptr() for base in bases})
        return made

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
    name : str
        In the machine's program.
    freed : callable
        Called with `users`, `uses` and `views` when the last view is gone.

    Attributes
    ----------
    users : list
        Other streams that use the memory (``record_stream``).
    uses : Uses
        Operations that use it.
    views : dict
        Names of its views in the program, by shape, stride, offset and dtype.
    """

    __slots__ = ("_life", "index", "name", "users", "uses", "views")

    def __init__(self, index: int, name: str, freed: Callable[[Any, Any, Any], None]) -> None:
        self.index = index
        self.name = name
        self.users: list[Any] = []
        self.uses = Uses()
        self.views: dict[Any, str] = {}
        self._life = when_gone(freed, self.users, self.uses, self.views)
