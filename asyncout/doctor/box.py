"""What probes run on: a device with two streams, real or virtual, behind the runtime seam."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

from asyncout.errors import DeviceUnavailableError, PolicyError
from asyncout.runtime import Runtime, Stream
from asyncout.virtual import VirtualMachine

#: Cycles of the kernels that the sleep is calibrated with: 10 ms at 2 GHz, long against a launch.
CALIBRATION_CYCLES = 20_000_000

#: Calibration kernels: the first ones raise the clock, the last one is timed.
CALIBRATION_RUNS = 5

#: Copies, in bytes, up to which the virtual device moves data: those whose bytes are checked.
MOVED_BYTES = 1 << 20


class Box(Protocol):
    """A device with a main stream, which is current, and a copy stream.

    Attributes
    ----------
    runtime : Runtime
    main, copy : Stream
    modelled : bool
        Whether its times are computed and not measured.
    has_batched_call : bool
        Whether many copies can be one call of the driver's.
    """

    runtime: Runtime
    main: Stream
    copy: Stream
    modelled: bool
    has_batched_call: bool

    def memory(self, num_bytes: int) -> torch.Tensor:
        """Give device memory, uint8 [num_bytes]; bytes count up and start again after 250."""

    def busy(self, seconds: float) -> None:
        """Enqueue a kernel on the main stream that only takes time."""

    def cpu_clock(self) -> float:
        """Seconds of CPU time of the calling thread."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""


def counting_bytes(num_bytes: int) -> torch.Tensor:
    """Give host bytes that tell one place from the next: uint8 [num_bytes]."""
    # 251 is prime: no two blocks of a power of two of bytes hold the same pattern.
    pattern = torch.arange(251, dtype=torch.uint8)
    return pattern.repeat(num_bytes // 251 + 1)[:num_bytes].contiguous()


class CudaBox:
    """The current CUDA device.

    Parameters
    ----------
    main, copy : torch.cuda.Stream, optional
        Streams to look at; default: new ones.

    Raises
    ------
    DeviceUnavailableError
        Torch sees no CUDA device; the message says why.
    """

    modelled = False

    def __init__(self, main: Any = None, copy: Any = None) -> None:
        if not torch.cuda.is_available():
            why = "sees no CUDA device" if torch.version.cuda else "was built without CUDA"
            raise DeviceUnavailableError(
                f"torch {torch.__version__} {why}; run this where torch.cuda.is_available()"
            )
        from asyncout.cuda_runtime import CUDA  # imported late: only here is it needed

        self.runtime: Runtime = CUDA
        self.copy: Stream = CUDA.as_stream(copy or torch.cuda.Stream())
        self.main: Stream = CUDA.as_stream(main or torch.cuda.Stream())
        CUDA.set_stream(self.main)
        self.has_batched_call = _driver_batches()
        self._cycles_per_second = self._calibrate()

    def _calibrate(self) -> float:
        start, end = (self.runtime.new_event(timing=True) for _ in range(2))
        for _ in range(CALIBRATION_RUNS):
            start.record(self.main)
            torch.cuda._sleep(CALIBRATION_CYCLES)
            end.record(self.main)
            end.synchronize()
        return CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)

    def memory(self, num_bytes: int) -> torch.Tensor:
        """Give device memory of counting bytes."""
        return counting_bytes(num_bytes).cuda()

    def busy(self, seconds: float) -> None:
        """Enqueue a kernel that sleeps on one multiprocessor."""
        torch.cuda._sleep(int(seconds * self._cycles_per_second))

    def cpu_clock(self) -> float:
        """Seconds of CPU time of the calling thread."""
        return time.thread_time()

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize()


class VirtualBox:
    """A virtual machine, healthy or with what ails it.

    Parameters
    ----------
    machine : VirtualMachine, optional
    same_stream : bool
        Whether the copy stream is the main stream under another name.
    batched : bool
        Whether the driver has a batched call.
    """

    modelled = True

    def __init__(
        self,
        machine: VirtualMachine | None = None,
        *,
        same_stream: bool = False,
        batched: bool = True,
    ) -> None:
        self.machine = machine or VirtualMachine()
        self.machine.moves_up_to = MOVED_BYTES
        self.runtime: Runtime = self.machine
        self.main: Stream = self.machine.stream()
        self.copy: Stream = self.main if same_stream else self.machine.stream()
        self.machine.set_stream(self.main)
        self.has_batched_call = batched

    def memory(self, num_bytes: int) -> torch.Tensor:
        """Give device memory of counting bytes."""
        return self.machine.tensor(counting_bytes(num_bytes))

    def busy(self, seconds: float) -> None:
        """Enqueue a kernel that only takes time."""
        self.machine.busy(seconds, self.machine.as_stream(self.main))

    def cpu_clock(self) -> float:
        """Seconds of modelled CPU time."""
        return self.machine.cpu_time

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        self.machine.synchronize()


def _driver_batches() -> bool:
    from asyncout.cuda_driver import driver

    try:
        return driver().copy_batch is not None
    except PolicyError:  # no NVIDIA driver library, as on a ROCm build of torch
        return False
