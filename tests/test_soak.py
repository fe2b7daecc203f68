"""The soak finds what it is there to find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asyncout import DEFAULT, AsyncOutput, CopyPolicy
from benchmarks import devices, soak
from benchmarks.soak import Soak, Summary, all_policies

STEPS = 150


def run(policies: list[CopyPolicy], steps: int = STEPS) -> Summary:
    summary = Summary("virtual", "none", seed=3)
    Soak(devices.virtual_device(), summary).run(steps, policies)
    return summary


def test_a_good_run_says_so_and_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    policies = all_policies()
    assert soak.main(["--virtual", "--steps", "400", "--save", str(file)]) == 0
    kept = json.loads(file.read_text())
    assert kept["mismatches"] == []
    assert kept["steps"] == 400
    assert len(kept["steps_by_policy"]) == len(policies) == 36
    assert 0 < kept["dropped"] < 60
    assert kept["pinned_peak_second_half"] > 0


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert soak.main(["--steps", "1"]) == 2
    assert "--virtual" in capsys.readouterr().err


def test_sources_overwritten_before_they_are_read_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AsyncOutput, "make_stream_wait", lambda self: None)
    assert run([DEFAULT]).mismatches


def test_a_wait_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def arrive(self: AsyncOutput) -> None:
        self._has_arrived = True

    monkeypatch.setattr(AsyncOutput, "_wait", arrive)
    summary = run([DEFAULT])
    assert summary.mismatches
    assert not summary.is_good


def test_results_that_change_later_are_noticed() -> None:
    summary = Summary("virtual", "none", seed=3)
    checked = Soak(devices.virtual_device(), summary)
    checked.run(STEPS, [DEFAULT])
    assert not summary.mismatches
    number, result, expected = next(kept for kept in checked._kept if "ranks" in kept[2])
    np.asarray(result.logprobs.sampled_token_ranks)[0] += 1
    checked._check(number, result, expected)
    assert summary.mismatches == [f"step {number}: ranks"]


def test_pinned_memory_that_grows_is_noticed() -> None:
    for peak, is_good in ((109, True), (111, False)):
        long = Summary("virtual", "none", 0, soak.STEPS, pinned_peak_first_half=100)
        long.pinned_peak_second_half = peak
        assert long.is_good == is_good
