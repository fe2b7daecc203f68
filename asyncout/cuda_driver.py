"""The driver calls that torch does not make as directly: batched copies and pooled events.

Called through ctypes in the driver library that torch has loaded already, with plain
addresses and handles: one way for every driver that has the call, with or without
cuda-bindings. In a host whose code is cold, six copies took 31 µs this way on an H200
box, 39 through cuda-bindings, 53 as six driver calls and 177 as six ``.to``; for 48 the
two batched ways were alike (results/h200-pcie5-vm16/calls.txt, ``benchmarks.calls``).

ctypes lets go of the interpreter lock in calls of a ``CDLL`` and keeps it in those of a
``PyDLL``: what returns at once keeps it, as giving it away costs more than the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from asyncout import hot
from asyncout.errors import PolicyError, TimingError
from asyncout.lifetime import when_gone
from asyncout.runtime import HostBlock, Submit

#: The driver, which torch's CUDA builds load too.
LIBRARY = "libcuda.so.1"

#: cuda.h: CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING.
EVENT_BLOCKING_SYNC = 1
EVENT_DISABLE_TIMING = 2

#: cuda.h: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, a source is read in the stream's order.
SOURCE_IN_STREAM_ORDER = 1

#: cuda.h: results that are no error.
SUCCESS = 0
NOT_READY = 600

#: cuda.h: the calling thread has no context, as one that never touched CUDA has none.
INVALID_CONTEXT = 201

#: Handles of the legacy and the per-thread default stream; the batched call refuses the first.
DEFAULT_STREAM_HANDLES = (0, 1, 2)

#: Copies up to which one call each costs no more than one call for all: two took 36 µs of cold
#: host time one by one and 47 in a batch, six 53 and 39 (results/h200-pcie5-vm16/calls.txt, the
#: batches through cuda-bindings).
FEW_COPIES = 2

#: More copies than any step has: without the batched call each is one of its own.
NEVER = 1 << 30

#: dlpack.h: kDLCUDA, the device type of what is copied.
DLPACK_CUDA = 2


class CudaDriverError(RuntimeError):
    """A driver call failed; the message has the call and the driver's word for it."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _CopyAttributes(ctypes.Structure):
    """CUmemcpyAttributes of cuda.h."""

    _fields_ = (
        ("source_order", ctypes.c_int),
        ("source_hint", _Location),
        ("destination_hint", _Location),
        ("flags", ctypes.c_uint),
    )


class Driver:
    """The driver library's functions, with their argument types."""

    def __init__(self) -> None:
        waits = ctypes.CDLL(LIBRARY)
        returns = ctypes.PyDLL(LIBRARY)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.event_synchronize = _handle_function(waits, "cuEventSynchronize", waits=True)
        self.event_query = _handle_function(returns, "cuEventQuery", waits=False)
        self.event_record = _function(waits, "cuEventRecord", pointer, pointer)
        self.event_create = _function(returns, "cuEventCreate", pointer, ctypes.c_uint)
        self.event_elapsed = _function(returns, "cuEventElapsedTime", pointer, pointer, pointer)
        self.event_destroy = _function(returns, "cuEventDestroy_v2", pointer)
        self.stream_wait_event = _function(
            waits, "cuStreamWaitEvent", pointer, pointer, ctypes.c_uint
        )
        self.copy_to_host = _function(
            waits, "cuMemcpyDtoHAsync_v2", pointer, pointer, size, pointer
        )
        self.stream_is_capturing = _function(returns, "cuStreamIsCapturing", pointer, pointer)
        self.context_current = _function(returns, "cuCtxGetCurrent", pointer)
        self.context_set_current = _function(returns, "cuCtxSetCurrent", pointer)
        self._device_get = _function(returns, "cuDeviceGet", pointer, ctypes.c_int)
        self._context_retain = _function(returns, "cuDevicePrimaryCtxRetain", pointer, ctypes.c_int)
        self._contexts: dict[int, int] = {}
        self._error_name = _function(returns, "cuGetErrorName", ctypes.c_int, pointer)
        # Since CUDA 13; the first form of the call, of 12.8, has one argument more.
        self.copy_batch: Any = None
        if hasattr(waits, "cuMemcpyBatchAsync_v2"):
            self.copy_batch = _function(
                waits,
                "cuMemcpyBatchAsync_v2",
                *[pointer] * 3,
                size,
                pointer,
                pointer,
                size,
                pointer,
            )
        self.attributes = (_CopyAttributes * 1)(_CopyAttributes(SOURCE_IN_STREAM_ORDER))
        self.attribute_starts = (size * 1)(0)

    def context_of(self, device: int) -> int:
        """Give the context of a device that torch uses there: the primary one."""
        if device not in self._contexts:
            number, context = ctypes.c_int(), ctypes.c_void_p()
            self.check(self._device_get(ctypes.byref(number), device), "cuDeviceGet")
            retained = self._context_retain(ctypes.byref(context), number)
            self.check(retained, "cuDevicePrimaryCtxRetain")
            self._contexts[device] = context.value or 0
        return self._contexts[device]

    def enter(self, device: int) -> None:
        """Make a device's context current in the calling thread.

        A new thread has none, and setting torch's device or stream there makes none current
        while the device is the one that new threads begin with.
        """
        self.check(self.context_set_current(self.context_of(device)), "cuCtxSetCurrent")

    def check(self, result: int, call: str) -> None:
        """Raise CudaDriverError unless a call's result is success."""
        if result != SUCCESS:
            name = ctypes.c_char_p()
            self._error_name(result, ctypes.byref(name))
            word = (name.value or b"an unknown error").decode()
            raise CudaDriverError(f"{call} failed with {word} ({result})")


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function


def _handle_function(library: ctypes.CDLL, name: str, waits: bool) -> Any:
    """Give a function of one handle; `waits` says that it is not for the interpreter's lock."""
    function = _function(library, name, ctypes.c_void_p)
    if hot.COMPILED is None:
        return function
    return hot.COMPILED.Call(function=_address(function), waits=waits)


@cache
def driver() -> Driver:
    """Give the driver; loads the library at the first call.

    Raises
    ------
    PolicyError
        There is no NVIDIA driver library here, as on a ROCm build of torch.
    """
    try:
        return Driver()
    except OSError as error:
        raise PolicyError(
            f"copies='batched' and wait='hybrid' call the NVIDIA driver, and {LIBRARY} is not to "
            f"be had ({error}); CopyPolicy(copies='per_tensor', wait='block') needs torch only"
        ) from error


@cache
def array_type(length: int) -> Any:
    """Give the C type of an array of addresses or sizes."""
    return ctypes.c_uint64 * length


class DriverEvent:
    """An event that is used again and again. Same method names as ``torch.cuda.Event``.

    Parameters
    ----------
    device : int
        Made in this device's context, whatever context is current.
    blocking : bool
        Whether ``synchronize`` sleeps; else it spins in the driver.
    timing : bool
        Whether ``elapsed_time`` can be asked.

    Attributes
    ----------
    handle : int
        The driver's.
    recorded_at : float
    spins : bool
        Notes of whoever records it.
    """

    __slots__ = ("_context", "_driver", "_has_timing", "_life", "handle", "recorded_at", "spins")

    def __init__(self, device: int, blocking: bool, timing: bool = False) -> None:
        self._driver = driver()
        self._has_timing = timing
        self._context = self._driver.context_of(device)
        flags = EVENT_BLOCKING_SYNC if blocking else 0
        if not timing:
            flags |= EVENT_DISABLE_TIMING
        handle, before = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver.check(self._driver.context_current(ctypes.byref(before)), "cuCtxGetCurrent")
        if before.value != self._context:
            self._driver.enter(device)
        try:
            made = self._driver.event_create(ctypes.byref(handle), flags)
        finally:
            if before.value not in (None, self._context):
                self._driver.context_set_current(before)
        self._driver.check(made, "cuEventCreate")
        self.handle = handle.value or 0
        self._life = when_gone(self._driver.event_destroy, self.handle)

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work now in `stream` (default: the current one)."""
        raw = _current_raw_stream(_current_device()) if stream is None else stream.cuda_stream
        result = self._driver.event_record(self.handle, raw)
        if result:
            self._driver.check(result, "cuEventRecord")

    def wait(self, stream: Any = None) -> None:
        """Make later work of `stream` wait for this event."""
        result = self._driver.stream_wait_event(stream.cuda_stream, self.handle, 0)
        if result:
            self._driver.check(result, "cuStreamWaitEvent")

    def elapsed_time(self, end_event: DriverEvent) -> float:
        """Milliseconds from this event to a later one, both passed and timed.

        Raises
        ------
        TimingError
            One of the two was made without timing.
        """
        if not (self._has_timing and end_event._has_timing):
            raise TimingError(
                "a pooled event was made without timing; use new_event(timing=True) or "
                "new_pooled_event(timing=True) for both ends"
            )
        milliseconds = ctypes.c_float()
        result = self._driver.event_elapsed(
            ctypes.byref(milliseconds), self.handle, end_event.handle
        )
        if result:
            self._driver.check(result, "cuEventElapsedTime")
        return milliseconds.value

    def query(self) -> bool:
        """Whether the event has passed; never waits."""
        result = self._driver.event_query(self.handle)
        if result == INVALID_CONTEXT:
            self._enter_context()
            result = self._driver.event_query(self.handle)
        if result == NOT_READY:
            return False
        if result:
            self._driver.check(result, "cuEventQuery")
        return True

    def synchronize(self) -> None:
        """Wait for the event, without the interpreter lock."""
        result = self._driver.event_synchronize(self.handle)
        if result == INVALID_CONTEXT:
            self._enter_context()
            result = self._driver.event_synchronize(self.handle)
        if result:
            self._driver.check(result, "cuEventSynchronize")

    def _enter_context(self) -> None:
        # The event's own: any other call would make a context on device 0 (vllm issue 37449).
        self._driver.check(self._driver.context_set_current(self._context), "cuCtxSetCurrent")


def recorder(device: int) -> Callable[[DriverEvent], None]:
    """Give a function that records an event in the current stream of a device."""
    if hot.COMPILED is None:
        return DriverEvent.record
    try:
        mark: Callable[[DriverEvent], None] = hot.COMPILED.Mark(
            function=_address(driver().event_record),
            device_type=DLPACK_CUDA,
            device_index=device,
            fail=_fail_to_record,
        )
    except NotImplementedError:  # a torch without DLPack's C functions
        return DriverEvent.record
    return mark


def _fail_to_record(result: int) -> None:
    driver().check(result, "cuEventRecord")


def submitter(main: Any, copy: Any) -> Submit:
    """Give a function that makes a step's driver calls; see :class:`asyncout.runtime.Submit`.

    `copy` waits for what `main` holds at each call, and not at all when `main` is None.
    """
    marker = None if main is None else DriverEvent(main.device_index, blocking=False)
    return DriverSubmit(marker, main, copy)


class DriverSubmit:
    """One call of the driver after the other; its lane makes the same calls in one of Python's.

    Parameters
    ----------
    marker : DriverEvent or None
        Recorded in `main` for `copy` to wait for.
    main, copy : torch.cuda.Stream
    """

    def __init__(self, marker: DriverEvent | None, main: Any, copy: Any) -> None:
        self._marker, self._main, self._copy = marker, main, copy
        self._fewest = _batches_from(copy)
        self.lane = None if hot.COMPILED is None else self._make_lane()

    def _make_lane(self) -> Any:
        calls = driver()
        return hot.COMPILED.Lane(
            record=_address(calls.event_record),
            wait=_address(calls.stream_wait_event),
            copy_one=_address(calls.copy_to_host),
            copy_batch=_address(calls.copy_batch) if calls.copy_batch else 0,
            is_capturing=_address(calls.stream_is_capturing),
            attributes=ctypes.addressof(calls.attributes),
            few=self._fewest,
            device_type=DLPACK_CUDA,
            device_index=self._copy.device_index,
            main=0 if self._main is None else self._main.cuda_stream,
            copy=self._copy.cuda_stream,
            marker=0 if self._marker is None else self._marker.handle,
            # Keeps the marker, of which the lane has the handle only, and not this object, which
            # keeps the lane: the collector looks into no lane, and would never find the cycle.
            fail=partial(_fail_in_lane, self._marker),
        )

    def __call__(
        self,
        sources: list[torch.Tensor],
        sizes: list[int],
        offsets: list[int],
        block: HostBlock,
        event: Any,
    ) -> None:
        if self._marker is not None:
            self._marker.record(self._main)
            self._marker.wait(self._copy)
        self._enqueue(sources, sizes, offsets, block.address)
        if event is not None:
            event.record(self._copy)

    def _enqueue(
        self, sources: list[torch.Tensor], sizes: list[int], offsets: list[int], base: int
    ) -> None:
        calls, handle, count = driver(), self._copy.cuda_stream, len(sizes)
        if count > self._fewest:
            array = array_type(count)
            result = calls.copy_batch(
                array(*[base + offset for offset in offsets]),
                array(*[source.data_ptr() for source in sources]),
                array(*sizes),
                count,
                calls.attributes,
                calls.attribute_starts,
                1,
                handle,
            )
            calls.check(result, "cuMemcpyBatchAsync")
            return
        for source, size, offset in zip(sources, sizes, offsets, strict=True):
            result = calls.copy_to_host(base + offset, source.data_ptr(), size, handle)
            calls.check(result, "cuMemcpyDtoHAsync")


def _fail_in_lane(marker: DriverEvent | None, result: int, call: int) -> None:
    driver().check(result, LANE_CALLS[call])


#: The calls of a lane, by the numbers that it gives them.
LANE_CALLS = ("cuEventRecord", "cuStreamWaitEvent", "cuMemcpyBatchAsync", "cuEventRecord")


def _batches_from(stream: Any) -> int:
    """Give the number of copies up to which each is a call of its own."""
    has_batch = driver().copy_batch is not None
    return FEW_COPIES if has_batch and stream.cuda_stream not in DEFAULT_STREAM_HANDLES else NEVER


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# The current device and its current stream's handle, without an object around it; a build
# without CUDA has neither, and needs none.
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_current_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # type: ignore[assignment]
