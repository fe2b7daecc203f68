"""Question 4: what does each axis do in a step loop, alone and together with the others?

A *block* is a workload in a loop with steps of one length. In each block all 24 policies
are measured interleaved, so every effect there is an average over the other axes' levels.
All 104 blocks take a night; the full mode measures a balanced part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product

import numpy as np

from asyncout import DEFAULT, ORIGINAL, CopyPolicy
from benchmarks import loops, names
from benchmarks.devices import BenchDevice
from benchmarks.grids.plans import Cell, Samples, row
from benchmarks.measure import MIN_SAMPLES, Plan
from benchmarks.rows import Row
from benchmarks.workloads import WORKLOADS

QUESTION = 4

STEP_TIME = "step time by policy"
EACH = "step time of each policy"
INTERACTION = "interaction on step time"

FAST, BASELINE = "default", "original"

#: A sample lasts about so long; its loop has the steps that take this, but at least a few.
SAMPLE_S = 20e-3
LEAST_STEPS = 3

#: Steps of a sample at most: with very short ones the host's time is what is measured.
MOST_STEPS = 20

#: Six rounds' interval reaches from the least to the greatest: one late round widens it.
#: Blocks of short steps have time for more, until every policy's ratio is known to half of
#: the least change that is a verdict. All blocks stay within 8 minutes.
PLAN = Plan(
    min_pairs=MIN_SAMPLES,
    max_pairs=24,
    half_width=names.LEAST_EFFECT / 2,
    time_limit_s=8.0,
    warmup_pairs=0,
)

NAMES = names.BLOCKS_FULL
NIGHTLY_NAMES = names.BLOCKS
QUICK_NAMES = names.BLOCKS_QUICK

LOOPS = {"pipelined": loops.pipelined_step, "synchronous": loops.synchronous_step}

#: Policies by their levels, in the order of the factors.
POLICIES = {
    "-".join(levels): CopyPolicy(**dict(zip(names.FACTORS, levels, strict=True)))
    for levels in product(*names.FACTORS.values())
}
ARMS = {STEP_TIME: tuple(POLICIES)}


def cells(device: BenchDevice, name: str) -> Iterator[Cell]:
    """Build the one cell of a block."""
    workload, loop, length = names.block_parts(name)
    step, seconds = WORKLOADS[workload].build(device), names.STEP_LENGTHS[length]
    # Virtual time has no noise to average.
    steps = LEAST_STEPS if device.modelled else steps_of_sample(seconds)
    launch = partial(device.busy, seconds)
    arms = {}
    for arm, policy in POLICIES.items():
        if policy.streams == "dual" and policy.wait == "hybrid":  # bytes know no wait
            step.verify(step.enqueue(step.prepare(), policy).get_output())
        arms[arm] = partial(LOOPS[loop], device, step, policy, launch, steps)
        if policy.wait == "hybrid":
            arms[arm]()  # an engine's first steps, which it learns from, are not its rule
    yield Cell(STEP_TIME, name, arms, partial(_rows, name), is_batch=True, whole_plan=PLAN)


def steps_of_sample(seconds: float) -> int:
    """Give the steps of a measured sample's loop, by the length of a step."""
    return min(MOST_STEPS, max(LEAST_STEPS, round(SAMPLE_S / seconds)))


def _rows(name: str, samples: Samples) -> Iterator[Row]:
    for factor, levels in names.FACTORS.items():
        for level in levels[1:]:
            pair = {at: mean_at(samples, {factor: at}) for at in (level, levels[0])}
            yield row(STEP_TIME, name, pair, level, levels[0])
    pair = {FAST: samples[policy_name(DEFAULT)], BASELINE: samples[policy_name(ORIGINAL)]}
    yield row(STEP_TIME, name, pair, FAST, BASELINE)
    original = {BASELINE: samples[policy_name(ORIGINAL)]}
    for arm in POLICIES:
        if arm != policy_name(ORIGINAL):
            yield row(EACH, name, {**original, arm: samples[arm]}, arm, BASELINE)
    for comparison in interactions():
        yield _interaction(name, samples, *comparison)


def interactions() -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    """List pairs of changes of level: (factor, level, reference) of each."""
    for first, second in combinations(names.FACTORS, 2):
        for a, b in product(names.FACTORS[first][1:], names.FACTORS[second][1:]):
            yield (first, a, names.FACTORS[first][0]), (second, b, names.FACTORS[second][0])


def _interaction(
    name: str, samples: Samples, first: tuple[str, str, str], second: tuple[str, str, str]
) -> Row:
    """Compare what one change does at another factor's level with what it does without it."""
    factor, level, reference = first
    other, at, before = second

    def gain(level_of_other: str) -> tuple[float, ...]:
        changed = mean_at(samples, {factor: level, other: level_of_other})
        unchanged = mean_at(samples, {factor: reference, other: level_of_other})
        return tuple(a / b for a, b in zip(changed, unchanged, strict=True))

    arm, baseline = f"{level} with {at}", f"{level} with {before}"
    return row(INTERACTION, name, {arm: gain(at), baseline: gain(before)}, arm, baseline)


def mean_at(samples: Mapping[str, Sequence[float]], levels: Mapping[str, str]) -> tuple[float, ...]:
    """Give the geometric mean, round by round, over the policies with these levels."""
    chosen = [
        samples[arm]
        for arm, policy in POLICIES.items()
        if all(getattr(policy, factor) == level for factor, level in levels.items())
    ]
    means: list[float] = np.exp(np.log(np.array(chosen)).mean(axis=0)).tolist()
    return tuple(means)


def policy_name(policy: CopyPolicy) -> str:
    """Name a policy by its levels, as the rows do; how it is submitted is no factor."""
    return "-".join(getattr(policy, factor) for factor in names.FACTORS)
