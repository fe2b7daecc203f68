"""Effects of a factorial on synthetic data whose answer is known, and the whole method's risks."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, count

import numpy as np
import pytest

from benchmarks import effects
from benchmarks.effects import (
    Cell,
    DesignError,
    Effect,
    Factors,
    NotEstimableError,
    balanced_part,
    estimate,
    full_grid,
)
from benchmarks.measure import (
    CANNOT_TELL,
    FASTER,
    SLOWER,
    Plan,
    SampleCountError,
    compare,
    measure_many,
    measure_pairs,
)

FACTORS: Factors = {
    "streams": ["single", "dual"],
    "memory": ["pageable", "pinned"],
    "wait": ["block", "spin", "hybrid"],
    "copies": ["per_tensor", "batched"],
}

#: What each level does to the time; levels that are not here do nothing.
PLANTED = {"dual": 0.8, "pinned": 0.5, "hybrid": 0.9}

#: What two levels do together beyond that.
PLANTED_TOGETHER = {("dual", "pageable"): 1.25}


def true_time(cell: Cell, together: bool) -> float:
    time = 1e-3
    for level in cell:
        time *= PLANTED.get(level, 1.0)
    for levels, factor in PLANTED_TOGETHER.items():
        if together and set(levels) <= set(cell):
            time *= factor
    return time


class Machine:
    """Gives noisy times: a drift that all cells share, and noise of each sample's own.

    `kind` names the distribution of the noise around its median, 1.
    """

    def __init__(self, kind: str, seed: int, spread: float = 0.1) -> None:
        self._random = np.random.default_rng(seed)
        self._kind = kind
        self._spread = spread
        self._drift = 0.0
        self._calls = count()

    def factor(self) -> float:
        random, spread, kind = self._random, self._spread, self._kind
        if kind == "skewed":  # most samples near the least, a long tail, as waits have
            noise = 1 + spread * (random.exponential() - np.log(2))
        elif kind == "two modes":  # a cold and a warm state
            noise = (1.0 if random.random() < 0.7 else 1.4) * random.lognormal(0, spread / 3)
        else:
            noise = random.lognormal(0, spread)
        if kind == "drift":  # each call remembers 98 % of the machine's state
            self._drift = 0.98 * self._drift + random.normal(0, spread / 2)
        if kind == "slope":
            self._drift = 0.002 * next(self._calls)
        return float(noise * np.exp(self._drift))


KINDS = ["plain", "skewed", "two modes", "drift", "slope"]


def measured(
    cells: list[Cell], kind: str, seed: int, rounds: int = 30, together: bool = True
) -> dict[Cell, tuple[float, ...]]:
    """Measure the cells as the suites do: interleaved, one sample of each per round."""
    machine = Machine(kind, seed)
    plan = Plan(rounds, rounds, half_width=0.0, time_limit_s=1e9, warmup_pairs=0)
    arms = {
        str(index): lambda cell=cell: true_time(cell, together) * machine.factor()
        for index, cell in enumerate(cells)
    }
    found = measure_many(arms, plan)
    return {cell: found[str(index)] for index, cell in enumerate(cells)}


def expected(effect: Effect, together: bool) -> float:
    """Compute an effect's true ratio from the noiseless times of the full grid."""
    times = {cell: true_time(cell, together) for cell in full_grid(FACTORS)}
    names = list(FACTORS)

    def average(levels: tuple[str, ...]) -> float:
        wanted = dict(zip(effect.factors, levels, strict=True))
        logs = [
            np.log(time)
            for cell, time in times.items()
            if all(cell[names.index(name)] == level for name, level in wanted.items())
        ]
        return float(np.exp(np.mean(logs)))

    if not effect.is_interaction:
        return average(effect.levels) / average(effect.references)
    (a, b), (c, d) = effect.levels, effect.references
    return average((a, b)) * average((c, d)) / (average((a, d)) * average((c, b)))


# --- effects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [None, 16])
def test_without_noise_every_effect_is_exact_in_the_grid_and_in_a_part_of_it(part) -> None:
    cells = full_grid(FACTORS) if part is None else balanced_part(FACTORS, part)
    samples = {cell: (true_time(cell, True),) * 8 for cell in cells}
    found = estimate(FACTORS, samples)
    assert len(found) == 5 + 9  # levels beyond the first; products of those of each pair
    for effect in found:
        assert effect.ratio == pytest.approx(expected(effect, True)), effect


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [24, 16])
def test_planted_effects_and_interactions_are_recovered(kind: str, part: int) -> None:
    found = estimate(FACTORS, measured(balanced_part(FACTORS, part), kind, part, rounds=80))
    by_name = {(effect.factors, effect.levels): effect for effect in found}
    assert by_name[("memory",), ("pinned",)].ratio == pytest.approx(0.447, rel=0.05)
    assert by_name[("memory",), ("pinned",)].verdict == FASTER
    assert by_name[("streams",), ("dual",)].verdict == FASTER
    assert by_name[("wait",), ("hybrid",)].verdict == FASTER
    # Two streams gain more with pinned memory than without.
    together = by_name[("streams", "memory"), ("dual", "pinned")]
    assert together.ratio == pytest.approx(0.8, rel=0.1)
    assert together.verdict == FASTER


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_as_often_as_they_say_and_nothing_is_found_that_is_not_there(kind) -> None:
    cells = full_grid(FACTORS)
    held, absent, wrong = [], 0, 0
    for seed in range(60):
        for effect in estimate(FACTORS, measured(cells, kind, 1000 + seed, together=False)):
            truth = expected(effect, False)
            held.append(effect.low <= truth <= effect.high)
            if truth == pytest.approx(1.0):
                absent += 1
                wrong += effect.verdict != CANNOT_TELL
    assert np.mean(held) >= 0.95 - 0.01  # a hundredth for the draw's own error
    assert absent > 300
    assert wrong / absent < 0.05


def test_a_stated_confidence_for_all_effects_together_holds_for_all() -> None:
    cells = full_grid(FACTORS)
    runs_with_a_false_verdict = 0
    for seed in range(60):
        samples = measured(cells, "skewed", 5000 + seed, together=False)
        nothing = {cell: tuple(np.array(s) / true_time(cell, False)) for cell, s in samples.items()}
        found = estimate(FACTORS, nothing, confidence=1 - 0.05 / 14)
        runs_with_a_false_verdict += any(effect.verdict != CANNOT_TELL for effect in found)
    assert runs_with_a_false_verdict <= 3  # 5 % of 60


def test_an_effect_reads_as_a_sentence_with_its_interval() -> None:
    samples = {cell: (true_time(cell, True),) * 8 for cell in full_grid(FACTORS)}
    texts = [str(effect) for effect in estimate(FACTORS, samples)]
    assert "wait: spin / block: 1 [1, 1], cannot tell" in texts
    assert "streams: dual / single × memory: pinned / pageable: 0.8 [0.8, 0.8], faster" in texts
    assert estimate(FACTORS, samples, min_effect=0.5)[0].verdict == CANNOT_TELL


# --- parts of the grid ------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [12, 16, 20])
def test_a_part_has_every_level_and_pair_of_levels_about_equally_often(cells: int) -> None:
    part = balanced_part(FACTORS, cells)
    assert len(set(part)) == cells
    for place, levels in enumerate(FACTORS.values()):
        counts = Counter(cell[place] for cell in part)
        assert max(counts.values()) - min(counts[level] for level in levels) <= 1
    for (a, first), (b, second) in combinations(enumerate(FACTORS.values()), 2):
        pairs = Counter((cell[a], cell[b]) for cell in part)
        times = [pairs[one, other] for one in first for other in second]
        assert max(times) - min(times) <= 2


def test_one_seed_gives_one_part() -> None:
    assert balanced_part(FACTORS, 16, seed=3) == balanced_part(FACTORS, 16, seed=3)
    assert balanced_part(FACTORS, 16, seed=3) != balanced_part(FACTORS, 16, seed=4)
    assert balanced_part(FACTORS, 16)[0] == balanced_part(dict(FACTORS), 16)[0]


def test_a_part_that_is_the_whole_is_the_grid() -> None:
    assert balanced_part(FACTORS, 24) == balanced_part(FACTORS, 100) == full_grid(FACTORS)
    assert len(set(full_grid(FACTORS))) == 24


def test_a_part_of_a_large_grid_is_found_quickly() -> None:
    factors = {**FACTORS, "step": ["0.5", "2", "10", "30"], "work": [str(i) for i in range(8)]}
    part = balanced_part(factors, 96)
    counts = Counter(cell[-1] for cell in part)
    assert set(counts.values()) == {12}


def test_too_small_a_part_is_refused_and_what_it_cannot_tell_is_named() -> None:
    with pytest.raises(DesignError, match=r"5 cells cannot tell 5 main effects.*at least 6 of"):
        balanced_part(FACTORS, 5)
    part = balanced_part(FACTORS, 8)
    samples = {cell: (true_time(cell, False),) * 8 for cell in part}
    with pytest.raises(NotEstimableError, match=r"8 cells cannot tell .* or estimate without int"):
        estimate(FACTORS, samples)
    found = estimate(FACTORS, samples, interactions=False)
    assert [effect.ratio for effect in found] == pytest.approx([0.8, 0.5, 1.0, 0.9, 1.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update({("dual", "pinned", "nap", "batched"): (1.0,) * 8}), "no combination"),
        (lambda s: s.update({("dual",): (1.0,) * 8}), "no combination of levels of streams, mem"),
        (lambda s: s.update({next(iter(s)): (1.0,) * 7}), "samples and others"),
        (lambda s: s.update({next(iter(s)): (0.0,) * 8}), "no time above zero"),
        (lambda s: s.clear(), "no cell was measured"),
    ],
)
def test_samples_that_do_not_fit_are_refused(change, message: str) -> None:
    samples = dict.fromkeys(full_grid(FACTORS), (1.0,) * 8)
    change(samples)
    with pytest.raises(DesignError, match=message):
        estimate(FACTORS, samples)


def test_too_few_rounds_and_factors_of_one_level_are_refused() -> None:
    with pytest.raises(SampleCountError, match="take at least 6"):
        estimate(FACTORS, dict.fromkeys(full_grid(FACTORS), (1.0,) * 5))
    with pytest.raises(DesignError, match="'wait' has fewer than two"):
        estimate({**FACTORS, "wait": ["spin"]}, {("a",): (1.0,)})


# --- the method as a whole --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stops", [False, True])
def test_equal_arms_are_told_apart_in_fewer_than_5_of_100_runs(kind: str, stops: bool) -> None:
    # With the stopping rule a run ends as soon as its interval is narrow: by luck, perhaps.
    plan = Plan(12, 96 if stops else 24, 0.04 if stops else 0.0, 1e9, warmup_pairs=0)
    wrong, lengths, runs = 0, set(), 300
    for seed in range(runs):
        machine = Machine(kind, 9000 + seed)
        samples = measure_pairs(machine.factor, machine.factor, plan)
        lengths.add(len(samples.arm))
        wrong += compare(samples).verdict != CANNOT_TELL
    assert wrong / runs < 0.05
    assert not stops or len(lengths) > 1  # the rule did end some runs early and others late


@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_of_a_tenth_is_found_mostly_and_never_the_wrong_way(kind: str) -> None:
    plan = Plan(24, 200, half_width=0.02, time_limit_s=1e9, warmup_pairs=0)
    verdicts = Counter()
    for seed in range(60):
        machine = Machine(kind, 100 + seed)
        samples = measure_pairs(lambda m=machine: 1.1 * m.factor(), machine.factor, plan)
        verdicts[compare(samples).verdict] += 1
    assert verdicts[SLOWER] >= 55
    assert verdicts[FASTER] == 0


def test_the_module_knows_no_device() -> None:
    assert not any(name.startswith("torch") for name in vars(effects))
