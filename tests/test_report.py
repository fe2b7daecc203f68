"""The report, on result files that asv's own classes wrote."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asv.results import Results

from benchmarks import bench_streams, report, results
from benchmarks.results import ResultsError

STEP, EXPOSED = "bench_streams.StepTime", "bench_streams.ExposedTime"
WORKLOADS = ["decode R=256 K=20", "logits 256 x 128256 fp32"]
COMPARISON = "two streams / one stream"
BASELINE = [2.0e-3 + 1e-6 * i for i in range(8)]


def add(saved: Results, name: str, arms: list[Any], bound: float | None = None) -> None:
    """Put a class's arm and baseline samples into a results object, as a run would."""
    params = [[repr(w) for w in WORKLOADS], [repr(COMPARISON)]]
    for method, samples in (
        ("track_arm", arms),
        ("track_baseline", [None if arm is None else BASELINE for arm in arms]),
    ):
        key = f"{name}.{method}"
        saved._results[key] = [None if s is None else sorted(s)[len(s) // 2] for s in samples]
        saved._samples[key] = samples
        saved._benchmark_params[key] = params
        saved._stats[key] = [None] * len(samples)
    if bound is not None:
        key = f"{name}.track_bound"
        saved._results[key] = [bound] * len(WORKLOADS)
        saved._samples[key] = None
        saved._benchmark_params[key] = params
        saved._stats[key] = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for machine in ("box-a", "box-b"):
        (tmp_path / machine).mkdir()
        (tmp_path / machine / "machine.json").write_text(
            json.dumps({"machine": machine, "version": 1})
        )
    return tmp_path


def save(
    folder: Path, machine: str = "box-a", commit: str = "a" * 40, date: int = 1, factor: float = 0.5
) -> Path:
    saved = Results({"machine": machine}, {}, commit, date, "3.12", "env", {})
    add(saved, STEP, [[factor * b for b in BASELINE], None], bound=0.4)
    add(saved, f"{STEP}Modelled", [[0.9 * b for b in BASELINE]] * 2)
    add(saved, "bench_gone.Old", [[1.0] * 8] * 2)
    saved.save(str(folder))
    return folder / machine / f"{commit[:8]}-env.json"


def run(folder: Path, *arguments: str) -> int:
    return report.main(["--results", str(folder), *arguments])


def test_ratios_and_verdicts_are_made_pair_by_pair_from_the_samples(folder, capsys) -> None:
    save(folder)
    assert run(folder, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(list(row) == list(report.JSON_KEYS) for row in rows)
    measured = [row for row in rows if not row["modelled"]]
    assert len(measured) == 1  # what was not measured is not shown, nor is what is gone
    (row,) = measured
    assert row["workload"] == WORKLOADS[0]
    assert (row["arm"], row["baseline"]) == ("two streams", "one stream")
    assert row["ratio"] == pytest.approx(0.5)
    assert row["low"] == pytest.approx(0.5)
    assert row["verdict"] == "faster"
    assert row["arm_value"] == pytest.approx(row["baseline_value"] / 2)
    assert (row["question"], row["metric"], row["unit"]) == (1, "step time", "seconds")
    assert len([row for row in rows if row["modelled"]]) == 2


def test_a_change_within_the_least_effect_of_its_benchmark_is_no_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, factor=0.95)

    def verdict() -> str:
        return next(gain for gain in results.read(folder) if not gain.modelled).verdict

    assert verdict() == "faster"
    monkeypatch.setattr(bench_streams.StepTime, "least_effect", 0.1)
    assert verdict() == "cannot tell"


def test_a_difference_that_is_not_above_zero_has_no_ratio_but_a_verdict(folder, capsys) -> None:
    saved = Results({"machine": "box-a"}, {}, "b" * 40, 1, "3.12", "env", {})
    add(saved, EXPOSED, [[b - 1e-3 for b in BASELINE], None])
    key = f"{EXPOSED}.track_baseline"
    saved._samples[key] = [[-1e-9, *BASELINE[1:]], None]
    saved.save(str(folder))
    assert run(folder, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["ratio"] is row["low"] is row["high"] is None
    assert row["verdict"] == "cannot tell"
    assert run(folder) == 0
    assert " – " in capsys.readouterr().out


def test_the_newest_commit_of_each_machine_unless_told_otherwise(folder, capsys) -> None:
    save(folder, "box-a", "a" * 40, date=1, factor=0.5)
    save(folder, "box-a", "b" * 40, date=2, factor=0.7)
    save(folder, "box-b", "c" * 40, date=1, factor=0.9)

    def measured(*arguments: str) -> list[tuple[str, float]]:
        assert run(folder, "--json", *arguments) == 0
        rows = json.loads(capsys.readouterr().out)
        return [(r["commit"][0], round(r["ratio"], 2)) for r in rows if not r["modelled"]]

    assert measured() == [("b", 0.7), ("c", 0.9)]
    assert measured("--machine", "box-b") == [("c", 0.9)]
    assert measured("--commit", "aaaa") == [("a", 0.5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--machine", "box-c"), "no machine 'box-c'.*there are box-a, box-b"),
        (("--commit", "ffff"), "no results of commit 'ffff'"),
    ],
)
def test_what_is_not_there_is_named(folder, capsys, arguments, message) -> None:
    save(folder)
    assert run(folder, *arguments) == 1
    import re

    assert re.search(message, capsys.readouterr().err)


def test_an_empty_folder_says_what_to_run(tmp_path, capsys) -> None:
    assert run(tmp_path) == 1
    assert "run `make bench` first" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "foreign", "version", "list"])
def test_a_damaged_file_is_refused_by_name(folder, capsys, damage: str) -> None:
    path = save(folder)
    whole = path.read_text()
    data = json.loads(whole)
    path.write_text(
        {
            "cut": whole[: len(whole) // 2],
            "foreign": json.dumps({"coffee": 1}),
            "version": json.dumps({**data, "version": 99}),
            "list": "[1, 2]",
        }[damage]
    )
    with pytest.raises(ResultsError, match=path.name):
        results.read(folder)
    assert run(folder) == 1
    assert "measure that commit again" in capsys.readouterr().err


def test_the_table_keeps_measured_and_modelled_apart(folder, capsys) -> None:
    save(folder)
    assert run(folder) == 0
    text = capsys.readouterr().out
    measured, modelled = text.split("MODELLED in virtual time")
    assert "box-a, commit aaaaaaaa, measured" in measured
    assert "1. One stream or two?" in measured
    assert "1.002 ms" in measured
    assert "0.5 [0.5, 0.5]" in measured
    assert "0.4 " in measured
    assert "0.9 [0.9, 0.9]" in modelled


def test_the_readme_gets_measured_rows_and_is_checked(folder, tmp_path, capsys) -> None:
    save(folder)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.README_BEGIN}\nold\n{report.README_END}\nafter\n")
    assert run(folder, "--readme", str(readme), "--check") == 2
    assert run(folder, "--readme", str(readme)) == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "Measured on `box-a` at commit `aaaaaaaa`" in text
    assert "| step time | decode R=256 K=20 | two streams | 1.002 ms |" in text
    assert "0.9 [" not in text
    assert run(folder, "--readme", str(readme), "--check") == 0
    readme.write_text("no markers")
    assert run(folder, "--readme", str(readme)) == 1
    assert "has no <!-- gains -->" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5, "seconds", "2.5 s"),
        (2.009e-3, "seconds", "2.009 ms"),
        (-1.5e-5, "seconds", "-15 µs"),
        (4e-9, "seconds", "4 ns"),
        (0.0, "seconds", "0 ns"),
        (0.02345, "share", "0.0234"),
    ],
)
def test_values_have_a_unit_of_their_size(value: float, unit: str, text: str) -> None:
    assert report.human(value, unit) == text


def test_texts_of_a_results_file_mean_nothing_to_markdown(folder) -> None:
    save(folder)
    gain = next(gain for gain in results.read(folder) if not gain.modelled)
    hostile = "![a](https://x.y) | `b` [c]"
    plain = r"\!\[a\](https://x.y) \| \`b\` \[c\]"
    for question in (1, 4):
        spoilt = replace(gain, question=question, workload=hostile, arm=hostile, baseline=hostile)
        text = report.as_markdown([spoilt])
        assert plain in text
        assert hostile not in text
        table = [line for line in text.splitlines() if line.startswith("|")]
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in table]
        assert len(table) == 3
        assert len(set(bars)) == 1  # as many cells as the header has
    assert "0.5 [0.5, 0.5]" in report.as_markdown([gain])  # an interval stays as it is
