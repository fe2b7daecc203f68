"""Question 4: what does each axis of the policy do in a step loop, alone and with the others?"""

from __future__ import annotations

import itertools
import os

from benchmarks import names, suite
from benchmarks.runner import mode

#: Blocks that a run has results of, by its mode: asv starts a process for each cell. What a
#: smoke run measures is not saved.
_BLOCKS = {"nightly": names.BLOCKS, "smoke": names.BLOCKS_QUICK}
BLOCKS = _BLOCKS.get(os.environ.get(mode.VARIABLE, ""), names.BLOCKS_FULL)

#: Each level against its factor's first, and the default against the original's preset.
COMPARISONS = [
    *(f"{level} / {levels[0]}" for levels in names.FACTORS.values() for level in levels[1:]),
    "default / original",
]

#: Each policy, by its levels, against the original's preset, which has no row of its own.
EACH = [
    f"{'-'.join(levels)} / original"
    for levels in itertools.product(*names.FACTORS.values())
    if levels != names.ORIGINAL_LEVELS
]

#: What a level does at another factor's level, over what it does at that one's first.
INTERACTIONS = [
    f"{a} with {b} / {a} with {second[0]}"
    for first, second in itertools.combinations(names.FACTORS.values(), 2)
    for a in first[1:]
    for b in second[1:]
]


class _Question4(suite.Grid):
    question = 4
    least_effect = names.LEAST_EFFECT

    def setup_cache(self) -> suite.Cache:
        return suite.collect("factorial")

    setup_cache.timeout = suite.NIGHT_TIMEOUT_S  # type: ignore[attr-defined]


class PolicyStepTime(_Question4):
    """Step time at a level of one axis, averaged over the levels of the others."""

    metric = "step time by policy"
    params = (BLOCKS, COMPARISONS)


class PolicyStepTimeModelled(PolicyStepTime):
    """The same on the virtual device."""

    modelled = True


class EachPolicy(_Question4):
    """Step time of each policy in a block: which one is best there."""

    metric = "step time of each policy"
    params = (BLOCKS, EACH)


class PolicyInteraction(_Question4):
    """How many times larger a ratio is at another axis' level: 1 is no interaction."""

    metric = "interaction on step time"
    unit = "ratio"
    params = (BLOCKS, INTERACTIONS)
