"""Progress lines reach whoever watches a run, and cost nothing when nobody does."""

from __future__ import annotations

import time

import pytest

from benchmarks.runner import progress

PATIENCE_SECONDS = 30


def test_reporting_without_a_watcher_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    progress.report("nobody reads this")


def test_every_line_is_shown_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with progress.Follower(shown.append) as path:
        monkeypatch.setenv(progress.VARIABLE, path)
        for number in range(3):
            progress.report(f"row {number}")
    assert shown == ["row 0", "row 1", "row 2"]


def test_a_line_is_shown_while_the_block_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    shown: list[str] = []
    with progress.Follower(shown.append) as path:
        monkeypatch.setenv(progress.VARIABLE, path)
        progress.report("row 0")
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not shown and time.monotonic() < give_up:
            time.sleep(0.01)
        assert shown == ["row 0"]


def test_a_text_of_several_lines_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with progress.Follower(shown.append) as path:
        monkeypatch.setenv(progress.VARIABLE, path)
        progress.report("row\n 0")
    assert shown == ["row 0"]


def test_the_file_is_removed_also_when_the_block_raises(tmp_path: object) -> None:
    follower = progress.Follower(lambda line: None)
    with pytest.raises(ValueError, match="stop"), follower:
        raise ValueError("stop")
    assert not follower._path.exists()
