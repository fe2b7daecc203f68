"""Question 5: what does the library itself cost the host?"""

from __future__ import annotations

from benchmarks import names, suite

POLICIES = ["asyncout, default / original", "asyncout, original preset / original"]


class _Question5(suite.Grid):
    question = 5

    def setup_cache(self) -> suite.Cache:
        return suite.collect("library")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class Enqueue(_Question5):
    """Host time in the constructor of an output."""

    metric = "enqueue"
    params = (names.OUTPUTS, POLICIES)


class EnqueueModelled(Enqueue):
    """The same on the virtual device."""

    modelled = True


class GetOutput(_Question5):
    """Host time in ``get_output`` when everything has arrived. Python: not modelled."""

    metric = "get_output after arrival"
    params = (names.OUTPUTS, POLICIES)


class ResultLatency(_Question5):
    """From the last byte on the host to the lists in hand. Python: not modelled."""

    metric = "result latency"
    params = (tuple(names.LATENCY_STEPS), POLICIES)


class DeviceTime(_Question5):
    """Time that an output's copies take on the device."""

    metric = "device time of the copies"
    params = (names.DEVICE_OUTPUTS, ["asyncout, default / original"])


class DeviceTimeModelled(DeviceTime):
    """The same on the virtual device."""

    modelled = True


class BehindProducts(_Question5):
    """From a step's end to its output on the host, beside matrix products of the next."""

    metric = "output ready behind matrix products"
    params = (names.DEVICE_OUTPUTS, POLICIES)


class BehindProductsModelled(BehindProducts):
    """The same on the virtual device."""

    modelled = True


class Held(_Question5):
    """Host time in the constructor when the copies have to wait for kernels."""

    metric = "enqueue behind 50 ms of work"
    params = (
        tuple(names.BEHIND),
        ["pageable, thread / pageable", "pageable, batched / pageable", "pinned, thread / pinned"],
    )


class HeldModelled(Held):
    """The same on the virtual device."""

    modelled = True


class StepTiming(_Question5):
    """Host time of the four marks of one timed step."""

    version = "2"  # a collector that has timed steps before

    metric = "timing one step"
    params = ([names.ONE_STEP], ["collecting / original", "outside a block / collecting"])


class StepTimingModelled(StepTiming):
    """The same on the virtual device."""

    modelled = True


class SwitchStreams(_Question5):
    """Host time to switch to a stream and back."""

    metric = "switching streams"
    params = (
        [names.ONE_STEP],
        ["asyncout.stream / generator", "asyncout.stream / torch.cuda.stream"],
    )


class SwitchStreamsModelled(SwitchStreams):
    """The same on the virtual device."""

    modelled = True
