"""The virtual machine: a host with a clock, devices with streams, and the runtime seam."""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from asyncout.errors import StreamTypeError, TimingError
from asyncout.runtime import HostBlock, Submit
from asyncout.virtual.engine import HISTORY_LENGTH, Engine, Op, Queue, Record, Simulation
from asyncout.virtual.memory import DeviceMemory, HostMemory, poison
from asyncout.virtual.profile import CostProfile
from asyncout.virtual.tensor import VirtualTensor

#: Host calls in which a fault can be planted.
FAULT_KINDS = ("copy", "record", "synchronize", "allocate")

#: Values that a tensor's data is written out with in a program; longer data is left out.
MAX_PRINTED_VALUES = 256


class _Device:
    """One device's engines. Kernels of all streams share the processors, one at a time:
    a decode step's kernels fill them, which is the case that copies have to live with."""

    def __init__(self, index: int) -> None:
        self.compute = Engine(f"compute{index}")
        self.to_host = Engine(f"d2h{index}")
        self.to_device = Engine(f"h2d{index}")


class VirtualStream:
    """A stream of a virtual device. Make one with :meth:`VirtualMachine.stream`."""

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
        with self.machine.lock:
            self.machine.call("record")
            self.machine.log(f"{self}.wait_stream({stream})")
            marker = self.machine.enqueue(stream, Op("event", "wait_stream", self.machine.now))
            self._wait_for(marker)

    def wait_event(self, event: VirtualEvent) -> None:
        """Hold this stream's later work until `event`'s present point has passed."""
        with self.machine.lock:
            self.machine.log(f"{self}.wait_event({event})")
            if event.op is not None:
                self._wait_for(event.op)

    def _wait_for(self, op: Op) -> None:
        self.machine.call("wait_event")
        self.machine.enqueue(self, Op("wait", op.name, self.machine.now, after=(op,)))

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record `event`, or a new one, in this stream."""
        event = event or self.machine.new_event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether the stream is empty now."""
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
    """A point in a virtual stream. Make one with :meth:`VirtualMachine.new_event`."""

    def __init__(self, machine: VirtualMachine, name: str, blocking: bool, timing: bool) -> None:
        self.machine = machine
        self.name = name
        self.blocking = blocking
        self.timing = timing
        self.op: Op | None = None

    def record(self, stream: VirtualStream | None = None) -> None:
        """Mark the end of the work now in `stream` (default: the current one)."""
        with self.machine.lock:
            self.machine.fault("record")
            self.machine.call("record")
            stream = self.machine.as_stream(stream or self.machine.current_stream())
            self.machine.log(f"{self}.record({stream})")
            self.op = self.machine.enqueue(stream, Op("event", self.name, self.machine.now))

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Make `stream` (default: the current one) wait for this event."""
        (stream or self.machine.current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the point has passed; True when it was never recorded."""
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


class VirtualSubmit:
    """Enqueues a step's copies: wait, copies, event."""

    lane = None  # nothing is compiled for virtual streams

    def __init__(
        self, follow: Callable[[], None] | None, enqueue: Callable[..., None], copy: VirtualStream
    ) -> None:
        self._follow = follow
        self._enqueue = enqueue
        self._copy = copy

    def __call__(
        self,
        sources: list[torch.Tensor],
        sizes: list[int],
        offsets: list[int],
        block: HostBlock,
        event: Any,
    ) -> None:
        if self._follow is not None:
            self._follow()
        if sources:
            self._enqueue(sources, sizes, offsets, block)
        if event is not None:
            event.record(self._copy)


class VirtualWorker:
    """A second thread of the host, with a clock of its own, that enqueues copies.

    Its jobs run at once, in the thread that hands them over, so that there is one history;
    but the time that they take is the worker's.

    Attributes
    ----------
    stream : VirtualStream
    """

    def __init__(self, machine: VirtualMachine, stream: VirtualStream) -> None:
        self.machine = machine
        self.stream = stream
        self._now = 0.0

    def run(self, job: Callable[[], None]) -> None:
        """Run a job when the worker is free, at no cost to the host's own time."""
        machine = self.machine
        with machine.lock:
            before, current = machine.now, machine.current_stream()
            machine.now = max(before, self._now)
            try:
                job()
            finally:
                machine.set_stream(current)
                self._now, machine.now = machine.now, before


class VirtualMachine:
    """A host and its devices in virtual time; also the runtime seam of its streams.

    Parameters
    ----------
    profile : CostProfile, optional
        What everything costs. Default: the shipped H200 profile.
    devices : int
    pinned_available : bool
        Whether page-locked memory is to be had; without it every copy to the host
        goes to pageable memory, as under WSL.
    seed : int, optional
        Run what could run at the same time in an order drawn from this seed, whatever
        the times; one seed, one history. Without it, time decides.
    choose : callable, optional
        Decides the order itself; see :func:`asyncout.virtual.explore`.

    Attributes
    ----------
    now : float
        The host's clock, seconds.
    cpu_time : float
        CPU time that the host has burnt, seconds.
    moves_up_to : float
        Largest copy, in bytes, that moves its data and poisons its destination. A
        benchmark that has verified its bytes lowers it: large copies then cost no real
        time, while the small ones carry the counts that code depends on.

    Notes
    -----
    Nothing runs until the host waits, asks, or needs a value. Destinations hold a
    poison pattern until their copy is done. Freed device memory is poisoned behind
    the work that was in the stream it was allocated on, as a caching allocator
    would give it to that stream's next kernel.

    Not modelled: kernels that share the processors, bandwidth that copies and
    kernels take from each other, and a limit on how much can be enqueued.
    """

    def __init__(
        self,
        profile: CostProfile | None = None,
        *,
        devices: int = 1,
        pinned_available: bool = True,
        seed: int | None = None,
        choose: Callable[[int], int] | None = None,
    ) -> None:
        if choose is None and seed is not None:
            choose = random.Random(seed).randrange
        self.profile = profile or CostProfile.load()
        self.now = 0.0
        self.cpu_time = 0.0
        self.moves_up_to = math.inf
        self.lock = threading.RLock()
        self._simulation = Simulation(choose)
        self._devices = [_Device(index) for index in range(devices)]
        self._host = HostMemory()
        self._pinned_available = pinned_available
        self._names: dict[str, int] = {}
        self._program: deque[str] = deque(maxlen=HISTORY_LENGTH)
        self._faults: dict[str, Exception] = {}
        self._lost: Exception | None = None
        self._capturing = False
        self._workers: dict[int, VirtualWorker] = {}
        self._current = threading.local()
        self._default = [self._new_stream(index) for index in range(devices)]

    # --- streams and events: the runtime seam ----------------------------------------------

    def stream(self, device: int = 0) -> VirtualStream:
        """Make a stream."""
        with self.lock:
            stream = self._new_stream(device)
            self.log(f"{stream} = vm.stream({device})")
            return stream

    def _new_stream(self, device: int) -> VirtualStream:
        return VirtualStream(self, device, self._simulation.new_queue(self._name("s")))

    def default_stream(self, device: int = 0) -> VirtualStream:
        """Give the stream that is current in a new thread."""
        return self._default[device]

    def current_stream(self, device: int | None = None) -> VirtualStream:
        """Give the calling thread's current stream."""
        stream: VirtualStream = getattr(self._current, "stream", self._default[0])
        if device is not None and stream.device.index != device:
            return self._default[device]
        return stream

    def as_stream(self, stream: Any) -> VirtualStream:
        """Give `stream` if it is one of this machine.

        Raises
        ------
        StreamTypeError
        """
        if isinstance(stream, VirtualStream) and stream.machine is self:
            return stream
        raise StreamTypeError(
            f"expected a stream of this virtual machine, got {stream!r} of type "
            f"{type(stream).__name__}"
        )

    def set_stream(self, stream: Any) -> None:
        """Make `stream` current for the calling thread."""
        with self.lock:
            self.call("set_stream")
            self._current.stream = self.as_stream(stream)
            self.log(f"vm.set_stream({stream})")

    def switch(self, stream: Any) -> Callable[[], None]:
        """Give a function that makes `stream` current for the calling thread."""
        return partial(self.set_stream, self.as_stream(stream))

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> VirtualEvent:
        """Make an event; with `blocking` its ``synchronize`` sleeps, else it spins."""
        with self.lock:
            self.call("new_event")
            event = VirtualEvent(self, self._name("e"), blocking, timing)
            self.log(f"{event} = vm.new_event(blocking={blocking}, timing={timing})")
            return event

    def new_pooled_event(
        self, device: torch.device, *, blocking: bool = False, timing: bool = False
    ) -> VirtualEvent:
        """Make an event to be recorded again and again; only the first one costs."""
        return self.new_event(blocking=blocking, timing=timing)

    def recorder(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that records an event in the current stream of a device."""
        return lambda event: event.record(self.current_stream(device.index))

    def current_device(self) -> torch.device:
        """Give the calling thread's current device."""
        return self.current_stream().device

    def is_capturing(self) -> bool:
        """Whether :meth:`begin_capture` was called last."""
        return self._capturing

    def begin_capture(self) -> None:
        """Say that a graph is being captured; only :meth:`is_capturing` knows."""
        self._capturing = True

    def end_capture(self) -> None:
        """Say that it no longer is."""
        self._capturing = False

    def is_pinned(self, host_tensor: torch.Tensor) -> bool:
        """Whether a host tensor's memory is page-locked on this machine."""
        return self._host.is_pinned(host_tensor)

    def pinned_bytes(self) -> int:
        """Count the bytes of page-locked memory that is in use."""
        return self._host.pinned_bytes()

    def synchronizer(self, device: torch.device) -> Callable[[Any], None]:
        """Give a function that holds the host until an event has passed."""
        return lambda event: event.synchronize()

    # --- tensors ---------------------------------------------------------------------------

    def tensor(self, data: Any, dtype: torch.dtype | None = None, device: int = 0) -> VirtualTensor:
        """Make a device tensor whose contents are there at once."""
        values = torch.as_tensor(data, dtype=dtype).detach().clone()
        with self.lock:
            result = self._wrap(values, device)
            shown = values.tolist() if values.numel() <= MAX_PRINTED_VALUES else None
            source = f"torch.zeros({tuple(values.shape)})" if shown is None else repr(shown)
            self.log(f"{self.name_of(result)} = vm.tensor({source}, {values.dtype}, {device})")
            return result

    def empty(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        device: int = 0,
        stride: Sequence[int] | None = None,
    ) -> VirtualTensor:
        """Make a device tensor that holds poison."""
        backing = torch.empty(tuple(shape), dtype=dtype, device="cpu")
        if stride is not None and tuple(stride) != backing.stride():
            backing = torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device="cpu")
        poison(backing)
        with self.lock:
            result = self._wrap(backing, device)
            self.log(f"{self.name_of(result)} = vm.empty({tuple(shape)}, {dtype}, {device})")
            return result

    def empty_host(
        self, shape: Sequence[int], dtype: torch.dtype, pinned: bool = True
    ) -> torch.Tensor:
        """Make a host tensor that holds poison; pinned where that is to be had."""
        with self.lock:
            self.fault("allocate")
            self.call("host_allocation")
            pinned = pinned and self._pinned_available
            num_bytes = math.prod(shape) * dtype.itemsize
            return self._host.empty(shape, dtype, pinned, poisoned=num_bytes <= self.moves_up_to)

    def _wrap(self, contents: torch.Tensor, device: int) -> VirtualTensor:
        owner = self.current_stream(device)

        def free(users: list[VirtualStream]) -> None:
            with self.lock:
                after = tuple(user.queue.last for user in users if user.queue.last is not None)
                op = Op("free", "", self.now, effect=lambda: poison(contents), after=after)
                self.enqueue(owner, op)

        return VirtualTensor(contents, self, DeviceMemory(device, free))

    def record_stream(self, tensor: VirtualTensor, stream: VirtualStream) -> None:
        """Free `tensor`'s memory only behind the work in `stream` at that time."""
        tensor.memory.users.append(self.as_stream(stream))

    # --- work ------------------------------------------------------------------------------

    def busy(self, seconds: float, stream: VirtualStream | None = None) -> None:
        """Enqueue a kernel that only takes time."""
        self.kernel(seconds, stream, name="busy")

    def kernel(
        self,
        seconds: float,
        stream: VirtualStream | None = None,
        fn: Callable[[], None] | None = None,
        name: str = "kernel",
    ) -> None:
        """Enqueue a kernel that takes `seconds` and calls `fn` when it ends."""
        with self.lock:
            stream = self.as_stream(stream or self.current_stream())
            self.call("kernel")
            self.log(f"vm.kernel({seconds!r}, {stream}, name={name!r})")
            engine = self._devices[stream.device.index].compute
            self.enqueue(stream, Op("kernel", name, self.now, engine, seconds, effect=fn))

    def run_kernel(
        self, name: str, effect: Callable[[], Any], touched: Sequence[VirtualTensor]
    ) -> None:
        """Enqueue the kernel of a torch operation on the current stream."""
        num_bytes = sum(t.numel() * t.element_size() for t in touched)
        seconds = self.profile.kernel_s + num_bytes / self.profile.kernel_bytes_per_s
        stream = self._stream_for(touched[0])
        self.call("kernel")
        names = ", ".join(self.name_of(t) for t in touched)
        self.log(f"vm.kernel({seconds!r}, {stream}, name={name!r})  # {names}")
        engine = self._devices[stream.device.index].compute
        self.enqueue(stream, Op("kernel", name, self.now, engine, seconds, num_bytes, effect))

    def copy_to_host(
        self, source: VirtualTensor, dtype: torch.dtype, non_blocking: bool
    ) -> torch.Tensor:
        """Copy to a new host tensor: pinned and later when non-blocking, else done on return."""
        target = self.empty_host(source.shape, dtype, pinned=non_blocking)
        self.copy_into_host(target, source, non_blocking)
        return target

    def copy_into_host(
        self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
    ) -> None:
        """Copy to a host tensor; pageable memory, or a blocking copy, holds the host."""
        assert isinstance(source, VirtualTensor)
        pinned = self.is_pinned(target)
        contents = self._contiguous(source, target.dtype)
        effect: Callable[[], Any] = _nothing
        if target.nbytes <= self.moves_up_to:
            poison(target)
            effect = partial(target.copy_, contents)
        bandwidth = (
            self.profile.d2h_pinned_bytes_per_s if pinned else self.profile.d2h_pageable_bytes_per_s
        )
        stream, name = self._stream_for(source), self.name_of(source)
        op = self._copy("d2h", name, source.nbytes, stream, bandwidth, effect)
        if not (pinned and non_blocking):
            self._hold(op)

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self._devices)

    def follower(self, main: Any, copy: Any) -> Callable[[], None]:
        """Give a function that makes `copy` wait for the present work of `main`."""
        marker = self.new_pooled_event(main.device)

        def follow() -> None:
            marker.record(main)
            marker.wait(copy)

        return follow

    def submitter(self, main: Any, copy: Any) -> Submit:
        """Give a function that enqueues a step's copies on `copy` behind the work of `main`."""
        follow = None if main is None else self.follower(main, copy)
        return VirtualSubmit(follow, self.block_copier(copy), copy)

    def worker(self, device: torch.device) -> VirtualWorker:
        """Give the one worker of a device."""
        with self.lock:
            if device.index not in self._workers:
                self._workers[device.index] = VirtualWorker(self, self.stream(device.index))
            return self._workers[device.index]

    def block_copier(self, stream: Any) -> Callable[..., None]:
        """Give a function that copies tensors into a block of host bytes as one operation.

        A batch occupies the copy engine once: its bytes and one latency.
        """
        own = self.as_stream(stream)

        def copy(
            sources: Sequence[torch.Tensor],
            sizes: Sequence[int],
            offsets: Sequence[int],
            block: HostBlock,
        ) -> None:
            with self.lock:
                self._copy_batch(own, sources, offsets, block.memory)

        return copy

    def _copy_batch(
        self,
        stream: VirtualStream,
        sources: Sequence[torch.Tensor],
        offsets: Sequence[int],
        block: torch.Tensor,
    ) -> None:
        pairs = []
        for source, offset in zip(sources, offsets, strict=True):
            assert isinstance(source, VirtualTensor)
            part = block[offset : offset + source.nbytes]
            target = part.view(source.dtype).view(tuple(source.shape))
            if source.nbytes <= self.moves_up_to:
                poison(target)
                pairs.append((target, source.contents))

        def effect() -> None:
            for target, contents in pairs:
                target.copy_(contents)

        pinned = self.is_pinned(block)
        bandwidth = (
            self.profile.d2h_pinned_bytes_per_s if pinned else self.profile.d2h_pageable_bytes_per_s
        )
        num_bytes = sum(source.nbytes for source in sources)
        op = self._copy("d2h", "batch", num_bytes, stream, bandwidth, effect)
        if not pinned:
            self._hold(op)

    def copy_to_device(
        self, target: VirtualTensor, source: torch.Tensor, non_blocking: bool
    ) -> None:
        """Copy from a host tensor; pageable memory is read before the call returns."""
        pinned = self.is_pinned(source)
        contents, values = target.contents, source if pinned else source.clone()
        bandwidth = (
            self.profile.h2d_pinned_bytes_per_s if pinned else self.profile.h2d_pageable_bytes_per_s
        )
        stream, name = self._stream_for(target), self.name_of(target)
        op = self._copy(
            "h2d", name, target.nbytes, stream, bandwidth, lambda: contents.copy_(values)
        )
        if not (pinned and non_blocking):
            self._hold(op)

    def _contiguous(self, source: VirtualTensor, dtype: torch.dtype) -> torch.Tensor:
        """Give what the copy engine reads: a kernel packs or converts what it cannot."""
        if source.is_contiguous() and source.dtype == dtype:
            return source.contents
        contents = source.contents
        packed = torch.empty(tuple(contents.shape), dtype=dtype, device="cpu")
        poison(packed)
        self.run_kernel("contiguous", lambda: packed.copy_(contents), [source])
        return packed

    def _copy(
        self,
        kind: str,
        name: str,
        num_bytes: int,
        stream: VirtualStream,
        bandwidth: float,
        effect: Callable[[], Any],
    ) -> Op:
        self.fault("copy")
        self.call("copy")
        device = self._devices[stream.device.index]
        seconds = self.profile.copy_latency_s + num_bytes / bandwidth
        engine = device.to_host if kind == "d2h" else device.to_device
        self.log(f"# {kind} of {name}, {num_bytes} bytes, on {stream}")
        return self.enqueue(stream, Op(kind, name, self.now, engine, seconds, num_bytes, effect))

    def _hold(self, op: Op) -> None:
        self._simulation.run_until_done(op)
        self.spend(max(0.0, op.end - self.now))

    def _stream_for(self, tensor: VirtualTensor) -> VirtualStream:
        stream = self.current_stream()
        if stream.device.index != tensor.memory.index:
            # As torch does: the tensor's device's own current stream.
            return self._default[tensor.memory.index]
        return stream

    # --- the host --------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds of virtual time on the host."""
        return self.now

    def host_work(self, seconds: float) -> None:
        """Let the host compute for `seconds`."""
        with self.lock:
            self.spend(seconds)

    def sleep(self, seconds: float) -> None:
        """Let the host sleep for `seconds`, and as much longer as the profile says."""
        with self.lock:
            self.now += seconds + self.profile.sleep_late_s

    def synchronize(self) -> None:
        """Hold the host until every stream is empty."""
        with self.lock:
            for queue in self._simulation.queues:
                if queue.last is not None:
                    self.wait_for(queue.last, blocking=False)

    def spend(self, seconds: float) -> None:
        """Advance the clock by work of the host's CPU."""
        self.now += seconds
        self.cpu_time += seconds

    def call(self, kind: str) -> None:
        """Spend what one host call of a kind costs."""
        self.spend(getattr(self.profile, f"call_{kind}_s"))

    def wait_for(self, op: Op | None, blocking: bool) -> None:
        """Hold the host until an operation is done, asleep or spinning."""
        self.fault("synchronize")
        self.call("query")
        if self._lost is not None:
            raise self._lost
        if op is None:
            return
        if op.done:
            # It may lie ahead: another thread's wait has run the simulation that far.
            self.now = max(self.now, op.end)
            return
        self._simulation.run_until_done(op)
        if op.end <= self.now:
            return
        if blocking:
            self.now = op.end + self.profile.block_wake_s
            self.cpu_time += self.profile.block_cpu_s
        else:
            self.spend(op.end + self.profile.spin_wake_s - self.now)

    def is_done(self, op: Op) -> bool:
        """Whether an operation is done at the host's time; costs a query."""
        with self.lock:
            if self._lost is not None:
                raise self._lost
            self.call("query")
            self._simulation.run_until(self.now)
            return op.done and op.end <= self.now

    def enqueue(self, stream: VirtualStream, op: Op) -> Op:
        """Put an operation at the end of a stream."""
        return self._simulation.enqueue(stream.queue, op)

    # --- faults, history -------------------------------------------------------------------

    def fail_next(self, kind: str, error: Exception) -> None:
        """Raise `error` in the next host call of a kind.

        Parameters
        ----------
        kind : {"copy", "record", "synchronize", "allocate"}
        error : Exception
        """
        if kind not in FAULT_KINDS:
            raise ValueError(f"no fault kind {kind!r}; choose one of {', '.join(FAULT_KINDS)}")
        self._faults[kind] = error

    def fail_device(self, error: Exception) -> None:
        """Lose the device: every later wait and query raises `error`."""
        self._lost = error

    def fault(self, kind: str) -> None:
        """Raise the fault that was planted for a kind of call, once."""
        error = self._faults.pop(kind, None)
        if error is not None:
            raise error

    @property
    def history(self) -> list[Record]:
        """What has run, in order; the last :data:`~asyncout.virtual.engine.HISTORY_LENGTH`."""
        return list(self._simulation.history)

    def program(self) -> str:
        """Give the host's calls so far as Python that can be pasted into a test.

        Computations appear as kernels of the same length, copies as comments.
        """
        return "\n".join(["vm = VirtualMachine()", *self._program])

    def log(self, line: str) -> None:
        """Add a line to the program."""
        self._program.append(line)

    def name_of(self, tensor: VirtualTensor) -> str:
        """Give a tensor's name in the program; one for each memory."""
        memory = tensor.memory
        if memory.name is None:
            memory.name = self._name("t")
        return memory.name

    def _name(self, prefix: str) -> str:
        number = self._names.get(prefix, 0)
        self._names[prefix] = number + 1
        return f"{prefix}{number}"


def _nothing() -> None:
    """Move no data."""
