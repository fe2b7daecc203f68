"""Question 5: kept references or ``record_stream``? Torch's allocator has no model here."""

from __future__ import annotations

from benchmarks import names, suite

COMPARISON = ["record_stream / kept references"]


class _Keeping(suite.Grid):
    question = 5
    params = (names.KEEPING, COMPARISON)

    def setup_cache(self) -> suite.Cache:
        return suite.collect("keeping")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class KeepingHostTime(_Keeping):
    """Host time of a step whose tensors are new: allocation, copies, keeping, letting go."""

    metric = "host time with new tensors"
    params = ((names.SMALL_SOURCES,), COMPARISON)


class KeepingStepTime(_Keeping):
    """Step time with tensors that are allocated in each step."""

    metric = "step with new tensors"


class KeepingMemory(_Keeping):
    """Device memory that those tensors have at the most."""

    metric = "device memory of new tensors"
    unit = "bytes"
