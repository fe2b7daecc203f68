"""What the gate measures: probes, their metrics, and how much slower counts.

Standard library only, so that the process that leads needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks import names

#: Kinds of probe; :mod:`benchmarks.gate.probes` has a builder for each.
OUTPUT, LATENCY, WAIT, LOOP, TIMING = "output", "latency", "wait", "loop", "timing"

#: Changes up to this share are no verdict. Host times of two processes with the same code
#: differ by a few percent, which pairs do not cancel: memory lies elsewhere in each.
HOST_EFFECT = 0.05

#: A step is mostly kernels of a known length; what a commit changes is a small part of it.
STEP_EFFECT = 0.02

#: A wake-up is a few microseconds late at best, of which one more is not a change.
WAKE_EFFECT = 0.25

#: The CPU time of a wait that mostly sleeps is small, and differs much from wait to wait.
CPU_EFFECT = 0.5


@dataclass(frozen=True)
class Metric:
    """One figure of a commit; less is better.

    Attributes
    ----------
    name, workload : str
    min_effect : float
        Changes up to this share are no verdict.
    modelled : bool
        Whether the virtual device says anything of it: Python's own time is not in the model.
    """

    name: str
    workload: str
    min_effect: float
    modelled: bool = True


@dataclass(frozen=True)
class Probe:
    """What a worker runs at a time; it gives one sample of each of its metrics.

    Attributes
    ----------
    kind, workload : str
    metrics : tuple of Metric
        In the order of a sample's values.
    """

    kind: str
    workload: str
    metrics: tuple[Metric, ...]

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.kind}: {self.workload}"


def _output(workload: str) -> Probe:
    return Probe(
        OUTPUT,
        workload,
        (
            Metric("enqueue", workload, HOST_EFFECT),
            Metric("get_output after arrival", workload, HOST_EFFECT, modelled=False),
        ),
    )


def _wait(workload: str) -> Probe:
    return Probe(
        WAIT,
        workload,
        (
            Metric("wake-up latency", workload, WAKE_EFFECT),
            Metric("CPU burnt per wait", workload, CPU_EFFECT),
        ),
    )


def _single(kind: str, name: str, workload: str, effect: float, modelled: bool = True) -> Probe:
    return Probe(kind, workload, (Metric(name, workload, effect, modelled),))


#: All that is measured. Few, on purpose: every metric more widens the interval of each.
PROBES: tuple[Probe, ...] = (
    _output("decode R=1 K=0"),
    _output("decode R=256 K=20"),
    _output("prompt logprobs 16 x 1024"),
    _single(LATENCY, "result latency", "decode R=256 K=20, 1 ms steps", HOST_EFFECT, False),
    _wait("1 ms"),
    _single(LOOP, "step time", "decode R=256 K=20", STEP_EFFECT),
    _single(LOOP, "step time", "routed experts 8192 x 60 x 8", STEP_EFFECT),
    _single(TIMING, "timing one step", names.ONE_STEP, HOST_EFFECT),
)


def metrics_of(probes: Iterable[Probe], modelled: bool) -> list[Metric]:
    """List the metrics that a kind of device says something of."""
    return [m for probe in probes for m in probe.metrics if m.modelled or not modelled]
