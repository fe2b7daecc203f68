"""A driver made of C functions that note their calls, and a runtime of streams on top of it.

What is compiled makes its calls through addresses, so this is as near to a GPU as a machine
without one comes: everything but the driver is the library's own.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asyncout import cuda_driver, hot
from asyncout.cuda_runtime import CudaRuntime

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


class FakeDriver:
    """A driver's functions that note their calls, and fail where they are told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: str | None = None
        self.moves = False  # whether copies arrive, at once
        self.is_capturing = 0
        record = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)
        wait = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_uint)
        one = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_uint64, SIZE, POINTER)
        array = ctypes.POINTER(ctypes.c_uint64)
        batch = ctypes.CFUNCTYPE(
            ctypes.c_int, array, array, array, SIZE, POINTER, array, SIZE, POINTER
        )
        capturing = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.POINTER(ctypes.c_int))
        self.record = record(lambda event, stream: self._note("record", event, stream))
        self.wait = wait(lambda stream, event, flags: self._note("wait", stream, event))
        self.one = one(self._copy_one)
        self.capturing = capturing(self._tell_capturing)
        self.batch = batch(self._copy_batch)

    def _copy_one(self, to: int, source: int, size: int, stream: int) -> int:
        result = self._note("one", to, source, size, stream)
        if self.moves and result == 0:
            ctypes.memmove(to, source, size)
        return result

    def _copy_batch(
        self, to: Any, source: Any, size: Any, count: int, _: Any, starts: Any, *rest: Any
    ) -> int:
        number, stream = rest
        copies = to[:count], source[:count], size[:count]
        result = self._note("batch", *copies, stream, number, starts[0])
        if self.moves and result == 0:
            for one in zip(*copies, strict=True):
                ctypes.memmove(*one)
        return result

    def _tell_capturing(self, stream: int, status: Any) -> int:
        status[0] = self.is_capturing
        return self._note("capturing", stream)

    def _note(self, name: str, *arguments: Any) -> int:
        self.calls.append((name, *arguments))
        return 7 if name == self.fail else 0

    def _fail(self, result: int, call: int) -> None:
        raise OSError(f"call {call} gave {result}")

    def lane(self, **handles: int) -> Any:
        """Give a lane that copies tensors of the CPU, which there are everywhere."""
        return hot.COMPILED.Lane(
            **{
                "record": ctypes.cast(self.record, POINTER).value,
                "wait": ctypes.cast(self.wait, POINTER).value,
                "copy_one": ctypes.cast(self.one, POINTER).value,
                "copy_batch": ctypes.cast(self.batch, POINTER).value,
                "is_capturing": ctypes.cast(self.capturing, POINTER).value,
                "attributes": 1,
                "few": 2,
                "device_type": 1,
                "device_index": 0,
                "main": 11,
                "copy": 22,
                "marker": 33,
                "fail": self._fail,
                **handles,
            }
        )

    def library(self) -> SimpleNamespace:
        """Give what stands in the place of :class:`asyncout.cuda_driver.Driver`."""
        handles = itertools.count(1000)

        def create(handle: Any, flags: int) -> int:
            handle._obj.value = next(handles)
            return self._note("create")

        def check(result: int, call: str) -> None:
            if result:
                raise cuda_driver.CudaDriverError(f"{call} failed with {result}")

        return SimpleNamespace(
            event_record=self.record,
            event_create=create,
            event_destroy=lambda handle: 0,
            event_query=lambda handle: self._note("query", handle),
            event_synchronize=lambda handle: self._note("synchronize", handle),
            stream_wait_event=self.wait,
            stream_is_capturing=self.capturing,
            copy_to_host=self.one,
            copy_batch=self.batch,
            attributes=ctypes.c_int(),
            attribute_starts=(ctypes.c_uint64 * 1)(0),
            context_of=lambda device: 5,
            context_current=lambda context: setattr(context._obj, "value", 5) or 0,
            check=check,
        )


class FakeStream:
    """A stream of the fake runtime."""

    def __init__(self, runtime: FakeRuntime, device: torch.device, handle: int) -> None:
        self.asyncout_runtime = runtime
        self.device, self.device_index = device, device.index or 0
        self.cuda_stream = handle

    def wait_stream(self, stream: FakeStream) -> None:
        """Nothing runs, so nothing waits."""

    def synchronize(self) -> None:
        """Nothing runs."""


class FakeRuntime(CudaRuntime):
    """The CUDA runtime, with a fake driver, streams that are handles and no pinned memory.

    Parameters
    ----------
    driver : FakeDriver
    device : torch.device
        Where what is copied is.
    dlpack_type : int
        The device's type in DLPack's numbers.
    """

    def __init__(
        self,
        driver: FakeDriver,
        device: torch.device,
        dlpack_type: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        super().__init__()
        library = driver.library()
        monkeypatch.setattr(cuda_driver, "driver", lambda: library)
        monkeypatch.setattr(cuda_driver, "DLPACK_CUDA", dlpack_type)
        self.driver = driver
        self.main, self.copy = FakeStream(self, device, 11), FakeStream(self, device, 22)

    def as_stream(self, stream: Any) -> Any:
        """Give it as it is."""
        return stream

    def switch(self, stream: Any) -> Any:
        """There is no current stream."""
        return lambda: None

    def is_capturing(self) -> bool:
        """Whether the driver was told so."""
        return bool(self.driver.is_capturing)

    def new_event(self, *, blocking: bool = False, timing: bool = False) -> Any:
        """Give one of the driver's, as torch has none without a GPU."""
        return cuda_driver.DriverEvent(0, blocking, timing)

    def worker(self, device: torch.device) -> Any:
        """Give a worker that does each job at once."""
        return SimpleNamespace(stream=FakeStream(self, device, 44), run=lambda job: job(None))

    def device_count(self) -> int:
        """One."""
        return 1

    def empty_host(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        """Give zeros, as what is not moved must not look like counts."""
        return torch.zeros(shape, dtype=dtype)

    def is_pinned(self, host_tensor: torch.Tensor) -> bool:
        """All of it, for all that anybody knows."""
        return True
