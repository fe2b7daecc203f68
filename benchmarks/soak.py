"""Many steps of random shapes, all policies, each value checked: ``python -m benchmarks.soak``.

Right after an output is constructed its sources are overwritten: in place, behind
``make_stream_wait()``, or by other tensors that get their memory once the references are
dropped. Outputs are read late and out of order, by other threads, twice, or never; some
results are kept and looked at again many steps later. At the end no value may have been
wrong, and pinned memory must have stopped growing early. ``--save FILE`` keeps the summary.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asyncout import (
    AXES,
    AsyncOutError,
    AsyncOutput,
    CopyPolicy,
    LogprobsTensors,
    ModelRunnerOutput,
    SamplerOutput,
)
from benchmarks import devices
from benchmarks.devices import BenchDevice
from benchmarks.runner import facts, machine, repository

ROOT = Path(__file__).resolve().parent.parent

#: Steps of a full run.
STEPS = 200_000

#: Seed of shapes, of policies and of what becomes of an output.
SEED = 20_251_201

#: Most requests, tokens per request and logprobs of a step: small, as what is tested is order.
MOST_REQUESTS = 48
MOST_TOKENS = 4
MOST_LOGPROBS = 8

#: Outputs that wait to be read, at most, and results that are kept to be looked at again.
OUTSTANDING = 6
KEPT = 24

#: Share of steps whose copies find the copy stream busy, and for how long, seconds: longer than
#: it takes to overwrite their sources.
LATE = 0.3
LATE_S = 50e-6

#: Share of outputs that are dropped unread, and of those that another thread reads.
DROPPED = 0.05
OTHER_THREAD = 0.1

#: Pinned memory's peak in the second half of the steps may be so much above that in the first:
#: how many outputs wait at the worst moment is chance. A block that is lost in every thousand
#: steps would be many times as much.
GROWTH_ALLOWED = 1.1

#: Steps from which on the first half has met the worst moment.
MEMORY_STEPS = 20_000

#: Steps between two looks at pinned memory.
LOOK_EVERY = 50

#: Values that tensors take are sums of a place in here and the step's number.
PATTERN_LENGTH = 1 << 16

#: What a sampler gives; float32 holds every value exactly.
DTYPES = {
    "ids": torch.int64,
    "logprob ids": torch.int32,
    "logprobs": torch.float32,
    "ranks": torch.int32,
}
NUMPY_DTYPES = {
    "ids": np.int64,
    "logprob ids": np.int32,
    "logprobs": np.float32,
    "ranks": np.int32,
}

#: What overwritten sources hold: nothing that a step sends.
OVERWRITTEN = -7


@dataclass
class Summary:
    """What a run saw.

    Attributes
    ----------
    machine, commit : str
    steps, dropped : int
        Outputs constructed; of those, dropped unread.
    mismatches : list of str
        The first wrong values.
    steps_by_policy : dict of str to int
    pinned_peak_first_half, pinned_peak_second_half : int
        Bytes of pinned memory at the worst moments.
    seconds : float
    seed : int
    """

    machine: str
    commit: str
    seed: int
    steps: int = 0
    dropped: int = 0
    mismatches: list[str] = field(default_factory=list)
    steps_by_policy: dict[str, int] = field(default_factory=dict)
    pinned_peak_first_half: int = 0
    pinned_peak_second_half: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether no value was wrong and pinned memory had stopped growing."""
        bound = GROWTH_ALLOWED * self.pinned_peak_first_half
        is_bounded = self.steps < MEMORY_STEPS or self.pinned_peak_second_half <= bound
        return not self.mismatches and is_bounded


def all_policies() -> list[CopyPolicy]:
    """List every policy that there is."""
    choices = (dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values()))
    return [
        CopyPolicy(**choice)
        for choice in choices
        if not (choice["streams"] == "single" and choice["submit"] == "thread")
    ]


class Soak:
    """The steps of one run.

    Parameters
    ----------
    device : BenchDevice
    summary : Summary
        Filled in.
    """

    def __init__(self, device: BenchDevice, summary: Summary) -> None:
        self._device = device
        self._summary = summary
        self._random = np.random.default_rng(summary.seed)
        self._host_pattern = np.arange(PATTERN_LENGTH) % 9973
        self._pattern = device.tensor(torch.from_numpy(self._host_pattern))
        self._waiting: deque[tuple[int, AsyncOutput, dict[str, np.ndarray]]] = deque()
        self._kept: deque[tuple[int, Any, dict[str, np.ndarray]]] = deque(maxlen=KEPT)
        self._threads = ThreadPoolExecutor(2)

    def run(self, steps: int, policies: Sequence[CopyPolicy]) -> None:
        """Run steps; policies take turns."""
        for number in range(steps):
            policy = policies[number % len(policies)]
            self._step(number, policy)
            while len(self._waiting) > self._random.integers(0, OUTSTANDING):
                self._read_one()
            if number % LOOK_EVERY == 0:
                self._look_at_memory(number < steps / 2)
            name = "-".join(asdict(policy).values())
            counts = self._summary.steps_by_policy
            counts[name] = counts.get(name, 0) + 1
        while self._waiting:
            self._read_one()
        self._threads.shutdown()
        self._device.synchronize()
        self._summary.steps = steps

    def _look_at_memory(self, is_first_half: bool) -> None:
        summary, now = self._summary, self._device.pinned_bytes()
        if is_first_half:
            summary.pinned_peak_first_half = max(summary.pinned_peak_first_half, now)
        else:
            summary.pinned_peak_second_half = max(summary.pinned_peak_second_half, now)

    def _step(self, number: int, policy: CopyPolicy) -> None:
        random = self._random
        requests = int(random.integers(1, MOST_REQUESTS + 1))
        width = int(random.integers(1, MOST_TOKENS + 1))
        shapes = {"ids": (requests, width)}
        if random.random() < 0.5:
            rows = (requests, int(random.integers(2, MOST_LOGPROBS + 2)))
            shapes |= {"logprob ids": rows, "logprobs": rows, "ranks": (requests,)}
        expected, sources = {}, {}
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            start = int(random.integers(0, PATTERN_LENGTH - size))
            part = slice(start, start + size)
            host = (self._host_pattern[part] + number).reshape(shape)
            expected[name] = host.astype(NUMPY_DTYPES[name])
            sources[name] = (self._pattern[part] + number).to(DTYPES[name]).view(shape)
        # Counts are the places of the step's own pattern, so they too differ from step to step.
        counts = self._host_pattern[number % 997 :][:requests] % (width + 1)
        sources["counts"] = self._pattern[number % 997 :][:requests] % (width + 1)
        expected["counts"] = counts
        if random.random() < LATE:
            self._device.busy(LATE_S, self._device.copy)
        output = self._construct(sources, policy)
        self._overwrite(output, sources)
        if random.random() < DROPPED:
            self._summary.dropped += 1
        else:
            self._waiting.append((number, output, expected))

    def _construct(self, sources: dict[str, torch.Tensor], policy: CopyPolicy) -> AsyncOutput:
        requests = len(sources["ids"])
        logprobs = None
        if "logprobs" in sources:
            boundaries = list(range(requests + 1))
            logprobs = LogprobsTensors(
                sources["logprob ids"], sources["logprobs"], sources["ranks"], boundaries
            )
        names = [str(index) for index in range(requests)]
        return AsyncOutput(
            ModelRunnerOutput(req_ids=names, req_id_to_index={}),
            SamplerOutput(sampled_token_ids=sources["ids"], logprobs_tensors=logprobs),
            sources["counts"],
            self._device.main,
            self._device.copy,
            policy=policy,
        )

    def _overwrite(self, output: AsyncOutput, sources: dict[str, torch.Tensor]) -> None:
        """Overwrite the sources in place, or let other tensors have their memory."""
        if self._random.random() < 0.5:
            output.make_stream_wait()
            for source in sources.values():
                source.fill_(OVERWRITTEN)
            return
        shapes = [source.shape for source in sources.values()]
        sources.clear()
        for shape in shapes:
            size = int(np.prod(shape))
            for dtype in (torch.int64, torch.int32):
                torch.full_like(self._pattern[:size], OVERWRITTEN, dtype=dtype)

    def _read_one(self) -> None:
        place = int(self._random.integers(0, len(self._waiting)))
        self._waiting.rotate(-place)
        number, output, expected = self._waiting.popleft()
        try:
            if self._random.random() < OTHER_THREAD:
                result = self._threads.submit(output.get_output).result()
            else:
                result = output.get_output()
        except AsyncOutError as error:  # counts that nobody sent
            self._report(number, f"{type(error).__name__}: {error}")
            return
        if output.get_output() is not result:
            self._report(number, "the second call gave another object")
        self._check(number, result, expected)
        if self._random.random() < 0.2:
            if len(self._kept) == KEPT:
                self._check(*self._kept.popleft())
            self._kept.append((number, result, expected))

    def _check(self, number: int, result: Any, expected: dict[str, np.ndarray]) -> None:
        cut = [
            row[:count].tolist()
            for row, count in zip(expected["ids"], expected["counts"], strict=True)
        ]
        if result.sampled_token_ids != cut:
            self._report(number, "sampled_token_ids")
        if "logprobs" in expected:
            for name, array in zip(
                ("logprob ids", "logprobs", "ranks"), result.logprobs, strict=False
            ):
                if not np.array_equal(array, expected[name]):
                    self._report(number, name)

    def _report(self, number: int, what: str) -> None:
        if len(self._summary.mismatches) < 100:
            self._summary.mismatches.append(f"step {number}: {what}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; 0 when it was good, 1 when it was not, 2 without a device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--virtual", action="store_true", help="on the virtual device")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep the summary as a line of JSON"
    )
    options = parser.parse_args(arguments)
    try:
        device = devices.virtual_device() if options.virtual else devices.cuda_device()
    except devices.NoDeviceError as error:
        print(f"error: {error}; --virtual runs without a GPU", file=sys.stderr)
        return 2
    name = "virtual" if options.virtual else machine.default_name(facts.collect())
    summary = Summary(name, repository.Repository(ROOT).head, options.seed)
    begin = time.perf_counter()
    Soak(device, summary).run(options.steps, all_policies())
    summary.seconds = round(time.perf_counter() - begin, 1)
    text = json.dumps(asdict(summary))
    print(text)
    if options.save is not None:
        options.save.write_text(text + "\n", encoding="utf-8")
    return 0 if summary.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
