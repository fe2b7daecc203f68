"""What a worker runs for each kind of probe: one call, one sample of each of its metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from asyncout import DEFAULT
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.gate import catalogue
from benchmarks.gate.catalogue import Probe
from benchmarks.workloads import WORKLOADS, Step

#: Gives a value for each metric of its probe.
Sampler = Callable[[], tuple[float, ...]]

#: Kernel time of a step of the loop: short, so that what the library adds is seen.
COMPUTE_S = 1e-3

#: Steps in a sample of the loop: filling and draining it is a small part.
STEPS = 10

#: The workload whose results are waited for.
LATENCY_WORKLOAD = "decode R=256 K=20"

#: Waits after which the hybrid one knows its step.
WAITS_TO_LEARN = 16


def sampler_for(probe: Probe, device: BenchDevice) -> Sampler:
    """Build what a probe needs and see that the right values arrive.

    Parameters
    ----------
    probe : Probe
    device : BenchDevice

    Raises
    ------
    ImportError, AttributeError, TypeError
        The library lacks what is measured.
    AssertionError
        What arrived is not what was sent.
    """
    return _BUILDERS[probe.kind](device, probe.workload)


def _step(device: BenchDevice, workload: str) -> tuple[Step, Callable[..., object]]:
    """Give a step and its constructor under the library's default policy, verified."""
    step = WORKLOADS[workload].build(device)
    construct = partial(step.enqueue, policy=DEFAULT)
    step.verify(construct(step.prepare()).get_output())
    return step, construct


def _output(device: BenchDevice, workload: str) -> Sampler:
    step, construct = _step(device, workload)
    return partial(loops.enqueue_and_get, device, step, construct)


def _latency(device: BenchDevice, workload: str) -> Sampler:
    step, construct = _step(device, LATENCY_WORKLOAD)
    seconds = names.LATENCY_STEPS[workload]
    return lambda: (loops.result_latency(device, step, construct, seconds),)


def _wait(device: BenchDevice, workload: str) -> Sampler:
    from asyncout.events import waiter_for  # here: one commit's lack is one probe's

    waiter = waiter_for(DEFAULT, device.runtime, device.main.device)
    run = partial(loops.wait_once, device, waiter, names.WAITS[workload])
    for _ in range(WAITS_TO_LEARN):
        run()
    return run


def _loop(device: BenchDevice, workload: str) -> Sampler:
    step, _ = _step(device, workload)
    launch = partial(device.busy, COMPUTE_S)
    return lambda: (loops.pipelined_step(device, step, DEFAULT, launch, STEPS),)


def _timing(device: BenchDevice, workload: str) -> Sampler:
    from asyncout import StepTimingCollector  # here: one commit's lack is one probe's

    collector = StepTimingCollector(device.runtime)

    def step_in_block() -> None:
        collector.forward_start()
        collector.forward_end()
        collector.drafter_start()
        collector.drafter_end()

    def sample() -> tuple[float]:
        with collector.collect():
            return (loops.cold_call(device, step_in_block),)

    return sample


_BUILDERS: dict[str, Callable[[BenchDevice, str], Sampler]] = {
    catalogue.OUTPUT: _output,
    catalogue.LATENCY: _latency,
    catalogue.WAIT: _wait,
    catalogue.LOOP: _loop,
    catalogue.TIMING: _timing,
}
