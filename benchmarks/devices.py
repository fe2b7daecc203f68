"""The same few verbs on a real GPU and on the virtual device, so that loops are written once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch

from asyncout.cuda_runtime import CUDA
from asyncout.runtime import Event, Runtime, Stream

if TYPE_CHECKING:
    from asyncout.virtual import VirtualMachine

#: Cycles of the kernels that the sleep is calibrated with: 10 ms at 2 GHz, long against
#: a launch and short for whoever waits.
CALIBRATION_CYCLES = 20_000_000

#: Calibration kernels: the first ones raise the clock, the last one is timed.
CALIBRATION_RUNS = 5

#: Warm-up rounds after which the host allocator must have all that a region needs.
ALLOCATION_WARMUPS = 3

#: Bytes up to which the virtual device moves data where only times matter: token ids, counts
#: and masks, without which no output can be read. The largest are the bits of 512 masks, 8.2 MB.
SMALL_COPY = 9 << 20

#: Rows and columns of the matrices whose products fill a device, and seconds that the virtual
#: device takes for one: 1.1e12 operations at an H200's 790 TFLOP/s.
PRODUCT_SIZE = 8192
PRODUCT_S = 1.4e-3


#: Bytes that are offloaded at most, each way.
OFFLOAD_BYTES = 256 << 20


class NoDeviceError(RuntimeError):
    """There is no CUDA device to measure on; the message says why."""


class AllocationError(RuntimeError):
    """A measured region allocated pinned memory again and again: it would time that too."""


class BenchDevice(Protocol):
    """A device with a main stream, which is current, and a copy stream.

    Attributes
    ----------
    modelled : bool
        Whether its times are computed and not measured.
    runtime : Runtime
    main, copy : Stream
    """

    modelled: bool
    runtime: Runtime
    main: Stream
    copy: Stream

    def tensor(self, host: torch.Tensor) -> torch.Tensor:
        """Give a copy of a host tensor on the device."""

    def busy(self, seconds: float, stream: Any = None) -> None:
        """Enqueue a kernel that only takes time, on the main stream by default."""

    def products(self, count: int) -> None:
        """Enqueue matrix products that fill the device, on the main stream."""

    def offload(self, to_host: int, to_device: int, chunk: int) -> None:
        """Enqueue large copies of pinned memory, one stream a direction, in chunks.

        Parameters
        ----------
        to_host, to_device : int
            Bytes each way, 0 for none; at most :data:`OFFLOAD_BYTES`.
        chunk : int
            Bytes of each copy.
        """

    def clock(self) -> float:
        """Seconds on the host's clock."""

    def cpu_clock(self) -> float:
        """Seconds of CPU time of the calling thread."""

    def idle(self, seconds: float) -> None:
        """Let the host sleep, as an engine's thread does between steps."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def event(self) -> Event:
        """Make an event that can be timed."""

    def host_allocations(self) -> int:
        """Count the pinned allocations that a driver call was needed for, so far."""

    def pinned_bytes(self) -> int:
        """Count the bytes of pinned memory in use or kept for use."""

    def times_only(self) -> AbstractContextManager[None]:
        """Say that inside this block only times matter, as bytes have been verified."""


class _Offload:
    """Large copies both ways, on streams and in memory of their own."""

    def __init__(
        self,
        streams: list[Any],
        on_device: Callable[[], torch.Tensor],
        on_host: Callable[[], torch.Tensor],
        switch: Callable[[Any], Any],
    ) -> None:
        self._ways = (
            (streams[0], on_host(), on_device()),
            (streams[1], on_device(), on_host()),
        )
        self._switch = switch

    def enqueue(self, to_host: int, to_device: int, chunk: int) -> None:
        for (stream, target, source), size in zip(self._ways, (to_host, to_device), strict=True):
            self._switch(stream)
            for start in range(0, size, chunk):
                stop = min(start + chunk, size)
                target[start:stop].copy_(source[start:stop], non_blocking=True)


class CudaDevice:
    """The current CUDA device.

    Attributes
    ----------
    cycles_per_second : float
        How long :meth:`busy` takes; processes that are compared take the same.
    """

    modelled = False

    def __init__(self) -> None:
        self.runtime: Runtime = CUDA
        self.copy: Stream = torch.cuda.Stream()
        self.main: Stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.main)
        self.cycles_per_second = self.calibrate()
        self._factors: tuple[torch.Tensor, ...] = ()
        self._offload: _Offload | None = None

    def calibrate(self) -> float:
        """Measure how many cycles a sleeping kernel passes in a second."""
        start, end = self.event(), self.event()
        for _ in range(CALIBRATION_RUNS):
            start.record(self.main)
            torch.cuda._sleep(CALIBRATION_CYCLES)
            end.record(self.main)
            end.synchronize()
        return CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)

    def tensor(self, host: torch.Tensor) -> torch.Tensor:
        """Give a copy of a host tensor on the device."""
        return host.cuda()

    def busy(self, seconds: float, stream: Any = None) -> None:
        """Enqueue a kernel that sleeps on one multiprocessor."""
        cycles = int(seconds * self.cycles_per_second)
        if stream is None or stream == self.main:
            torch.cuda._sleep(cycles)
        else:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(cycles)

    def products(self, count: int) -> None:
        """Enqueue products of square bfloat16 matrices, 1.4 ms each on an H200."""
        if not self._factors:
            shape = (PRODUCT_SIZE, PRODUCT_SIZE)
            factors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
            self._factors = (*factors, torch.empty_like(factors[0]))
        left, right, out = self._factors
        for _ in range(count):
            torch.mm(left, right, out=out)

    def offload(self, to_host: int, to_device: int, chunk: int) -> None:
        """Enqueue large copies of pinned memory, one stream a direction, in chunks."""
        if self._offload is None:
            self._offload = _Offload(
                [torch.cuda.Stream() for _ in range(2)],
                lambda: torch.empty(OFFLOAD_BYTES, dtype=torch.uint8, device="cuda"),
                lambda: torch.empty(OFFLOAD_BYTES, dtype=torch.uint8, pin_memory=True),
                torch.cuda.set_stream,
            )
        self._offload.enqueue(to_host, to_device, chunk)
        torch.cuda.set_stream(self.main)  # type: ignore[arg-type]

    def clock(self) -> float:
        """Seconds on the host's clock."""
        return time.perf_counter()

    def cpu_clock(self) -> float:
        """Seconds of CPU time of the calling thread."""
        return time.thread_time()

    def idle(self, seconds: float) -> None:
        """Let the host sleep."""
        time.sleep(seconds)

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize()

    def event(self) -> Event:
        """Make an event that can be timed."""
        return self.runtime.new_event(timing=True)

    def host_allocations(self) -> int:
        """Count the pinned allocations that a driver call was needed for, so far."""
        return int(torch.cuda.host_memory_stats().get("num_host_alloc", 0))

    def pinned_bytes(self) -> int:
        """Count the bytes that torch's allocator of pinned memory has from the driver."""
        return int(torch.cuda.host_memory_stats()["allocated_bytes.current"])

    def times_only(self) -> AbstractContextManager[None]:
        """Do nothing: a real device copies what it times."""
        return nullcontext()


class VirtualDevice:
    """A virtual machine with the shipped profile, or another one.

    Parameters
    ----------
    machine : VirtualMachine, optional
    """

    modelled = True

    def __init__(self, machine: VirtualMachine | None = None) -> None:
        from asyncout.virtual import VirtualMachine  # here: the first commits have none

        self.machine = machine or VirtualMachine()
        self.runtime: Runtime = self.machine
        self.copy: Stream = self.machine.stream()
        self.main: Stream = self.machine.stream()
        self.machine.set_stream(self.main)
        self._offload: _Offload | None = None

    def tensor(self, host: torch.Tensor) -> torch.Tensor:
        """Give a copy of a host tensor on the device."""
        return self.machine.tensor(host)

    def busy(self, seconds: float, stream: Any = None) -> None:
        """Enqueue a kernel that only takes time."""
        self.machine.busy(seconds, stream or self.main)

    def products(self, count: int) -> None:
        """Enqueue kernels that take as long."""
        for _ in range(count):
            self.machine.busy(PRODUCT_S, self.main)

    def offload(self, to_host: int, to_device: int, chunk: int) -> None:
        """Enqueue large copies of pinned memory, one stream a direction, in chunks."""
        if self._offload is None:
            self._offload = _Offload(
                [self.machine.stream() for _ in range(2)],
                lambda: self.machine.empty((OFFLOAD_BYTES,), torch.uint8),
                lambda: self.machine.empty_host((OFFLOAD_BYTES,), torch.uint8),
                self.machine.set_stream,
            )
        before, self.machine.moves_up_to = self.machine.moves_up_to, 0  # nobody reads them
        try:
            self._offload.enqueue(to_host, to_device, chunk)
        finally:
            self.machine.moves_up_to = before
        self.machine.set_stream(self.main)

    def clock(self) -> float:
        """Seconds of virtual time."""
        return self.machine.now

    def cpu_clock(self) -> float:
        """Seconds of modelled CPU time."""
        return self.machine.cpu_time

    def idle(self, seconds: float) -> None:
        """Let the host sleep."""
        self.machine.sleep(seconds)

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        self.machine.synchronize()

    def event(self) -> Event:
        """Make an event that can be timed."""
        return self.runtime.new_event(timing=True)

    def host_allocations(self) -> int:
        """Give 0: virtual memory needs no driver."""
        return 0

    def pinned_bytes(self) -> int:
        """Count the bytes of the host tensors that are pinned now."""
        return self.machine.pinned_bytes()

    @contextmanager
    def times_only(self) -> Iterator[None]:
        """Move no large copies inside this block: simulating them takes real time."""
        before, self.machine.moves_up_to = self.machine.moves_up_to, SMALL_COPY
        try:
            yield
        finally:
            self.machine.moves_up_to = before


def cuda_device() -> CudaDevice:
    """Give the GPU.

    Raises
    ------
    NoDeviceError
        There is none that torch can use.
    """
    if not torch.cuda.is_available():
        built = "sees no CUDA device" if torch.version.cuda else "was built without CUDA"
        raise NoDeviceError(f"torch {torch.__version__} {built}")
    return CudaDevice()


def virtual_device() -> VirtualDevice:
    """Give a new virtual device."""
    return VirtualDevice()


def without_allocations(device: BenchDevice, region: Any) -> Any:
    """Run a measured region until it allocates no pinned memory, and give its result.

    A driver call for pinned memory takes a hundred times as long as a copy's; the
    first runs may need one, later ones find the memory in torch's cache.

    Raises
    ------
    AllocationError
        The region allocates each time.
    """
    for _ in range(ALLOCATION_WARMUPS + 1):
        before = device.host_allocations()
        result = region()
        if device.host_allocations() == before:
            return result
    raise AllocationError(
        f"the measured region allocated pinned memory in each of {ALLOCATION_WARMUPS + 1} runs; "
        "its times would include the driver's"
    )
