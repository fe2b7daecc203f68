"""Question 3: block, spin or both; how late is the thread back, and what does it burn?"""

from __future__ import annotations

from benchmarks import names, suite


class _Question3(suite.Grid):
    question = 3

    def setup_cache(self) -> suite.Cache:
        return suite.collect("waits")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class WakeUp(_Question3):
    """From the device's end of the work to the return of the wait."""

    metric = "wake-up latency"
    params = (tuple(names.WAITS), ["spin / block", "hybrid / block"])


class WakeUpModelled(WakeUp):
    """The same on the virtual device."""

    modelled = True


class CpuBurnt(_Question3):
    """CPU time of the waiting thread over the wall time of the wait."""

    metric = "CPU burnt per wait"
    unit = "share"
    params = (tuple(names.WAITS), ["block / spin", "hybrid / spin"])


class CpuBurntModelled(CpuBurnt):
    """The same on the virtual device."""

    modelled = True


class LateWakeUp(_Question3):
    """The lateness that one in twenty waits exceeds, when their lengths differ by a tenth."""

    metric = "wake-up latency, 95th percentile"
    params = (names.VARIED_WAITS, ["spin / block", "hybrid / block"])


class LateWakeUpModelled(LateWakeUp):
    """The same on the virtual device."""

    modelled = True


class CpuBurntJittered(_Question3):
    """CPU time over wall time of such waits, on average."""

    metric = "CPU burnt per jittered wait"
    unit = "share"
    params = (names.VARIED_WAITS, ["block / spin", "hybrid / spin"])


class CpuBurntJitteredModelled(CpuBurntJittered):
    """The same on the virtual device."""

    modelled = True


class BurstStepTime(_Question3):
    """Step time of ten steps of a pipelined loop behind an idle device."""

    metric = "step time in bursts"
    params = (tuple(names.BURSTS), ["spin / block", "hybrid / block"])


class BurstStepTimeModelled(BurstStepTime):
    """The same on the virtual device."""

    modelled = True


class BurstCpu(_Question3):
    """CPU time of the loop's thread over its wall time."""

    metric = "CPU burnt in bursts"
    unit = "share"
    params = (tuple(names.BURSTS), ["block / spin", "hybrid / spin"])


class BurstCpuModelled(BurstCpu):
    """The same on the virtual device."""

    modelled = True
