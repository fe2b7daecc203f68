"""The method, on data whose answer is known."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.measure import (
    CANNOT_TELL,
    FASTER,
    SLOWER,
    MeasureError,
    PairedSamples,
    Plan,
    SampleCountError,
    compare,
    measure_many,
    measure_pairs,
    median_interval,
    percentile,
    samples_for_percentile,
)

QUICK = Plan(min_pairs=6, max_pairs=48, half_width=0.0, time_limit_s=1e9, warmup_pairs=0)


@pytest.mark.parametrize("size", [6, 7, 12, 25, 60])
def test_the_interval_holds_the_median_as_often_as_it_says(size: int) -> None:
    # A skewed distribution with a heavy tail, as times have; its median is known.
    random = np.random.default_rng(size)
    draws = random.lognormal(0.0, 1.0, (4000, size))
    held = sum(low <= 1.0 <= high for low, high in map(median_interval, draws))
    assert held / 4000 >= 0.95 - 0.01  # a hundredth for the draw's own error


def test_fewer_samples_than_an_interval_needs_are_refused() -> None:
    assert median_interval(range(6)) == (0, 5)
    with pytest.raises(SampleCountError, match=r"5 samples have no 95% interval.*at least 6"):
        median_interval(range(5))


def test_a_percentile_that_so_few_samples_cannot_support_is_refused() -> None:
    assert 655 <= samples_for_percentile(99) <= 665
    assert samples_for_percentile(95) < samples_for_percentile(99)
    assert samples_for_percentile(5) == samples_for_percentile(95)
    assert percentile(range(1000), 99) == 989
    with pytest.raises(SampleCountError, match=r"99 needs 66\d samples; there are 600"):
        percentile(range(600), 99)
    with pytest.raises(MeasureError, match="not between 0 and 100"):
        percentile(range(600), 100)


def test_drift_cancels_in_the_ratios() -> None:
    # Everything gets 50 % slower while it is measured; the arm takes 0.9 of the baseline.
    ticks = count()

    def drifting(cost: float):
        return lambda: cost * (1 + 0.5 * next(ticks) / 96)

    samples = measure_pairs(drifting(0.9), drifting(1.0), QUICK)
    compared = compare(samples)
    assert compared.ratio == pytest.approx(0.9, rel=0.01)
    assert compared.verdict == FASTER
    assert max(samples.baseline) > 1.4 * min(samples.baseline)


def test_equal_arms_are_rarely_told_apart_also_with_the_stopping_rule() -> None:
    plan = Plan(min_pairs=6, max_pairs=96, half_width=0.03, time_limit_s=1e9, warmup_pairs=0)
    random = np.random.default_rng(7)
    verdicts = []
    for _ in range(600):
        draw = lambda: float(random.lognormal(0.0, 0.1))  # noqa: E731
        verdicts.append(compare(measure_pairs(draw, draw, plan)).verdict)
    assert sum(verdict != CANNOT_TELL for verdict in verdicts) / 600 < 0.05 + 0.015


@pytest.mark.parametrize(("factor", "verdict"), [(0.8, FASTER), (1.25, SLOWER)])
def test_a_clear_difference_is_told(factor: float, verdict: str) -> None:
    random = np.random.default_rng(1)
    baseline = random.lognormal(0.0, 0.05, 40)
    arm = factor * random.lognormal(0.0, 0.05, 40)
    compared = compare(PairedSamples(tuple(arm), tuple(baseline)))
    assert compared.verdict == verdict
    assert compared.low < compared.ratio < compared.high
    assert compare(PairedSamples(tuple(arm), tuple(baseline)), min_effect=0.5).verdict == (
        CANNOT_TELL
    )


def test_each_arm_is_first_and_last_equally_often() -> None:
    order: list[str] = []
    names = ["a", "b", "c"]
    plan = Plan(min_pairs=12, max_pairs=12, half_width=0.0, time_limit_s=1e9, warmup_pairs=0)
    measure_many({n: lambda n=n: order.append(n) or 1.0 for n in names}, plan)
    rounds = [order[i : i + 3] for i in range(0, 36, 3)]
    assert all(sorted(one) == names for one in rounds)
    for name in names:
        assert sum(one[0] == name for one in rounds) == 4
        assert sum(one[-1] == name for one in rounds) == 4


def test_samples_of_one_index_are_of_one_round_and_warm_up_does_not_count() -> None:
    rounds = count()
    state = {"round": -1, "calls": 0}

    def arm() -> float:
        if state["calls"] % 2 == 0:
            state["round"] = next(rounds)
        state["calls"] += 1
        return float(state["round"] + 1)

    plan = Plan(min_pairs=6, max_pairs=6, half_width=0.0, time_limit_s=1e9, warmup_pairs=3)
    samples = measure_many({"a": arm, "b": arm}, plan)
    assert samples["a"] == samples["b"] == (4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


def test_it_stops_when_the_interval_is_narrow_or_the_time_is_up() -> None:
    narrow = Plan(min_pairs=6, max_pairs=1000, half_width=0.01, time_limit_s=1e9, warmup_pairs=0)
    assert len(measure_pairs(lambda: 1.0, lambda: 1.0, narrow).arm) == 6
    clock = count()
    hasty = Plan(min_pairs=6, max_pairs=1000, half_width=0.0, time_limit_s=3, warmup_pairs=0)
    random = np.random.default_rng(0)
    noisy = lambda: float(random.lognormal())  # noqa: E731
    assert len(measure_pairs(noisy, noisy, hasty, clock=lambda: next(clock)).arm) == 8


def test_samples_that_make_no_pairs_are_refused() -> None:
    with pytest.raises(MeasureError, match="2 samples of the arm and 1 of the baseline"):
        PairedSamples((1.0, 2.0), (1.0,))
    with pytest.raises(MeasureError, match="not finite"):
        PairedSamples((float("nan"),), (1.0,))
    with pytest.raises(MeasureError, match="above zero"):
        compare(PairedSamples((1.0,) * 6, (0.0,) * 6))
    with pytest.raises(MeasureError, match="min_pairs is 5"):
        Plan(min_pairs=5, max_pairs=9, half_width=0.1, time_limit_s=1, warmup_pairs=0)


def test_the_module_needs_no_torch() -> None:
    assert not any(name.startswith("torch") for name in vars(measure))
