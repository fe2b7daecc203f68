"""Question 1: does a second stream pay, and how much of the copy does it hide?"""

from __future__ import annotations

from benchmarks import names, suite


class _Question1(suite.Grid):
    question = 1
    params = ((*names.STREAMS, *names.STREAMS_REAL), ["two streams / one stream"])

    def setup_cache(self) -> suite.Cache:
        return suite.collect("streams")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class StepTime(_Question1, suite.BoundedGrid):
    """Time of a step that is pipelined one deep, 2 ms of kernels."""

    metric = "step time"


class StepTimeModelled(StepTime):
    """The same on the virtual device."""

    modelled = True


class ExposedTime(_Question1):
    """Step time with the copy, less the step time without: signed."""

    metric = "exposed copy time"
    signed = True


class ExposedTimeModelled(ExposedTime):
    """The same on the virtual device."""

    modelled = True


class ExposedShare(_Question1):
    """Exposed time over the copy's own: 0 is all hidden, 1 is none."""

    metric = "exposed share of the copy"
    unit = "share"
    signed = True


class ExposedShareModelled(ExposedShare):
    """The same on the virtual device."""

    modelled = True
