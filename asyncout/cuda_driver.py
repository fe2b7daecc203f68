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
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from asyncout.errors import PolicyError, TimingError
from asyncout.runtime import BlockCopier, HostBlock

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
        self.event_synchronize = _function(waits, "cuEventSynchronize", pointer)
        self.event_query = _function(returns, "cuEventQuery", pointer)
        self.event_record = _function(waits, "cuEventRecord", pointer, pointer)
        self.event_create = _function(returns, "cuEventCreate", pointer, ctypes.c_uint)
        self.event_destroy = _function(returns, "cuEventDestroy_v2", pointer)
        self.stream_wait_event = _function(
            waits, "cuStreamWaitEvent", pointer, pointer, ctypes.c_uint
        )
        self.copy_to_host = _function(
            waits, "cuMemcpyDtoHAsync_v2", pointer, pointer, size, pointer
        )
        self.context_current = _function(returns, "cuCtxGetCurrent", pointer)
        self.context_set_current = _function(returns, "cuCtxSetCurrent", pointer)
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
    blocking : bool
        Whether ``synchronize`` sleeps; else it spins in the driver.

    Attributes
    ----------
    handle : int
        The driver's.
    recorded_at : float
    spins : bool
        Notes of whoever records it.
    """

    __slots__ = ("_context", "_driver", "handle", "recorded_at", "spins")

    def __init__(self, blocking: bool) -> None:
        self._driver = driver()
        handle, context = ctypes.c_void_p(), ctypes.c_void_p()
        flags = EVENT_DISABLE_TIMING | (EVENT_BLOCKING_SYNC if blocking else 0)
        self.handle = 0
        self._driver.check(self._driver.context_current(ctypes.byref(context)), "cuCtxGetCurrent")
        self._driver.check(self._driver.event_create(ctypes.byref(handle), flags), "cuEventCreate")
        self.handle = handle.value or 0
        self._context = context.value

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work now in `stream`."""
        result = self._driver.event_record(self.handle, stream.cuda_stream)
        if result:
            self._driver.check(result, "cuEventRecord")

    def wait(self, stream: Any = None) -> None:
        """Make later work of `stream` wait for this event."""
        result = self._driver.stream_wait_event(stream.cuda_stream, self.handle, 0)
        if result:
            self._driver.check(result, "cuStreamWaitEvent")

    def elapsed_time(self, end_event: Any) -> float:
        """Refuse: this event takes no time.

        Raises
        ------
        TimingError
        """
        raise TimingError(
            "a pooled event is made without timing; use new_event(timing=True) for both ends"
        )

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

    def __del__(self) -> None:
        if self.handle:
            self._driver.event_destroy(self.handle)


def stream_follower(marker: DriverEvent, main: Any, copy: Any) -> Callable[[], None]:
    """Give a function that records `marker` in `main` and makes `copy` wait for it."""
    calls = driver()
    record, hold = calls.event_record, calls.stream_wait_event
    handle, main_handle, copy_handle = marker.handle, main.cuda_stream, copy.cuda_stream

    def follow() -> None:
        result = record(handle, main_handle) or hold(copy_handle, handle, 0)
        if result:
            calls.check(result, "cuEventRecord or cuStreamWaitEvent")

    follow.marker = marker  # type: ignore[attr-defined]  # the handle is good while it lives
    return follow


def block_copier(stream: Any) -> BlockCopier:
    """Give a function that enqueues copies from device tensors into a block on `stream`."""
    calls, handle = driver(), stream.cuda_stream
    batch, one = calls.copy_batch, calls.copy_to_host
    attributes, starts = calls.attributes, calls.attribute_starts
    fewest = FEW_COPIES if batch and handle not in DEFAULT_STREAM_HANDLES else sys.maxsize

    def copy(
        sources: Sequence[torch.Tensor],
        sizes: Sequence[int],
        offsets: Sequence[int],
        block: HostBlock,
    ) -> None:
        base, count = block.address, len(sizes)
        if count > fewest:
            array = array_type(count)
            result = batch(
                array(*[base + offset for offset in offsets]),
                array(*[source.data_ptr() for source in sources]),
                array(*sizes),
                count,
                attributes,
                starts,
                1,
                handle,
            )
            if result:
                calls.check(result, "cuMemcpyBatchAsync")
            return
        for source, size, offset in zip(sources, sizes, offsets, strict=True):
            result = one(base + offset, source.data_ptr(), size, handle)
            if result:
                calls.check(result, "cuMemcpyDtoHAsync")

    return copy
