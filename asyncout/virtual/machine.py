"""The virtual machine: a host with a clock, devices with streams, and the runtime seam."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from asyncout.errors import DeviceMismatchError, StreamTypeError
from asyncout.runtime import HostBlock, Job, Submit
from asyncout.virtual.engine import Engine, Record, Simulation
from asyncout.virtual.memory import BlockOrigin, DestructorLock, DeviceMemory, HostMemory
from asyncout.virtual.order import Move, Op, Use, Uses, part_of
from asyncout.virtual.poison import poison
from asyncout.virtual.profile import CostProfile
from asyncout.virtual.program import Program, spell_data, spell_error
from asyncout.virtual.streams import VirtualEvent, VirtualStream
from asyncout.virtual.tensor import VirtualTensor

#: Host calls in which a fault can be planted.
FAULT_KINDS = ("copy", "record", "synchronize", "allocate")

#: Copies up to which a batch into pageable memory is a call for each, which holds the host, as
#: it is on CUDA: the library's own choice there (``cuda_driver.FEW_COPIES``), not a machine's.
LONE_COPIES = 2


class _Device:
    """One device's engines. Kernels of all streams share the processors, one at a time:
    a decode step's kernels fill them, which is the case that copies have to live with."""

    def __init__(self, index: int) -> None:
        self.compute = Engine(f"compute{index}")
        self.to_host = Engine(f"d2h{index}", stays=True)
        self.to_device = Engine(f"h2d{index}", stays=True)


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

    def run(self, job: Job) -> None:
        """Run a job when the worker is free, at no cost to the host's own time."""
        machine = self.machine
        with machine.lock:
            before, current = machine.now, machine.current_stream()
            machine.set_clock(max(before, self._now))
            try:
                job(None)
            finally:
                machine.set_stream(current)
                self._now = machine.now
                machine.set_clock(before)


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
    Nothing runs until the host waits, asks, or needs a value.

    **What is not ordered is poison, whatever the times.** Memory changes when the host
    has *seen* the work that changes it: an event's or stream's ``synchronize`` returned,
    a ``query`` was True, or a copy held the host, and the work is ordered before that
    point. Until then the destination of a copy holds a poison pattern, however long ago
    in virtual time the copy ended. A wait by one host thread counts for all: threads are
    taken to tell each other.

    An operation that reads what another one writes, or what is freed, and that no
    stream, event or wait orders behind (before) it, gives poison. Freed memory goes
    back to the stream it was allocated on: it is ordered behind the work in that stream
    and in those of ``record_stream``, and behind what the host has seen. An operation
    of another stream that nothing of this covers has lost its source, though in virtual
    time it may have been done. Views that share no byte do not disturb each other.

    Not modelled: kernels that share the processors, bandwidth that copies and
    kernels take from each other, a limit on how much can be enqueued, and the host's own
    work between its calls. A copy into pageable memory makes pages where that is large and
    new; that smaller memory may be new too, by what its allocator did before, is not modelled.
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
        self._seed = seed if choose is None else None
        self._choices: list[int] | None = None
        if choose is not None:
            self._choices = []
            choose = partial(_note_choice, choose, self._choices)
        elif seed is not None:
            choose = random.Random(seed).randrange
        self.profile = profile or CostProfile.load()
        self.now = 0.0
        self.cpu_time = 0.0
        self.moves_up_to = math.inf
        self.lock = DestructorLock()
        self._simulation = Simulation(choose)
        self._devices = [_Device(index) for index in range(devices)]
        self._host = HostMemory(self._forget_host_block)
        self._pinned_available = pinned_available
        self._program = Program()
        self._faults: dict[str, Exception] = {}
        self._lost: Exception | None = None
        self._capturing = False
        self._workers: dict[int, VirtualWorker] = {}
        self._current = threading.local()
        self._default = [self._new_stream(index) for index in range(devices)]
        self._current_in_program = self._default[0]
        #: Copies to host memory that an earlier copy, not seen yet, writes to as well.
        self._overwriting: list[tuple[Op, torch.Tensor]] = []

    # --- streams and events: the runtime seam ----------------------------------------------

    def stream(self, device: int = 0) -> VirtualStream:
        """Make a stream."""
        with self.lock:
            stream = self._new_stream(device)
            self.log(f"{stream} = vm.stream({device})")
            return stream

    def _new_stream(self, device: int) -> VirtualStream:
        return VirtualStream(self, device, self._simulation.new_queue(self.new_name("s")))

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
        if isinstance(stream, VirtualStream):
            if stream.machine is self:
                return stream
            raise StreamTypeError(
                f"expected a stream of this virtual machine, got {stream!r} of another one; "
                "make it with stream() of the machine that its work is on"
            )
        raise StreamTypeError(
            f"expected a stream of this virtual machine, got {stream!r} of type "
            f"{type(stream).__name__}; make it with VirtualMachine.stream()"
        )

    def as_event(self, event: Any) -> VirtualEvent:
        """Give `event` if it is one of this machine.

        Raises
        ------
        DeviceMismatchError
            It is of another machine.
        StreamTypeError
            It is no virtual event.
        """
        if isinstance(event, VirtualEvent):
            if event.machine is self:
                return event
            raise DeviceMismatchError(
                f"expected an event of this virtual machine, got {event!r} of another one; "
                "make it with new_event() of the machine whose streams it orders"
            )
        raise StreamTypeError(
            f"expected an event of this virtual machine, got {event!r} of type "
            f"{type(event).__name__}; make it with VirtualMachine.new_event()"
        )

    def as_tensor(self, tensor: Any) -> VirtualTensor:
        """Give `tensor` if it is on this machine.

        Raises
        ------
        DeviceMismatchError
        """
        if isinstance(tensor, VirtualTensor) and tensor.machine is self:
            return tensor
        where = "another one" if isinstance(tensor, VirtualTensor) else "none"
        raise DeviceMismatchError(
            f"expected a tensor on this virtual machine, got {tensor!r} of {where}; make it with "
            "tensor() or empty() of the machine whose streams use it"
        )

    def set_stream(self, stream: Any) -> None:
        """Make `stream` current for the calling thread."""
        with self.lock:
            self._current.stream = self._current_in_program = self.as_stream(stream)
            self.log(f"vm.set_stream({stream})")
            self.call("set_stream")

    def assume_stream(self, stream: VirtualStream) -> None:
        """Take it that `stream` is current already: costs nothing.

        A printed program needs it where its calls come from several threads, of which
        each has its own current stream.
        """
        with self.lock:
            self._current.stream = self._current_in_program = self.as_stream(stream)
            self.log(f"vm.assume_stream({stream})")

    def switch(self, stream: Any) -> Callable[[], None]:
        """Give a function that makes `stream` current for the calling thread."""
        return partial(self.set_stream, self.as_stream(stream))

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> VirtualEvent:
        """Make an event; with `blocking` its ``synchronize`` sleeps, else it spins."""
        with self.lock:
            event = VirtualEvent(self, self.new_name("e"), blocking, timing)
            self.log(f"{event} = vm.new_event(blocking={blocking}, timing={timing})")
            self.call("new_event")
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
            self.log_work(
                f"{result.program_name} = vm.tensor({spell_data(values)}, device={device})"
            )
            return result

    def empty(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        device: int = 0,
        stride: Sequence[int] | None = None,
    ) -> VirtualTensor:
        """Make a device tensor that holds poison."""
        with self.lock:
            result = self.unnamed(shape, dtype, device, stride)
            layout = "" if result.is_contiguous() else f", {tuple(result.stride())}"
            self.log_work(
                f"{result.program_name} = vm.empty({tuple(shape)}, {dtype}, {device}{layout})"
            )
            return result

    def unnamed(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: int,
        stride: Sequence[int] | None = None,
    ) -> VirtualTensor:
        """Make a device tensor that holds poison, for a call that is in the program by itself."""
        backing = torch.empty(tuple(shape), dtype=dtype, device="cpu")
        if stride is not None and tuple(stride) != backing.stride():
            backing = torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device="cpu")
        poison(backing)
        return self._wrap(backing, device)

    def empty_host(
        self, shape: Sequence[int], dtype: torch.dtype, pinned: bool = True
    ) -> torch.Tensor:
        """Make a host tensor that holds poison; pinned where that is to be had."""
        with self.lock:
            origin = BlockOrigin(self.new_name("h"), tuple(shape), dtype)
            self.log(f"{origin.name} = vm.empty_host({origin.shape}, {dtype}, pinned={pinned})")
            return self._empty_host(origin, pinned)

    def _empty_host(self, origin: BlockOrigin, pinned: bool) -> torch.Tensor:
        self.fault("allocate")
        self.call("host_allocation")
        num_bytes = math.prod(origin.shape) * origin.dtype.itemsize
        pinned = pinned and self._pinned_available
        return self._host.empty(origin, pinned, poisoned=num_bytes <= self.moves_up_to)

    def _forget_host_block(self, name: str) -> None:
        self.lock.defer(partial(self._program.forget, [name]))

    def _wrap(self, contents: torch.Tensor, device: int) -> VirtualTensor:
        owner = self.current_stream(device)

        def freed(users: list[VirtualStream], uses: Uses, views: dict[Any, str]) -> None:
            self.lock.defer(partial(self._free, owner, users, uses, views))

        return VirtualTensor(contents, self, DeviceMemory(device, self.new_name("t"), freed))

    def _free(
        self,
        owner: VirtualStream,
        users: Sequence[VirtualStream],
        uses: Uses,
        views: dict[Any, str],
    ) -> None:
        """Give memory back to the stream it was allocated on, at its present end."""
        self._program.forget(list(views.values()))
        after = tuple(user.queue.last for user in users if user.queue.last is not None)
        op = self.enqueue(owner, Op("free", "", self.now, after=after))
        uses.add(Use(op, None, writes=True))

    def record_stream(self, tensor: VirtualTensor, stream: VirtualStream) -> None:
        """Free `tensor`'s memory only behind the work in `stream` at that time."""
        with self.lock:
            users, user = self.as_tensor(tensor).memory.users, self.as_stream(stream)
            users.append(user)
            self.log(f"{tensor.program_name}.record_stream({user})")

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
            stream = self.current_stream() if stream is None else self.as_stream(stream)
            comment = "" if fn is None else "what it called is not shown"
            self.log(f"vm.kernel({seconds!r}, {stream}, name={name!r})", comment)
            self.call("kernel")
            engine = self._devices[stream.device.index].compute
            self.enqueue(stream, Op("kernel", name, self.now, engine, seconds, effect=fn))

    def run_kernel(
        self,
        name: str,
        effect: Callable[[], Any],
        tensors: Sequence[VirtualTensor],
        written: Sequence[VirtualTensor],
    ) -> None:
        """Enqueue the kernel of a torch operation on the current stream.

        Parameters
        ----------
        name : str
        effect : callable
            Computes what it writes.
        tensors : sequence of VirtualTensor
            All that it touches.
        written : sequence of VirtualTensor
            Those of them that it writes to.
        """
        move = Move(effect, [tensor.contents for tensor in written])
        op = self._kernel_on(self._stream_for(tensors[0]), name, tensors, move)
        for tensor in tensors:
            _use(op, move, tensor, writes=any(tensor is other for other in written))

    def _kernel_on(
        self, stream: VirtualStream, name: str, touched: Sequence[VirtualTensor], move: Move
    ) -> Op:
        num_bytes = sum(t.numel() * t.element_size() for t in touched)
        seconds = self.profile.kernel_s + num_bytes / self.profile.kernel_bytes_per_s
        self.call("kernel")
        engine = self._devices[stream.device.index].compute
        op = Op("kernel", name, self.now, engine, seconds, num_bytes, moves=(move,))
        return self.enqueue(stream, op)

    def copy_to_host(
        self, source: VirtualTensor, dtype: torch.dtype, non_blocking: bool
    ) -> torch.Tensor:
        """Copy to a new host tensor: pinned and later when non-blocking, else done on return."""
        with self.lock:
            name = self.as_tensor(source).program_name
            origin = BlockOrigin(self.new_name("h"), tuple(source.shape), dtype)
            self.log_work(
                f'{origin.name} = {name}.to("cpu", {dtype}, non_blocking={non_blocking})', "d2h"
            )
            target = self._empty_host(origin, pinned=non_blocking)
            self._copy_into_host(target, source, non_blocking)
            return target

    def copy_into_host(
        self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
    ) -> None:
        """Copy to a host tensor; pageable memory, or a blocking copy, holds the host."""
        with self.lock:
            source = self.as_tensor(source)
            name = source.program_name
            self.log_work(
                f"{self._spell_host(target)}.copy_({name}, non_blocking={non_blocking})", "d2h"
            )
            self._copy_into_host(target, source, non_blocking)

    def _copy_into_host(
        self, target: torch.Tensor, source: VirtualTensor, non_blocking: bool
    ) -> None:
        pinned = self.is_pinned(target)
        stream = self._stream_for(source)
        if source.is_contiguous() and source.dtype == target.dtype:
            op = self._copy_down(stream, source.memory.name, [(target, source.contents)], pinned)
            _use(op, op.moves[0], source, writes=False)
        else:
            # A kernel packs or converts what the copy engine cannot.
            packed = self._packed(stream, source, target.dtype)
            op = self._copy_down(stream, source.memory.name, [(target, packed)], pinned)
        if not (pinned and non_blocking):
            self._hold(op)

    def _packed(
        self, stream: VirtualStream, source: VirtualTensor, dtype: torch.dtype
    ) -> torch.Tensor:
        contents = source.contents
        packed = torch.empty(tuple(contents.shape), dtype=dtype, device="cpu")
        poison(packed)
        move = Move(lambda: packed.copy_(contents), [packed])
        op = self._kernel_on(stream, "contiguous", [source], move)
        _use(op, move, source, writes=False)
        return packed

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self._devices)

    def follower(self, main: Any, copy: Any) -> Callable[[], None]:
        """Give a function that makes `copy` wait for the present work of `main`."""
        leader, own = self.as_stream(main), self.as_stream(copy)
        marker = self.new_pooled_event(leader.device)

        def follow() -> None:
            marker.record(leader)
            marker.wait(own)

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

        A batch occupies the copy engine once: its bytes and one latency, and into pageable
        memory what the profile says of each of its copies.
        """
        own = self.as_stream(stream)

        def copy(
            sources: Sequence[torch.Tensor],
            sizes: Sequence[int],
            offsets: Sequence[int],
            block: HostBlock,
        ) -> None:
            self.copy_into_block(own, sources, offsets, block.memory)

        return copy

    def copy_into_block(
        self,
        stream: VirtualStream,
        sources: Sequence[torch.Tensor],
        offsets: Sequence[int],
        memory: torch.Tensor,
    ) -> None:
        """Copy contiguous tensors to places in a block of host bytes, as one operation.

        Into pageable memory, one or two are copies of their own and hold the host.

        Parameters
        ----------
        stream : VirtualStream
        sources : sequence of VirtualTensor
        offsets : sequence of int
            Bytes.
        memory : torch.Tensor, uint8
        """
        with self.lock:
            self.as_stream(stream)
            tensors = [self.as_tensor(source) for source in sources]
            names = ", ".join(tensor.program_name for tensor in tensors)
            self.log(
                f"vm.copy_into_block({stream}, [{names}], {list(offsets)}, "
                f"{self._spell_host(memory)})",
                "d2h",
            )
            pairs = []
            for source, offset in zip(tensors, offsets, strict=True):
                part = memory[offset : offset + source.nbytes]
                target = part.view(source.dtype).view(tuple(source.shape))
                pairs.append((target, source.contents))
            pinned = self.is_pinned(memory)
            are_lone = not pinned and len(pairs) <= LONE_COPIES
            calls = [slice(at, at + 1) for at in range(len(pairs))] if are_lone else [slice(None)]
            for call in calls:
                op = self._copy_down(stream, "batch", pairs[call], pinned, is_batch=not are_lone)
                for source, move in zip(tensors[call], op.moves, strict=True):
                    _use(op, move, source, writes=False)
                if are_lone or (not pinned and self.profile.pageable_batch_holds):
                    self._hold(op)

    def copy_to_device(
        self, target: VirtualTensor, source: torch.Tensor, non_blocking: bool
    ) -> None:
        """Copy from a host tensor; pageable memory is read before the call returns."""
        with self.lock:
            name = self.as_tensor(target).program_name
            pinned = self.is_pinned(source)
            data = spell_data(source)
            if pinned:
                host = self._spell_host(source)
                self.log(f"{host}.copy_({data})")
                data = host
            self.log_work(f"{name}.copy_({data}, non_blocking={non_blocking})", "h2d")
            contents, values = target.contents, source if pinned else source.clone()
            bandwidth = (
                self.profile.h2d_pinned_bytes_per_s
                if pinned
                else self.profile.h2d_pageable_bytes_per_s
            )
            move = Move(lambda: contents.copy_(values), [contents])
            stream, num_bytes = self._stream_for(target), target.nbytes
            seconds = num_bytes / bandwidth
            op = self._copy("h2d", target.memory.name, num_bytes, stream, seconds, [move])
            _use(op, move, target, writes=True)
            self._use_host(op, [source], writes=False)
            if not (pinned and non_blocking):
                self._hold(op)

    def _copy_down(
        self,
        stream: VirtualStream,
        name: str,
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        pinned: bool,
        is_batch: bool = False,
    ) -> Op:
        """Enqueue a copy of device contents to host tensors, one move for each pair."""
        moves = []
        for target, contents in pairs:
            if target.nbytes <= self.moves_up_to:
                poison(target)
                moves.append(Move(partial(target.copy_, contents), [target]))
            else:
                moves.append(Move(_nothing))
        num_bytes = sum(contents.nbytes for _, contents in pairs)
        targets = [target for target, _ in pairs]
        seconds = num_bytes / self.profile.d2h_pinned_bytes_per_s
        if not pinned:
            seconds = num_bytes / self.profile.d2h_pageable_bytes_per_s
            seconds += self._host.new_pages(targets) * self.profile.new_page_s
            seconds += (
                len(pairs) * self.profile.pageable_batch_copy_s
                if is_batch
                else self.profile.pageable_copy_s
            )
        op = self._copy("d2h", name, num_bytes, stream, seconds, moves)
        self._use_host(op, targets, writes=True)
        return op

    def _use_host(self, op: Op, tensors: Sequence[torch.Tensor], *, writes: bool) -> None:
        """Note that each move of an operation uses a host tensor, if this machine made it."""
        noted = []
        for tensor, move in zip(tensors, op.moves, strict=True):
            origin = self._host.origin_of(tensor)
            if origin is not None:
                use = Use(op, part_of(tensor), writes)
                move.uses.append(use)
                noted.append((origin.uses, use))
                if writes and origin.uses.rewrites(use):
                    self._overwriting.append((op, tensor))
        for uses, use in noted:
            uses.add(use)

    def _copy(
        self,
        kind: str,
        name: str,
        num_bytes: int,
        stream: VirtualStream,
        seconds: float,
        moves: Sequence[Move],
    ) -> Op:
        """Enqueue a copy that takes `seconds` and a latency."""
        self.fault("copy")
        self.call("copy")
        device = self._devices[stream.device.index]
        seconds += self.profile.copy_latency_s
        engine = device.to_host if kind == "d2h" else device.to_device
        op = Op(kind, name, self.now, engine, seconds, num_bytes, moves=moves)
        return self.enqueue(stream, op)

    def _hold(self, op: Op) -> None:
        self._simulation.run_until_done(op)
        self.spend(max(0.0, op.end - self.now))
        self._see(op)

    def _see(self, op: Op) -> None:
        """Let the host know that an operation is done."""
        self._simulation.see(op)
        if self._overwriting:
            # Memory that was handed to another copy while this one ran is that one's now.
            self._overwriting = [pair for pair in self._overwriting if not pair[0].seen]
            for _, target in self._overwriting:
                poison(target)

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

    def set_clock(self, seconds: float) -> None:
        """Go on at another time of the host: each of its threads has a clock of its own."""
        with self.lock:
            self.log(f"vm.set_clock({seconds!r})")
            self.now = seconds

    def host_work(self, seconds: float) -> None:
        """Let the host compute for `seconds`."""
        with self.lock:
            self.log(f"vm.host_work({seconds!r})")
            self.spend(seconds)

    def sleep(self, seconds: float) -> None:
        """Let the host sleep for `seconds`, and as much longer as the profile says."""
        with self.lock:
            self.log(f"vm.sleep({seconds!r})")
            self.now += seconds + self.profile.sleep_late_s

    def synchronize(self) -> None:
        """Hold the host until every stream is empty."""
        with self.lock:
            self.log("vm.synchronize()")
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
        """Hold the host until an operation is done, asleep or spinning; then it has seen it."""
        self.fault("synchronize")
        self.call("query")
        self._raise_if_lost()
        if op is None:
            return
        if op.done:
            # It may lie ahead: another thread's wait has run the simulation that far.
            self.now = max(self.now, op.end)
        else:
            self._simulation.run_until_done(op)
            if op.end > self.now:
                if blocking:
                    self.now = op.end + self.profile.block_wake_s
                    self.cpu_time += self.profile.block_cpu_s
                else:
                    self.spend(op.end + self.profile.spin_wake_s - self.now)
        self._see(op)

    def wait_for_stream_of(self, tensor: VirtualTensor) -> None:
        """Hold the host until the stream that a kernel on `tensor` would run on is empty."""
        self.wait_for(self._stream_for(tensor).queue.last, blocking=False)

    def is_done(self, op: Op) -> bool:
        """Whether an operation is done at the host's time; costs a query. If so, it is seen."""
        self._raise_if_lost()
        self.call("query")
        self._simulation.run_until(self.now)
        if not op.done or op.end > self.now:
            return False
        self._see(op)
        return True

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
        self.log(f"vm.fail_next({kind!r}, {spell_error(error)})")
        self._faults[kind] = error

    def fail_device(self, error: Exception) -> None:
        """Lose the device: every later wait and query raises `error`."""
        self.log(f"vm.fail_device({spell_error(error)})")
        self._lost = error

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            self.log_raised()
            raise self._lost

    def fault(self, kind: str) -> None:
        """Raise the fault that was planted for a kind of call, once."""
        error = self._faults.pop(kind, None)
        if error is not None:
            self.log_raised()
            raise error

    @property
    def history(self) -> list[Record]:
        """What has run, in order; the last :data:`~asyncout.virtual.engine.HISTORY_LENGTH`."""
        return list(self._simulation.history)

    def program(self) -> str:
        """Give the host's calls so far as Python that can be pasted into a test.

        Run again, it gives the same history. Device tensors are called t0, t1, ..., their
        views v0, ..., host tensors h0, ...; ``del`` stands where the last reference to a
        device tensor went. Host code is not shown, nor what it wrote to host tensors but
        for what was copied from them. Where the data of a tensor is too long to print, a
        count of the same shape stands in, and the line says so.
        """
        arguments = []
        default = CostProfile.load()
        if self.profile != default:
            changes = ", ".join(
                f"{field.name}={getattr(self.profile, field.name)!r}"
                for field in dataclasses.fields(default)
                if getattr(self.profile, field.name) != getattr(default, field.name)
            )
            arguments.append(f"VirtualMachine().profile.replace({changes})")
        if len(self._devices) != 1:
            arguments.append(f"devices={len(self._devices)}")
        if not self._pinned_available:
            arguments.append("pinned_available=False")
        if self._seed is not None:
            arguments.append(f"seed={self._seed!r}")
        if self._choices is not None:
            arguments.append(f"choose=replay({self._choices})")
        replayed = "" if self._choices is None else ", replay"
        header = [
            "import torch",
            f"from asyncout.virtual import VirtualMachine{replayed}",
            f"vm = VirtualMachine({', '.join(arguments)})",
            *(f"{stream} = vm.default_stream({stream.device.index})" for stream in self._default),
        ]
        with self.lock:
            return self._program.text(header)

    def log(self, line: str, comment: str = "") -> None:
        """Add a call to the program, before it does anything."""
        self._program.add(line, comment)

    def log_work(self, line: str, comment: str = "") -> None:
        """Add a call to the program that depends on the calling thread's current stream."""
        stream = self.current_stream()
        if stream is not self._current_in_program:
            self._current_in_program = stream
            self._program.add(f"vm.assume_stream({stream})")
        self._program.add(line, f"{comment} on {stream}".lstrip())

    def log_results(self, targets: str) -> None:
        """Name the results of the call that was logged last."""
        self._program.bind_last(targets)

    def log_raised(self) -> None:
        """Say that the call that was logged last has raised."""
        self._program.last_raised()

    def new_name(self, prefix: str) -> str:
        """Give a name that nothing else in the program has."""
        return self._program.new_name(prefix)

    def _spell_host(self, tensor: torch.Tensor) -> str:
        """Write a host tensor as a place: a view of the block it is in, or memory like its own."""
        shape, strides, dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        origin = self._host.origin_of(tensor)
        if origin is None:
            return f"torch.empty_strided({shape}, {strides}, dtype={dtype})"
        offset = tensor.storage_offset()
        if (shape, dtype, offset) == (origin.shape, origin.dtype, 0) and tensor.is_contiguous():
            return origin.name
        storage = f"{origin.name}.untyped_storage()"
        return f"torch.empty(0, dtype={dtype}).set_({storage}, {offset}, {shape}, {strides})"


def _use(op: Op, move: Move, tensor: VirtualTensor, *, writes: bool) -> None:
    """Note that a move of an operation, which is enqueued, uses a tensor."""
    use = Use(op, tensor.contents, writes)
    move.uses.append(use)
    tensor.memory.uses.add(use)


def _note_choice(choose: Callable[[int], int], made: list[int], count: int) -> int:
    choice = choose(count)
    made.append(choice)
    return choice


def _nothing() -> None:
    """Move no data."""
