"""Streams and events of a virtual machine: what orders its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from asyncout.errors import TimingError
from asyncout.virtual.engine import Queue
from asyncout.virtual.order import Op

if TYPE_CHECKING:
    from asyncout.virtual.machine import VirtualMachine


class VirtualStream:
    """A stream of a virtual device. Make one with :meth:`VirtualMachine.stream`.

    Every method that takes a stream or an event raises for one of another machine
    (StreamTypeError, DeviceMismatchError) before it has done anything.
    """

    def __init__(self, machine: VirtualMachine, index: int, queue: Queue) -> None:
        self.machine = machine
        self.device = torch.device("meta", index)
        self.queue = queue

    @property
    def asyncout_runtime(self) -> VirtualMachine:
        """The runtime seam that this stream belongs to."""
        return self.machine

    def wait_stream(self, stream: VirtualStream) -> None:
        """Hold this stream's later work until `stream`'s present work is done."""
        machine = self.machine
        with machine.lock:
            machine.as_stream(stream)
            machine.log(f"{self}.wait_stream({stream})")
            machine.call("record")
            marker = machine.enqueue(stream, Op("event", "wait_stream", machine.now))
            self._wait_for(marker)

    def wait_event(self, event: VirtualEvent) -> None:
        """Hold this stream's later work until `event`'s present point has passed."""
        with self.machine.lock:
            self.machine.as_event(event)
            self.machine.log(f"{self}.wait_event({event})")
            if event.op is not None:
                self._wait_for(event.op)

    def _wait_for(self, op: Op) -> None:
        self.machine.call("wait_event")
        self.machine.enqueue(self, Op("wait", op.name, self.machine.now, after=(op,)))

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record `event`, or a new one, in this stream."""
        if event is None:
            event = self.machine.new_event()
        self.machine.as_event(event).record(self)
        return event

    def query(self) -> bool:
        """Whether the stream is empty now; then the host has seen all its work done."""
        with self.machine.lock:
            self.machine.log(f"{self}.query()")
            last = self.queue.last
            return last is None or self.machine.is_done(last)

    def synchronize(self) -> None:
        """Hold the host until the stream is empty."""
        with self.machine.lock:
            self.machine.log(f"{self}.synchronize()")
            self.machine.wait_for(self.queue.last, blocking=False)

    def __repr__(self) -> str:
        return self.queue.name


class VirtualEvent:
    """A point in a virtual stream. Make one with :meth:`VirtualMachine.new_event`.

    A stream or event of another machine is refused as by :class:`VirtualStream`.
    """

    def __init__(self, machine: VirtualMachine, name: str, blocking: bool, timing: bool) -> None:
        self.machine = machine
        self.name = name
        self.blocking = blocking
        self.timing = timing
        self.op: Op | None = None

    def record(self, stream: VirtualStream | None = None) -> None:
        """Mark the end of the work now in `stream` (default: the current one)."""
        machine = self.machine
        with machine.lock:
            stream = machine.current_stream() if stream is None else machine.as_stream(stream)
            machine.log(f"{self}.record({stream})")
            machine.fault("record")
            machine.call("record")
            self.op = machine.enqueue(stream, Op("event", self.name, machine.now))

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Make `stream` (default: the current one) wait for this event."""
        machine = self.machine
        stream = machine.current_stream() if stream is None else machine.as_stream(stream)
        stream.wait_event(self)

    def query(self) -> bool:
        """Whether the point has passed; True when it was never recorded.

        Once it is True, the host has seen all work before that point done.
        """
        with self.machine.lock:
            self.machine.log(f"{self}.query()")
            return self.op is None or self.machine.is_done(self.op)

    def synchronize(self) -> None:
        """Hold the host until the point has passed; at once when it was never recorded."""
        with self.machine.lock:
            self.machine.log(f"{self}.synchronize()")
            self.machine.wait_for(self.op, self.blocking)

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Milliseconds from this event to `end_event`.

        Raises
        ------
        TimingError
            One of the two was made without timing, not recorded, or has not passed.
        """
        self.machine.as_event(end_event)
        for event in (self, end_event):
            if not event.timing:
                raise TimingError(f"{event} was made without timing; use new_event(timing=True)")
            if event.op is None:
                raise TimingError(f"{event} was never recorded")
            if not event.query():
                raise TimingError(f"{event} has not passed; synchronize it first")
        assert self.op is not None
        assert end_event.op is not None
        return (end_event.op.end - self.op.end) * 1e3

    def __repr__(self) -> str:
        return self.name
