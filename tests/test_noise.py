"""What the noise between runs says of each metric, on runs whose noise is known."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from asv import util
from asv.results import Results

from benchmarks import noise, results
from benchmarks.noise import ABSOLUTE, DROP, RATIO, NoiseError
from benchmarks.results import Gain

ROOT = Path(__file__).resolve().parent.parent

#: Between-run noise of arm and of what arm and baseline share, by workload.
NOISES = {"steady": (0.004, 0.0), "drifting": (0.004, 0.2), "wild": (0.45, 0.0)}


def gain(workload: str, arm: float, baseline: float, modelled: bool = False) -> Gain:
    return Gain(
        question=3,
        workload=workload,
        arm="hybrid",
        baseline="block",
        metric="wake-up latency",
        unit="seconds",
        arm_value=arm,
        baseline_value=baseline,
        ratio=arm / baseline if baseline > 0 else None,
        low=None,
        high=None,
        bound=None,
        verdict="cannot tell",
        pairs=12,
        machine="box",
        commit="c" * 40,
        modelled=modelled,
        benchmark="bench_waits.WakeUpModelled" if modelled else "bench_waits.WakeUp",
    )


def runs_of(count: int = 8) -> list[list[Gain]]:
    random = np.random.default_rng(3)
    runs = []
    for _ in range(count):
        run = [gain("steady", 1.0, 1.0, modelled=True)]
        for workload, (own, shared) in NOISES.items():
            common = 1 + shared * random.standard_normal()
            arm = common * (1 + own * random.standard_normal())
            run.append(gain(workload, arm, common))
        runs.append(run)
    return runs


def by_workload(found: list[noise.Noise]) -> dict[str, noise.Noise]:
    return {one.workload: one for one in found if not one.modelled}


def test_steady_metrics_are_tracked_by_value_drifting_ones_as_ratios_and_wild_ones_not() -> None:
    found = by_workload(noise.analyse([runs_of()]))
    assert {name: one.decision for name, one in found.items()} == {
        "steady": ABSOLUTE,
        "drifting": RATIO,
        "wild": DROP,
    }
    assert found["wild"].threshold is None
    assert found["drifting"].arm > 0.1 > 0.02 > found["drifting"].ratio


def test_the_threshold_follows_from_the_spread_and_is_one_of_few() -> None:
    assert noise.decide(0.0, math.nan) == (ABSOLUTE, 0.1)
    assert noise.decide(0.02, math.nan) == (ABSOLUTE, 0.1)
    assert noise.decide(0.021, 0.02) == (RATIO, 0.1)
    assert noise.decide(0.021, 0.05) == (RATIO, 0.2)
    assert noise.decide(0.021, 0.051) == (RATIO, 0.5)
    assert noise.decide(0.021, 0.25) == (RATIO, 1.0)
    assert noise.decide(0.021, 0.26) == (DROP, None)
    assert noise.decide(0.021, math.nan) == (DROP, None)


def test_a_spread_sees_a_lone_jump_and_has_no_share_of_what_is_not_above_zero() -> None:
    of_one_median = math.sqrt(8 / 7)
    assert noise.spread([[1.0] * 7 + [1.4]]) == pytest.approx(0.1 * of_one_median)
    steady = [1.0, 1.01, 0.99, 1.02, 0.98]
    assert noise.spread([steady]) == pytest.approx(0.0148 * math.sqrt(5 / 4), abs=1e-4)
    assert math.isnan(noise.spread([[-1.0, 0.0, 1.0]]))


def test_runs_of_several_codes_are_compared_with_their_own() -> None:
    random = np.random.default_rng(1)
    one, slower = random.normal(1.0, 0.01, 2000), random.normal(1.5, 0.015, 2000)
    groups = [one[at : at + 2].tolist() for at in range(0, 2000, 2)]
    groups += [slower[at : at + 2].tolist() for at in range(0, 2000, 2)]
    # Two runs lie on both sides of their median, so half of what they differ by is hidden.
    hidden = noise.MAD_TO_DEVIATION * np.median(
        [abs(value / np.median(group) - 1) for group in groups for value in group]
    )
    assert hidden < 0.008
    assert noise.spread(groups) >= hidden * math.sqrt(2)
    assert noise.spread([one.tolist(), slower.tolist()]) < 0.02 < noise.spread([[*one, *slower]])


def test_the_configuration_tracks_each_metric_in_one_way_only() -> None:
    found = noise.configuration(noise.analyse([runs_of()]))
    thresholds = found["regressions_thresholds"]
    untracked = found["regressions_first_commits"]
    assert set(untracked.values()) == {None}

    def is_tracked(entry: str) -> bool:
        assert any(re.match(pattern, entry) for pattern in thresholds) or any(
            re.match(pattern, entry) for pattern in untracked
        )
        return not any(re.match(pattern, entry) for pattern in untracked)

    def tracked(workload: str, name: str = "WakeUp") -> list[str]:
        parameters = f"('{workload}', 'hybrid / block')"
        methods = ("track_arm", "track_ratio", "track_baseline")
        return [m for m in methods if is_tracked(f"bench_waits.{name}.{m}{parameters}")]

    assert tracked("steady") == ["track_arm"]
    assert tracked("drifting") == ["track_ratio"]
    assert tracked("wild") == tracked("unknown") == []
    assert tracked("steady", "WakeUpModelled") == ["track_arm"]
    json.dumps(found, allow_nan=False)


def test_a_row_gets_its_own_threshold_and_an_unknown_one_its_kinds_largest() -> None:
    random = np.random.default_rng(5)
    spreads = {"quiet": 0.01, "noisy": 0.04, "noisier": 0.08}
    runs = [
        [
            gain(name, drift * (1 + own * random.standard_normal()), drift)
            for name, own in spreads.items()
        ]
        for drift in 1 + 0.1 * random.standard_normal(40)
    ]
    thresholds = noise.configuration(noise.analyse([runs]))["regressions_thresholds"]

    def largest(workload: str, name: str = "WakeUp") -> float | None:
        entry = f"bench_waits.{name}.track_ratio('{workload}', 'hybrid / block')"
        return max(value for pattern, value in thresholds.items() if re.match(pattern, entry))

    found = {name: largest(name) for name in (*spreads, "unknown")}
    assert found == {"quiet": 0.1, "noisy": 0.2, "noisier": 0.5, "unknown": 0.5}
    assert largest("noisier", "Other") == 0.1


def test_runs_that_say_nothing_of_noise_are_refused() -> None:
    runs = runs_of()
    with pytest.raises(NoiseError, match="4 runs say nothing"):
        noise.analyse([runs[:4]])
    with pytest.raises(NoiseError, match=r"3 \+ 2 runs say nothing"):
        noise.analyse([runs[:3], runs[3:5]])
    with pytest.raises(NoiseError, match=r"7 \+ 1 runs say nothing"):
        noise.analyse([runs[:7], runs[7:]])
    with pytest.raises(NoiseError, match="the same run is given twice"):
        noise.analyse([[*runs, runs[0]]])
    modelled = [[one for one in run if one.modelled] for run in runs]
    assert noise.analyse([modelled])[0].arm == 0  # virtual time repeats itself
    assert len(noise.analyse([runs[:3], runs[3:6]])) == 4


def test_a_metric_that_a_run_lacks_has_no_threshold() -> None:
    runs = runs_of()
    runs[3] = [one for one in runs[3] if one.workload != "drifting"]
    assert "drifting" not in by_workload(noise.analyse([runs]))


def save(folder: Path, commit: str, factor: float) -> None:
    machine = folder / "box"
    machine.mkdir(parents=True, exist_ok=True)
    (machine / "machine.json").write_text(json.dumps({"machine": "box", "version": 1}))
    saved = Results({"machine": "box"}, {}, commit, 1, "3.12", "env", {})
    for method, value in (("track_arm", factor), ("track_baseline", 1.0)):
        key = f"bench_waits.WakeUp.{method}"
        saved._results[key] = [value]
        saved._samples[key] = [[value + 1e-6 * index for index in range(8)]]
        saved._benchmark_params[key] = [["'1 ms'"], ["'hybrid / block'"]]
        saved._stats[key] = [None]
    saved.save(str(folder))


def test_runs_are_read_from_folders_or_from_commits_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commits = [f"{number}" * 40 for number in range(5)]
    for number, commit in enumerate(commits):
        save(tmp_path / "together", commit, 1 + 0.001 * number)
        save(tmp_path / f"alone-{number}", "c" * 40, 1 + 0.001 * number)
    output = tmp_path / "noise.json"
    together = [str(tmp_path / "together"), "--commits", *commits, "--json", str(output)]
    assert noise.main(together) == 0
    assert json.loads(output.read_text())["rows"][0]["decision"] == ABSOLUTE
    first = capsys.readouterr().out
    assert noise.main([str(tmp_path / f"alone-{number}") for number in range(5)]) == 0
    assert capsys.readouterr().out == first
    assert "tracked by value: 1, as a ratio: 0, not at all: 0" in first
    assert noise.main([*together, "--bench", r"bench_waits\.Wake"]) == 0
    assert capsys.readouterr().out == first
    assert noise.main([*together, "--bench", "bench_streams"]) == 1
    assert "no such benchmark" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        noise.main([*together, "--bench", "("])
    assert "'(' is no regular expression" in capsys.readouterr().err
    assert noise.main([*together[:-1], str(tmp_path / "none" / "noise.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    save(tmp_path / "together", "01" * 20, 1.0)
    assert noise.main([*together[:2], "0", *commits[1:]]) == 1
    assert "may be any of 000" in capsys.readouterr().err
    assert noise.main([str(tmp_path / "alone-0")]) == 1
    assert "1 runs say nothing" in capsys.readouterr().err


def test_commits_of_one_second_are_not_read_as_one_run(tmp_path: Path) -> None:
    for commit in ("a" * 40, "b" * 40):
        save(tmp_path, commit, 1.0)
    assert [gain.commit for gain in results.read(tmp_path)] == ["b" * 40]


#: What asv.conf.json has by hand: what has never run often enough to know its noise, and a row
#: whose baseline became faster.
BY_HAND = {
    r"bench_(neighbours|contention|keeping|factorial)\.[A-Za-z0-9]+(?<!Modelled)\.": None,
    r"bench_library\.StepTiming\.track_ratio\('one step', 'outside a block / collecting'\)": (
        "dd65ed98"
    ),
}


def test_asvs_configuration_is_what_the_committed_runs_say() -> None:
    files = sorted((ROOT / "results").glob("*/noise/*.json"))
    assert files
    expected: dict[str, dict] = {
        "regressions_thresholds": {},
        "regressions_first_commits": dict(BY_HAND),
    }
    for path in files:
        for key, values in json.loads(path.read_text())["configuration"].items():
            expected[key].update(values)
    configured = util.load_json(str(ROOT / "asv.conf.json"), js_comments=True)
    assert {key: configured[key] for key in expected} == expected
