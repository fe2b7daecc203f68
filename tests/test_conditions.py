"""What makes a measurement be discarded, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.clocks import judge_clocks, share_at_power_limit
from benchmarks.conditions import (
    ATTEMPTS,
    MIN_JUDGED,
    Judgement,
    judge_baseline,
    judge_rounds,
    measure_steadily,
)
from benchmarks.dependence import inflation
from benchmarks.devices import VirtualDevice
from benchmarks.grids import plans
from benchmarks.measure import dependent_interval, median_interval
from benchmarks.runner import driver, mode, progress
from benchmarks.runner.facts import parse_nvidia_smi, throttle_counters

RESULTS = Path(__file__).resolve().parent.parent / "results"

CALM = {"clock_reasons": "clocks_event_reason_gpu_idle", "clock_sm": "345 MHz"}
LOADED = {"clock_reasons": "", "clock_sm": "1980 MHz"}


def spells(count: int, persistence: float, seed: int = 0) -> np.ndarray:
    """Standard normal values, each of which remembers `persistence` of the one before."""
    random = np.random.default_rng(seed)
    steps = random.standard_normal(count) * np.sqrt(1 - persistence**2)
    values = np.empty(count)
    values[0] = random.standard_normal()
    for index in range(1, count):
        values[index] = persistence * values[index - 1] + steps[index]
    return values


# --- throttling -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    ["hw_thermal_slowdown", "sw_thermal_slowdown", "sw_power_cap", "hw_power_brake_slowdown"],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gpu_that_is_held_back_is_discarded_and_the_reason_named(reason, when) -> None:
    held = {"clock_reasons": f"clocks_event_reason_{reason}"}
    judged = judge_clocks(held, CALM) if when == "before" else judge_clocks(CALM, held)
    assert judged.discard
    assert f"held back {when} the run (clocks_event_reason_{reason})" in str(judged)


def test_an_idle_gpu_or_one_that_says_nothing_is_not_throttled() -> None:
    for facts in (CALM, LOADED, {}):
        assert not judge_clocks(facts, facts).discard
    assert not judge_clocks(LOADED, CALM).discard  # the clock of an idle GPU means nothing
    assert str(judge_clocks({}, {})) == "kept"


def test_the_recorded_facts_of_the_committed_results_are_calm() -> None:
    for path in RESULTS.glob("*/facts-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for before, after in zip(lines[::2], lines[1::2], strict=True):
            assert (before["when"], after["when"]) == ("before", "after")
            assert not judge_clocks(before, after).discard


def test_throttling_that_is_over_when_the_run_ends_is_seen_in_the_counters() -> None:
    before = {**CALM, "clock_counters": "sw_thermal_slowdown=5000000 sync_boost=0"}
    after = {**CALM, "clock_counters": "sw_thermal_slowdown=7000000 sync_boost=90000000"}
    judged = judge_clocks(before, {**after, "seconds": "100"})
    assert judged.reasons == ("the GPU was held back for 2% of the run (sw_thermal_slowdown)",)
    assert not judge_clocks(before, {**after, "seconds": "1000"}).discard
    assert not judge_clocks(before, after).discard  # shares need to know of how long


def test_a_load_that_draws_all_the_power_it_may_is_noted_and_not_discarded() -> None:
    before = {**CALM, "clock_counters": "sw_power_cap=1000000"}
    after = {**CALM, "clock_counters": "sw_power_cap=12000000", "seconds": "100"}
    assert not judge_clocks(before, after).discard
    assert share_at_power_limit(before, after) == pytest.approx(0.11)
    assert share_at_power_limit(before, {**after, "seconds": "0"}) == 0


def test_counters_are_read_where_the_driver_has_them() -> None:
    xml = """<nvidia_smi_log><gpu><clocks_event_reasons_counters>
      <clocks_event_reasons_counters_sw_power_cap>17 us</clocks_event_reasons_counters_sw_power_cap>
      <clocks_event_reasons_counters_sync_boost>3 us</clocks_event_reasons_counters_sync_boost>
      <clocks_event_reasons_counters_hw_thermal_slowdown>N/A</clocks_event_reasons_counters_hw_thermal_slowdown>
    </clocks_event_reasons_counters></gpu></nvidia_smi_log>"""
    facts = parse_nvidia_smi(xml)
    assert facts == {"clock_counters": "sw_power_cap=17 sync_boost=3"}
    assert throttle_counters(facts) == {"sw_power_cap": 17}
    assert throttle_counters({}) == {}


def test_a_clock_that_falls_under_load_is_discarded() -> None:
    judged = judge_clocks(LOADED, {**LOADED, "clock_sm": "1410 MHz"})
    assert "fell from 1980 to 1410 MHz" in str(judged)
    assert not judge_clocks(LOADED, {**LOADED, "clock_sm": "1935 MHz"}).discard


# --- noise ------------------------------------------------------------------------------------


def test_a_quiet_machine_is_kept_and_so_is_a_skewed_one() -> None:
    random = np.random.default_rng(0)
    for count in (12, 24, 66, 200):
        for _ in range(100):
            assert not judge_baseline(random.lognormal(0, 0.3, count)).discard
            assert not judge_baseline(1 + random.exponential(0.2, count)).discard


def test_noise_is_discarded() -> None:
    random = np.random.default_rng(1)
    judged = judge_baseline(random.lognormal(0, 1.5, 100))
    assert judged.discard
    assert "the machine is noisy: the middle half of the baseline spans" in str(judged)


def test_a_few_wild_samples_are_no_noise() -> None:
    samples = np.ones(100)
    samples[::6] = 50.0
    assert not judge_baseline(samples).discard


@pytest.mark.parametrize("shape", ["slope", "step"])
def test_a_machine_that_became_another_one_is_discarded(shape: str) -> None:
    random = np.random.default_rng(2)
    place = np.arange(90) / 90
    trend = 1 + 1.5 * (place if shape == "slope" else place > 0.5)
    judged = judge_baseline(trend * random.lognormal(0, 0.05, 90))
    assert "the baseline drifted by +" in str(judged)
    mild = 1 + 0.3 * (place if shape == "slope" else place > 0.5)
    assert not judge_baseline(mild * random.lognormal(0, 0.05, 90)).discard


def test_what_cannot_be_judged_is_kept() -> None:
    assert not judge_baseline([1.0, 100.0] * (MIN_JUDGED // 2 - 1)).discard
    assert not judge_baseline([-1.0, *[1.0, 100.0] * 20]).discard
    assert not judge_rounds([1.0] * 5).discard


def test_rounds_in_spells_so_long_that_no_interval_would_hold_are_discarded() -> None:
    assert not judge_rounds(spells(200, 0.3)).discard
    judged = judge_rounds(np.repeat(spells(4, 0.0), 25))
    assert judged.discard
    assert "slow and fast spells: 100 rounds say as much as" in str(judged)


# --- dependence -------------------------------------------------------------------------------


def test_independent_samples_are_worth_what_they_are() -> None:
    random = np.random.default_rng(3)
    found = [inflation(random.lognormal(0, 1, 100)) for _ in range(300)]
    assert np.median(found) < 1.3
    assert inflation([1.0] * 20) == 1.0
    assert inflation([1.0, 2.0] * 10) == 1.0  # alternating is not rewarded


@pytest.mark.parametrize("persistence", [0.3, 0.6, 0.8])
def test_dependent_samples_are_worth_as_few_as_theory_says(persistence: float) -> None:
    found = [inflation(spells(400, persistence, seed)) for seed in range(60)]
    # Signs of a Gaussian series correlate as 2/pi arcsin(rho).
    lags = persistence ** np.arange(1, 200)
    expected = 1 + 2 * np.sum(2 / np.pi * np.arcsin(lags))
    assert np.median(found) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    ("count", "persistence", "least"),
    [
        (24, 0.0, 0.95),
        (200, 0.0, 0.95),
        (24, 0.3, 0.93),
        (66, 0.3, 0.93),
        (200, 0.6, 0.91),
    ],
)
@pytest.mark.parametrize("skew", [False, True])
def test_intervals_hold_the_median_also_where_rounds_depend_on_each_other(
    count: int, persistence: float, least: float, skew: bool
) -> None:
    series = [spells(count, persistence, seed) for seed in range(700)]
    held = 0
    for values in series:
        low, high = dependent_interval(list(np.exp(values) if skew else values))
        held += low <= (1.0 if skew else 0.0) <= high
    assert held / len(series) >= least - 0.01  # a hundredth for the draw's own error


def test_the_interval_of_independent_samples_pays_little_for_that() -> None:
    random = np.random.default_rng(5)
    widths = []
    for _ in range(300):
        values = list(random.standard_normal(100))
        (low, high), (plain_low, plain_high) = dependent_interval(values), median_interval(values)
        assert low <= plain_low
        assert plain_high <= high
        widths.append((high - low) / (plain_high - plain_low))
    assert np.mean(widths) < 1.15


# --- discard and say so -----------------------------------------------------------------------


def test_a_discarded_measurement_is_repeated_and_each_discard_is_said() -> None:
    results, said = iter([1, 2, 3]), []

    def judge(value: int) -> Judgement:
        return Judgement() if value == 3 else Judgement((f"{value} is noise",))

    assert measure_steadily(lambda: next(results), judge, said.append) == 3
    assert said == [
        "to be discarded: 1 is noise (attempt 1 of 3)",
        "to be discarded: 2 is noise (attempt 2 of 3)",
    ]


def test_noise_that_stays_gives_nothing_rather_than_something_wrong() -> None:
    said: list[str] = []
    noise = Judgement(("noise",))
    assert measure_steadily(lambda: 1, lambda _: noise + noise, said.append) is None
    assert len(said) == ATTEMPTS
    assert "noise; noise" in said[0]


class RealDevice(VirtualDevice):
    """A virtual device that says it is none, so that what it measures is judged."""

    modelled = False


def cell_of(times) -> plans.Cell:
    values = iter(times)
    arms = {"baseline": lambda: next(values), "arm": lambda: 1.0}
    return plans.Cell("step time", "decode", arms, lambda samples: [])


def test_a_grid_measures_a_noisy_cell_again_and_gives_it_up_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv(mode.VARIABLE, "quick")
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress"))
    quiet, noise = [1.0] * 200, list(np.random.default_rng(0).lognormal(0, 2, 1000))
    assert plans.measure_cell(RealDevice(), cell_of([*noise[:26], *quiet])) is not None
    assert plans.measure_cell(RealDevice(), cell_of(noise)) is None
    lines = (tmp_path / "progress").read_text().splitlines()
    assert len(lines) == 1 + ATTEMPTS
    assert lines[0].startswith("step time, decode: to be discarded: the machine is noisy")
    # What the virtual device computes is not judged.
    assert plans.measure_cell(VirtualDevice(), cell_of(noise)) is not None


def test_slow_spells_discard_a_cell_only_where_half_of_its_arms_have_them() -> None:
    rounds = 24
    spells = tuple(1.0 + (index >= rounds // 2) for index in range(rounds))
    mixed = tuple(1.0 + index % 2 for index in range(rounds))

    def judged(with_spells: int, arms: int) -> bool:
        others = {str(arm): spells if arm < with_spells else mixed for arm in range(arms)}
        return plans.judge({"baseline": (1.0,) * rounds, **others}).discard

    assert judged(1, 1)
    assert judged(1, 2)
    assert judged(12, 23)
    assert not judged(11, 23)
    assert not judged(0, 23)


@pytest.mark.parametrize(
    ("name", "is_whole"), [("smoke", False), ("quick", False), ("full", True), ("nightly", True)]
)
def test_a_cell_has_its_own_plan_where_all_is_measured_on_a_gpu(monkeypatch, name, is_whole):
    monkeypatch.setenv(mode.VARIABLE, name)
    own = plans.Plan(6, 24, 0.01, 1.0, 0)
    cell = plans.Cell("step time", "decode", {}, lambda _: [], is_batch=True, whole_plan=own)
    assert cell.plan_on(RealDevice()) is (own if is_whole else plans.BATCH_PLAN)
    assert cell.plan_on(VirtualDevice()) is plans.BATCH_PLAN


@pytest.mark.parametrize("held", [False, True])
def test_a_run_of_a_gpu_that_was_held_back_says_so(tmp_path, monkeypatch, capsys, held) -> None:
    after = {"clock_reasons": "clocks_event_reason_hw_thermal_slowdown"} if held else CALM
    monkeypatch.setattr(driver.machine, "register", lambda fields: None)
    monkeypatch.setattr(driver.facts, "collect", lambda: after)
    monkeypatch.setattr(driver, "run_module", lambda arguments, variables: 0)
    monkeypatch.setattr(driver, "PROJECT", tmp_path)
    repository = SimpleNamespace(head="c" * 40)
    assert driver.run(driver.Plan("box", "quick", pages=False), CALM, repository) == 0
    said = "measure again; these results are to be discarded: the GPU was held back after the run"
    assert (said in capsys.readouterr().out) == held
    written = (tmp_path / "results" / "box" / "facts-cccccccc.jsonl").read_text().splitlines()
    assert [json.loads(line)["when"] for line in written] == ["before", "after"]


def test_the_facts_of_a_run_of_some_benchmarks_are_added_to_those_that_are_there(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(driver.machine, "register", lambda fields: None)
    monkeypatch.setattr(driver.facts, "collect", lambda: CALM)
    monkeypatch.setattr(driver, "run_module", lambda arguments, variables: 0)
    monkeypatch.setattr(driver, "PROJECT", tmp_path)
    path = tmp_path / "results" / "box" / "facts-cccccccc.jsonl"
    for arguments, lines in (((), 2), (("--bench", "x"), 4), (("-b", "x"), 6), ((), 2)):
        plan = driver.Plan("box", "quick", pages=False, asv_arguments=arguments)
        assert driver.run(plan, CALM, SimpleNamespace(head="c" * 40)) == 0
        assert len(path.read_text().splitlines()) == lines
