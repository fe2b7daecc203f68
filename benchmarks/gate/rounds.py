"""Who runs when: two workers take turns, pair by pair, in several pairs of processes."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks import measure
from benchmarks.gate import verdicts
from benchmarks.gate.catalogue import Metric, Probe, metrics_of
from benchmarks.gate.dialogue import AnswerError, Dialogue
from benchmarks.gate.errors import GateError, OutOfTimeError, WorkerError
from benchmarks.gate.verdicts import FAILED, LOST, NOT_AVAILABLE, Judgement
from benchmarks.measure import MeasureError, PairedSamples

BASE, HEAD = "base", "head"

#: Order in which the sides are asked by :func:`benchmarks.measure.turns`.
SIDES = (BASE, HEAD)

#: Odd pairs of processes that the interval bears at each end: a neighbour's burst is one.
SPARE_PROCESSES = 1

#: Pairs of visits in a pair of processes. On an H200's virtual machine the middle half of the
#: pairs' ratios of a cold call spans 20 to 30 %, so the median of so many is known to 5 %.
PAIRS = 16

#: Seconds for an answer. A first import of torch from a cold disk, with a CUDA context, takes
#: tens of seconds; the largest workload is built in a few; a visit takes a fraction of one.
GREET_TIMEOUT_S, OPEN_TIMEOUT_S, VISIT_TIMEOUT_S = 150.0, 90.0, 60.0


@dataclass(frozen=True)
class Plan:
    """How often the two commits take turns.

    Attributes
    ----------
    processes : int
        Pairs of processes, one after the other.
    blocks : int
        Blocks of each metric in one pair of processes; see :mod:`benchmarks.gate.verdicts`.
    pairs : int
        Pairs of visits in a block.
    warm, counted : int
        Samples of a visit. The first ones bring the worker's code and its part of the GPU
        back from where the other worker has pushed them; of the others the median counts.
    """

    processes: int
    blocks: int
    pairs: int
    warm: int
    counted: int


@dataclass(frozen=True)
class Result:
    """What a run of the gate found.

    Attributes
    ----------
    judgements : list of Judgement
        One for each metric of the catalogue that the device says something of.
    device : str
    modelled : bool
        Whether all figures are the virtual device's.
    confidence : float
        Of each interval.
    failure : str
        What ended the run early; "" if nothing did.
    """

    judgements: list[Judgement]
    device: str
    modelled: bool
    confidence: float
    failure: str = ""


def plan_for(modelled: bool, metrics: int) -> Plan:
    """Choose how often to take turns so that so many metrics can have a verdict."""
    confidence = verdicts.corrected_confidence(metrics)
    if modelled:
        # Virtual time has no noise and does not know one process from another.
        return Plan(1, verdicts.blocks_needed(confidence), pairs=1, warm=0, counted=1)
    processes = verdicts.blocks_needed(confidence, SPARE_PROCESSES)
    return Plan(processes, blocks=1, pairs=PAIRS, warm=1, counted=3)


#: Starts the worker of a side ("base" or "head").
Starter = Callable[[str], Dialogue]


def compare(
    start: Starter,
    probes: Sequence[Probe],
    device: str = "auto",
    time_limit_s: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Compare two commits.

    Parameters
    ----------
    start : callable
        Starts the worker of a side.
    probes : sequence of Probe
        The workers know them by their index.
    device : {"auto", "gpu", "virtual"}
    time_limit_s : float
        No pair of processes is started that would hardly end in time.
    clock : callable
        Seconds, for the time limit.

    Raises
    ------
    GateError
        There is no device as demanded, or not one worker could be asked.
    """
    deadline = clock() + time_limit_s
    with _workers(start) as workers:
        greeted = _greet(workers, device)
        modelled, shown = greeted.modelled, greeted.device
        processors = [None] if modelled else _processors()
        run = _Run(probes, modelled)
        run.exclude_all(greeted.lacking)
        plan = plan_for(modelled, len(run.metrics))
        failure = ""
        begin = clock()
        try:
            if run.wanted():
                _settle(workers, processors[0])
            run.visit(workers, plan, first_index=0)
        except WorkerError as error:
            failure = str(error)
    longest = clock() - begin
    for number in range(1, plan.processes):
        if failure or not run.wanted():
            break
        _say(f"pair of processes {number} of {plan.processes} took {clock() - begin:.1f} s")
        begin = clock()
        try:
            if begin + longest > deadline:
                raise OutOfTimeError(
                    f"{time_limit_s:g} s do not suffice: {number} of {plan.processes} pairs of "
                    f"processes are done and one takes {longest:.0f} s; give more: --time-limit"
                )
            with _workers(start) as workers:
                _greet(workers, device)
                _settle(workers, processors[number % len(processors)])
                run.visit(workers, plan, first_index=number * plan.blocks * plan.pairs)
        except GateError as error:
            failure = str(error)
        longest = max(longest, clock() - begin)
    confidence = verdicts.corrected_confidence(len(run.metrics))
    return Result(run.judgements(confidence, failure), shown, modelled, confidence, failure)


@contextmanager
def _workers(start: Starter) -> Iterator[dict[str, Dialogue]]:
    """Start both workers, and end them whatever happens."""
    workers: dict[str, Dialogue] = {}
    with ExitStack() as ends:  # also the second one, when ending the first one is interrupted
        try:
            for side in SIDES:
                workers[side] = start(side)
                ends.callback(workers[side].close)
            yield workers
        except KeyboardInterrupt:
            for worker in workers.values():
                worker.kill()  # who interrupts does not wait for the end of a visit
            raise


@dataclass(frozen=True)
class _Greeted:
    device: str
    modelled: bool
    lacking: dict[str, str]


def _greet(workers: Mapping[str, Dialogue], device: str) -> _Greeted:
    """Let both workers take the device, at the same time: imports take seconds."""
    for worker in workers.values():
        worker.send("greet", device=device)
    found: dict[str, dict[str, Any]] = {}
    lacking: dict[str, str] = {}
    for side, worker in workers.items():
        try:
            found[side] = worker.receive("greet", GREET_TIMEOUT_S)
        except AnswerError as error:
            if not error.lacking:
                raise GateError(f"{worker.name} has no device to measure on: {error}") from None
            lacking[side] = str(error)
    if len({answer["modelled"] for answer in found.values()}) > 1:
        raise GateError("one worker found a GPU and the other did not; see which GPUs are visible")
    for answer in found.values():
        return _Greeted(answer["device"], answer["modelled"], lacking)
    raise GateError(f"neither commit's library can be used: {lacking[HEAD]}")


def _processors() -> list[int | None]:
    """List the processors to measure on, one pair of processes each, as long as there are some."""
    try:
        return list[int | None](sorted(os.sched_getaffinity(0)))
    except AttributeError:
        return [None]  # not Linux: the system chooses


def _settle(workers: Mapping[str, Dialogue], cpu: int | None) -> None:
    """Let both workers measure on one processor, with kernels of one length.

    A process hardly leaves its processor, and the host's other guests make one of them slow
    for seconds; two workers that calibrate while the other one's kernels run give two lengths
    to one kernel. Neither goes away with more pairs.
    """
    pace = None
    for worker in workers.values():
        asked = {"cpu": cpu, "cycles_per_second": pace}
        try:
            pace = worker.ask("settle", OPEN_TIMEOUT_S, **asked)["cycles_per_second"]
        except AnswerError as error:
            raise GateError(
                f"{worker.name} could not measure on processor {cpu}: {error}"
            ) from None


class _Run:
    """Samples of all metrics so far, and why some have none."""

    def __init__(self, probes: Sequence[Probe], modelled: bool) -> None:
        self._probes = probes
        self._modelled = modelled
        self.metrics = metrics_of(probes, modelled)
        self._blocks: dict[Metric, list[PairedSamples]] = defaultdict(list)
        self._without: dict[Metric, tuple[str, str]] = {}

    def wanted(self) -> list[int]:
        """List the probes that still have a metric to measure, by index."""
        return [
            index
            for index, probe in enumerate(self._probes)
            if any(metric not in self._without for metric in metrics_of([probe], self._modelled))
        ]

    def exclude_all(self, lacking: Mapping[str, str]) -> None:
        """Exclude everything when a side's library cannot be used at all."""
        if lacking:
            for probe in self._probes:
                self._exclude(probe, *_lack(lacking))

    def visit(self, workers: Mapping[str, Dialogue], plan: Plan, first_index: int) -> None:
        """Let one pair of processes take turns on every probe."""
        for index in self.wanted():
            probe = self._probes[index]
            if self._open(workers, index):
                try:
                    for block in range(plan.blocks):
                        turn = first_index + block * plan.pairs
                        self._block(workers, index, plan, turn)
                except AnswerError as error:
                    self._exclude(probe, FAILED, str(error))
            # Also what only one side could open: neither is to hold more than the other.
            for worker in workers.values():
                worker.ask("close", VISIT_TIMEOUT_S, probe=index)

    def _open(self, workers: Mapping[str, Dialogue], index: int) -> bool:
        """Let both sides build a probe; whether both could."""
        lacking, failed = {}, {}
        for side, worker in workers.items():
            try:
                worker.ask("open", OPEN_TIMEOUT_S, probe=index)
            except AnswerError as error:
                (lacking if error.lacking else failed)[side] = str(error)
        if failed:
            self._exclude(self._probes[index], FAILED, _by_side(failed))
        elif lacking:
            self._exclude(self._probes[index], *_lack(lacking))
        return not (failed or lacking)

    def _block(
        self, workers: Mapping[str, Dialogue], index: int, plan: Plan, first_turn: int
    ) -> None:
        values: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        for pair in range(plan.pairs):
            for side in measure.turns(SIDES, first_turn + pair):
                asked = {"probe": index, "warm": plan.warm, "counted": plan.counted}
                answer = workers[side].ask("visit", VISIT_TIMEOUT_S, **asked)
                values[side].append(answer["values"])
        probe = self._probes[index]
        for number, metric in enumerate(probe.metrics):
            if metric.modelled or not self._modelled:
                head, base = ([v[number] for v in values[side]] for side in (HEAD, BASE))
                self._blocks[metric].append(PairedSamples(tuple(head), tuple(base)))

    def _exclude(self, probe: Probe, verdict: str, reason: str) -> None:
        for metric in probe.metrics:
            self._without[metric] = (verdict, reason)

    def judgements(self, confidence: float, failure: str) -> list[Judgement]:
        """Judge every metric; what the failure left without enough samples has failed."""
        return [self._judge(metric, confidence, failure) for metric in self.metrics]

    def _judge(self, metric: Metric, confidence: float, failure: str) -> Judgement:
        if metric in self._without:
            verdict, reason = self._without[metric]
            return Judgement(metric, verdict, reason=reason)
        try:
            return verdicts.judge(metric, self._blocks[metric], confidence)
        except MeasureError as error:
            return Judgement(metric, FAILED, reason=failure or str(error))


def _lack(lacking: Mapping[str, str]) -> tuple[str, str]:
    """Say what it means that sides lack a feature: news at the base, a loss at the head only."""
    verdict = LOST if set(lacking) == {HEAD} else NOT_AVAILABLE
    return verdict, _by_side(lacking)


def _by_side(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{side}: {reason}" for side, reason in reasons.items())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
