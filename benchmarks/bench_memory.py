"""Question 2: what does pinned memory gain, by size?"""

from __future__ import annotations

from benchmarks import names, suite


class _Question2(suite.Grid):
    question = 2
    params = (tuple(names.SIZES), ["pinned / pageable"])

    def setup_cache(self) -> suite.Cache:
        return suite.collect("memory")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class CopyTime(_Question2):
    """From the call until the bytes are on the host."""

    metric = "copy time"


class CopyTimeModelled(CopyTime):
    """The same on the virtual device."""

    modelled = True


class HostHeld(_Question2):
    """Time in the call itself, with 1 ms of kernels ahead of the copy."""

    metric = "host held by the call"


class HostHeldModelled(HostHeld):
    """The same on the virtual device."""

    modelled = True
