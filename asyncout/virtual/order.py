"""Which operation is ordered behind which, and which uses of a memory race with each other.

Order is kept with vector clocks. A stream's operations are numbered from 1; a clock
says for each stream how many of its operations are known to be done, and so holds all
that an operation, or the host, is ordered behind. Order comes from streams, events and
the host's waits alone, never from the time at which something happened to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from asyncout.virtual.poison import poison

if TYPE_CHECKING:
    from asyncout.virtual.engine import Engine

#: Stream by number: how many of its operations, from the first, are done. Never changed in
#: place, as operations share the clocks of their streams.
Clock = dict[int, int]

#: Uses of a memory on one stream after which those that the host has seen the end of are
#: forgotten: few enough to be looked through, many enough that it is rarely done.
LEAST_USES_TO_TIDY = 32


def joined(clock: Clock, other: Clock) -> Clock:
    """Give a clock that knows what either of two knows."""
    result = dict(clock)
    for stream, number in other.items():
        if number > result.get(stream, 0):
            result[stream] = number
    return result


@dataclass(eq=False, slots=True)
class Op:
    """One piece of device work.

    Attributes
    ----------
    kind, name, num_bytes
        As in :class:`~asyncout.virtual.engine.Record`.
    enqueued : float
        Host time of the call: it cannot start earlier.
    engine : Engine or None
        What it occupies; None occupies nothing and takes no time.
    seconds : float
        How long.
    effect : callable, optional
        Called at its end, whoever knows of it.
    moves : sequence of Move
        What it does to memory, once the host has seen its end.
    after : tuple of Op
        Done before it may start, beside what is ahead of it in its stream.
    start, end : float
        When it ran, seconds; known once it is `done`.
    finished : int
        How many operations were done before it.
    seen : bool
        Whether the host has seen its end and its moves are made.
    sequence : int
        Its place among all operations, in the order of the host's calls.
    stream, number : int
        Number of its stream, and its own in there.
    clock : Clock
        What else it is ordered behind, beside those before it in its stream.
    """

    kind: str
    name: str
    enqueued: float
    engine: Engine | None = None
    seconds: float = 0.0
    num_bytes: int = 0
    effect: Callable[[], None] | None = None
    moves: Sequence[Move] = ()
    after: tuple[Op, ...] = ()
    start: float = 0.0
    end: float = 0.0
    done: bool = False
    finished: int = 0
    seen: bool = False
    sequence: int = 0
    stream: int = -1
    number: int = 0
    clock: Clock = field(default_factory=dict)

    def is_behind(self, other: Op) -> bool:
        """Whether `other` is surely done before this one starts."""
        known = self.number if other.stream == self.stream else self.clock.get(other.stream, 0)
        return other.number <= known

    def known(self) -> Clock:
        """Give the clock of whoever knows that this operation is done."""
        return joined(self.clock, {self.stream: self.number})


class Move:
    """What an operation does to memory, whole or in part.

    Parameters
    ----------
    run : callable
        Does it.
    results : sequence of torch.Tensor
        Backing or host memory that it writes to: poison instead, if a use of it races.

    Attributes
    ----------
    uses : list of Use
    """

    __slots__ = ("results", "run", "uses")

    def __init__(self, run: Callable[[], object], results: Sequence[torch.Tensor] = ()) -> None:
        self.run = run
        self.results = results
        self.uses: list[Use] = []

    def make(self) -> None:
        """Do it, or poison its results."""
        for use in self.uses:
            if use.races:
                for result in self.results:
                    poison(result)
                return
        self.run()


class Part(NamedTuple):
    """Where a tensor lies in its storage; keeps neither alive. Strides and offset in elements."""

    storage_bytes: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def part_of(tensor: torch.Tensor) -> Part:
    """Give the part of its storage that a tensor takes."""
    return Part(
        tensor.untyped_storage().nbytes(),
        tensor.element_size(),
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
    )


class Use:
    """One operation's use of a part of a memory.

    Attributes
    ----------
    op : Op
    part : torch.Tensor, Part or None
        View of the memory, or where one lies; None is all of it.
    writes : bool
    races : bool
        Whether another operation uses the same part, one of them writes, and neither
        is ordered behind the other in the way that the values need.
    """

    __slots__ = ("op", "part", "races", "writes")

    def __init__(self, op: Op, part: torch.Tensor | Part | None, writes: bool) -> None:
        self.op = op
        self.part = part
        self.writes = writes
        self.races = False


class Uses:
    """The uses of one memory, by stream, as far as somebody could still race with them.

    Whatever the host has seen the end of is ordered before all that it enqueues later.
    Freeing memory is a use that writes to all of it.
    """

    __slots__ = ("_by_stream", "_tidy_at")

    def __init__(self) -> None:
        self._by_stream: dict[int, list[Use]] = {}
        self._tidy_at = LEAST_USES_TO_TIDY

    def rewrites(self, use: Use) -> bool:
        """Whether a use, not noted yet, writes to what one that nobody has seen writes to."""
        return any(
            other.writes and _overlap(other, use)
            for earlier in self._by_stream.values()
            if not earlier[-1].op.seen
            for other in earlier
            if not other.op.seen
        )

    def add(self, use: Use) -> None:
        """Note a use, and mark those whose values are not to be relied on for it."""
        op = use.op
        for stream, earlier in self._by_stream.items():
            # If the stream's last use is ordered before this one, all of them are.
            if stream != op.stream and not op.is_behind(earlier[-1].op):
                for other in reversed(earlier):
                    if op.is_behind(other.op):
                        break
                    _judge(other, use)
        own = self._by_stream.get(op.stream)
        if own is None:
            self._by_stream[op.stream] = [use]
            return
        own.append(use)
        if len(own) >= self._tidy_at:
            own[:-1] = [other for other in own[:-1] if not other.op.seen]
            self._tidy_at = max(LEAST_USES_TO_TIDY, 2 * len(own))


def _judge(earlier: Use, later: Use) -> None:
    """Mark what two unordered uses of one memory spoil: values read, or both written."""
    if not (earlier.writes or later.writes) or not _overlap(earlier, later):
        return
    if earlier.writes:
        later.races = True
    if later.writes:
        earlier.races = True


def _overlap(one: Use, other: Use) -> bool:
    """Whether two uses of one memory share a byte. Exact; slow only for interleaved parts."""
    if one.part is None or other.part is None:
        return True
    mine = one.part if isinstance(one.part, Part) else part_of(one.part)
    its = other.part if isinstance(other.part, Part) else part_of(other.part)
    if 0 in mine.shape or 0 in its.shape:
        return False
    (start, stop, is_dense), (its_start, its_stop, its_is_dense) = _extent(mine), _extent(its)
    if stop <= its_start or its_stop <= start:
        return False
    if is_dense and its_is_dense:
        return True
    touched = torch.zeros(mine.storage_bytes, dtype=torch.bool, device="cpu")
    _bytes_of(mine, touched).fill_(True)
    return bool(_bytes_of(its, touched).any())


def _extent(part: Part) -> tuple[int, int, bool]:
    """Give a part's first byte, the one behind its last, and whether it has all between."""
    size = part.element_bytes
    reach = [(n - 1) * stride for n, stride in zip(part.shape, part.strides, strict=True)]
    first = part.offset + sum(r for r in reach if r < 0)
    elements = sum(abs(r) for r in reach) + 1
    # As many different elements as lie between: none is left out, unless some come twice.
    is_dense = elements == math.prod(part.shape) and 0 not in part.strides
    return first * size, (first + elements) * size, is_dense


def _bytes_of(part: Part, storage: torch.Tensor) -> torch.Tensor:
    """Give the elements of `storage`, one for each byte, that a part takes."""
    size = part.element_bytes
    strides = [stride * size for stride in part.strides]
    return storage.as_strided((*part.shape, size), (*strides, 1), part.offset * size)
