"""Discrete-event simulation of a device: queues, engines, and the order in which work runs.

An operation waits for its turn in its stream, for the operations it depends on, and
for its engine, which serves operations in the order in which they became ready; a copy
engine stays with a stream while that has more for it. The simulation only moves when
somebody asks for it, up to a time or until an operation is done. What an operation does
to memory happens later still: when the host has seen its end, or the end of something
that is ordered behind it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from asyncout.virtual.order import Clock, Op, joined

#: Records kept of what ran; a long loop must not fill memory with them.
HISTORY_LENGTH = 100_000


class Record(NamedTuple):
    """What ran when.

    Attributes
    ----------
    op : str
        Kind: "kernel", "d2h", "h2d", "event", "wait" or "free".
    name : str
    stream : str
    start, end : float
        Seconds of virtual time.
    num_bytes : int
    """

    op: str
    name: str
    stream: str
    start: float
    end: float
    num_bytes: int


class Engine:
    """Something that does one operation at a time: the kernels' processors, or a copy engine.

    Parameters
    ----------
    name : str
    stays : bool
        Whether it goes on with the stream that it serves while an operation of that is
        ready, before those of others. Copy engines do: on an H200 a small copy behind a
        large one in chunks is as late as behind the whole
        (``results/h200-pcie5-vm16/REPORT.md``, question 6).
    """

    def __init__(self, name: str, stays: bool = False) -> None:
        self.name = name
        self.free_at = 0.0
        self.running: Op | None = None
        self.serves: Queue | None = None
        self._stays = stays

    def prefers(self, queue: Queue) -> bool:
        """Whether an operation of this queue goes before those that became ready earlier."""
        return self._stays and self.serves is queue


class Queue:
    """A stream's operations: first in, first out.

    Attributes
    ----------
    waiting : deque of Op
        Not started.
    running, last : Op or None
        Under way; enqueued last.
    unseen : deque of Op
        Done, with moves to make when the host has seen it.
    clock : Clock
        What the operation enqueued next is ordered behind.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.waiting: deque[Op] = deque()
        self.running: Op | None = None
        self.last: Op | None = None
        self.free_at = 0.0
        self.unseen: deque[Op] = deque()
        self.clock: Clock = {}
        self._count = 0
        self._host: Clock | None = None

    def append(self, op: Op, host: Clock) -> None:
        """Put an operation at the end, called by a host that knows what `host` says."""
        clock = self.clock
        if self._host is not host:
            clock, self._host = joined(clock, host), host
        for other in op.after:
            clock = joined(clock, other.known())
        self._count += 1
        op.stream, op.number, op.clock = self.number, self._count, clock
        self.clock = clock
        self.waiting.append(op)
        self.last = op


class Simulation:
    """Runs operations in virtual time.

    Parameters
    ----------
    choose : callable, optional
        Given the number of operations that could run next, says which does; then
        time means nothing and every order that the dependencies allow is possible.
    """

    def __init__(self, choose: Callable[[int], int] | None = None) -> None:
        self._choose = choose
        self.queues: list[Queue] = []
        self._ending: list[tuple[float, int, Op, Queue]] = []
        self._sequence = 0
        self._finished = 0
        self._host: Clock = {}
        self.history: deque[Record] = deque(maxlen=HISTORY_LENGTH)

    def new_queue(self, name: str) -> Queue:
        """Make a stream's queue."""
        queue = Queue(name, len(self.queues))
        self.queues.append(queue)
        return queue

    def enqueue(self, queue: Queue, op: Op) -> Op:
        """Put an operation at the end of a queue."""
        self._sequence += 1
        op.sequence = self._sequence
        queue.append(op, self._host)
        op.after = tuple(other for other in op.after if not other.done)
        return op

    def run_until(self, time: float) -> None:
        """Run all that starts or ends up to `time`."""
        if self._choose is not None:
            self._run_some_choices()
            return
        while self._step(time):
            pass

    def run_until_done(self, op: Op) -> None:
        """Run until an operation is done.

        Raises
        ------
        RuntimeError
            It can never be: it waits for itself.
        """
        while not op.done:
            moved = self._run_choice() if self._choose else self._step(None)
            if not moved:
                raise RuntimeError(f"deadlock: {op.kind} {op.name!r} can never run")
        if self._choose is not None:
            self._run_some_choices()

    def see(self, op: Op) -> None:
        """Let the host know that an operation is done, and make the moves that this covers.

        Those are its own and those of all that it is ordered behind, in the order in which
        they ran. Nothing else moves, however long ago it ran: the host cannot know.
        """
        if op.number <= self._host.get(op.stream, 0):
            return
        self._host = joined(self._host, op.known())
        due: list[Op] = []
        for queue in self.queues:
            number = self._host.get(queue.number, 0)
            while queue.unseen and queue.unseen[0].number <= number:
                due.append(queue.unseen.popleft())
        due.sort(key=_when_finished)
        error: Exception | None = None
        for each in due:
            moves, each.moves, each.seen = each.moves, (), True
            for move in moves:
                try:
                    move.make()
                except Exception as raised:
                    error = error or raised
        if error is not None:
            raise error

    def _startable(self) -> list[Queue]:
        """Give the queues whose first operation waits for nothing but its engine."""
        return [
            queue
            for queue in self.queues
            if queue.running is None
            and queue.waiting
            and all(other.done for other in queue.waiting[0].after)
        ]

    def _step(self, limit: float | None) -> bool:
        """Start or end the one operation that is next in time; False when there is none."""
        begin: tuple[float, bool, float, int] | None = None
        for candidate in self._startable():
            op = candidate.waiting[0]
            if op.engine is not None and op.engine.running is not None:
                continue
            ready = _ready(candidate, op)
            # Whoever has been ready for longest goes first, and of those who became ready
            # together the one that the host enqueued first.
            goes_on = op.engine is not None and op.engine.prefers(candidate)
            order = (_start(op, ready), not goes_on, ready, op.sequence)
            if begin is None or order < begin:
                begin, queue = order, candidate
        if self._ending and (begin is None or self._ending[0][0] <= begin[0]):
            end, _, ended, its_queue = self._ending[0]
            if limit is not None and end > limit:
                return False
            heapq.heappop(self._ending)
            self._finish(ended, its_queue)
            return True
        if begin is None or (limit is not None and begin[0] > limit):
            return False
        self._begin(queue.waiting.popleft(), queue, begin[0])
        return True

    def _begin(self, op: Op, queue: Queue, start: float) -> None:
        op.start, op.end = start, start + op.seconds
        queue.running = op
        if op.engine is not None:
            op.engine.running = op
            op.engine.serves = queue
        heapq.heappush(self._ending, (op.end, op.sequence, op, queue))

    def _finish(self, op: Op, queue: Queue) -> None:
        if op.engine is not None:
            op.engine.running = None
            op.engine.free_at = op.end
        queue.running = None
        queue.free_at = op.end
        op.done = True
        op.after = ()
        if op.effect is not None:
            op.effect()
            op.effect = None
        if op.moves:
            self._finished += 1
            op.finished = self._finished
            queue.unseen.append(op)
        self.history.append(Record(op.kind, op.name, queue.name, op.start, op.end, op.num_bytes))

    # --- any order -----------------------------------------------------------------------

    def _run_choice(self) -> bool:
        startable = self._startable()
        if not startable:
            return False
        assert self._choose is not None
        queue = startable[self._choose(len(startable))]
        op = queue.waiting.popleft()
        self._begin(op, queue, _start(op, _ready(queue, op)))
        self._ending.clear()
        self._finish(op, queue)
        return True

    def _run_some_choices(self) -> None:
        """Run any number of operations before the host goes on."""
        assert self._choose is not None
        while startable := self._startable():
            if self._choose(len(startable) + 1) == 0:
                return
            self._run_choice()


def _ready(queue: Queue, op: Op) -> float:
    """Time since which the first operation of a queue waits for nothing but its engine."""
    return max(op.enqueued, queue.free_at, *(other.end for other in op.after), 0.0)


def _start(op: Op, ready: float) -> float:
    return ready if op.engine is None else max(ready, op.engine.free_at)


def _when_finished(op: Op) -> int:
    return op.finished
