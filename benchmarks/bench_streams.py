"""Question 1: does a second stream pay, and how much of the copy does it hide?"""

from __future__ import annotations

from benchmarks import suite

# Written out, so that asv need not import torch to list them; a test compares them.
WORKLOADS = [
    "decode R=1 K=0",
    "decode R=256 K=20",
    "decode R=1024 K=20",
    "prompt logprobs 16 x 1024",
    "sampling masks R=256",
    "pooling 256 x 4096 fp32",
    "routed experts 8192 x 60 x 8",
    "logits 256 x 128256 fp32",
]


class _Question1(suite.Grid):
    question = 1
    params = (WORKLOADS, ["two streams / one stream"])

    def setup_cache(self) -> suite.Cache:
        from benchmarks.grids import streams

        return suite.collect(streams)

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


class ExposedTimeModelled(ExposedTime):
    """The same on the virtual device."""

    modelled = True


class ExposedShare(_Question1):
    """Exposed time over the copy's own: 0 is all hidden, 1 is none."""

    metric = "exposed share of the copy"
    unit = "share"


class ExposedShareModelled(ExposedShare):
    """The same on the virtual device."""

    modelled = True
