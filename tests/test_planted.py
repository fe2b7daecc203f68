"""Planted regressions: the branch, what counts as found, and the whole of it on a small branch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks.planted import branch, command, flagged
from benchmarks.planted.branch import PlantedCommit
from benchmarks.planted.flagged import PagesError
from benchmarks.planted.plants import LATE_WAKE_UP, SLOW_ENQUEUE
from benchmarks.runner import commands

pytestmark = pytest.mark.commands

START, UNCHANGED = PlantedCommit("a" * 40, None), PlantedCommit("b" * 40, None)
SLOW, LATE = PlantedCommit("c" * 40, SLOW_ENQUEUE), PlantedCommit("d" * 40, LATE_WAKE_UP)
COMMITS = [START, UNCHANGED, SLOW, LATE]
RIGHT = {
    SLOW.commit: ["bench_library.Enqueue.track_arm('w', 'c')"],
    LATE.commit: ["bench_waits.WakeUp.track_ratio('w', 'c')"],
}


def pages(folder: Path, jumps: list) -> Path:
    listed = [["bench_library.Enqueue.track_arm('w', 'c')", "p.json", {}, 0, 2.0, 1.0, jumps]]
    (folder / "regressions.json").write_text(json.dumps({"regressions": listed}))
    revisions = {str(index): one.commit for index, one in enumerate(COMMITS)}
    (folder / "index.json").write_text(json.dumps({"revision_to_hash": revisions}))
    return folder


def test_regressions_are_read_by_commit_and_ranges_as_ranges(tmp_path: Path) -> None:
    found = flagged.read(pages(tmp_path, [[None, 2, 1.0, 1.3], [2, 3, 1.3, 2.0]]))
    assert set(found) == {SLOW.commit, f"{SLOW.commit}..{LATE.commit}"}
    # A step that is only known to lie in a range is not at the right commit.
    assert len(flagged.problems(COMMITS, found, modelled=False)) == 2


def test_pages_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(PagesError, match="holds no pages with regressions"):
        flagged.read(tmp_path)


def test_both_plants_found_and_nothing_else_is_no_problem() -> None:
    assert flagged.problems(COMMITS, RIGHT, modelled=False) == []


def test_each_way_to_be_wrong_is_named() -> None:
    missing = flagged.problems(COMMITS, {SLOW.commit: RIGHT[SLOW.commit]}, modelled=False)
    assert len(missing) == 1
    assert "is not flagged in bench_waits.WakeUp" in missing[0]
    extra = flagged.problems(COMMITS, {**RIGHT, UNCHANGED.commit: ["bench_x.Y"]}, modelled=False)
    assert len(extra) == 1
    assert "bbbbbbbb changed nothing and is flagged in bench_x.Y" in extra[0]
    elsewhere = {SLOW.commit: ["bench_memory.CopyTime.track_arm"], LATE.commit: RIGHT[LATE.commit]}
    assert len(flagged.problems(COMMITS, elsewhere, modelled=False)) == 1


def test_modelled_flags_do_not_stand_for_measured_ones() -> None:
    modelled = {
        at: [name.replace(".track", "Modelled.track") for name in names]
        for at, names in RIGHT.items()
    }
    assert flagged.problems(COMMITS, modelled, modelled=True) == []
    assert len(flagged.problems(COMMITS, modelled, modelled=False)) == 2
    assert len(flagged.problems(COMMITS, RIGHT, modelled=True)) == 2


def test_the_branch_has_five_unchanged_commits_and_each_changes_what_it_says(
    tmp_path: Path,
) -> None:
    assert command.CHANGES.count(None) == 5
    begin = branch.clone(commands.PROJECT, tmp_path / "clone")
    made = branch.make_commits(tmp_path / "clone", command.CHANGES)
    dates = []
    for before, commit in zip([begin, *made], made, strict=False):
        diff = git(tmp_path / "clone", "diff", "--unified=0", before.commit, commit.commit)
        added = [line[1:] for line in diff.splitlines() if line[:1] == "+" and line[:3] != "+++"]
        only_comments = all(not line or line.startswith("#") for line in added)
        assert added
        assert only_comments == (commit.plant is None)
        dates.append(int(git(tmp_path / "clone", "log", "-1", "--format=%ct", commit.commit)))
    assert dates == sorted(set(dates))  # asv orders results by date
    assert git(tmp_path / "clone", "branch", "--show-current") == branch.BRANCH


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_an_error_gives_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--output", str(tmp_path / "r")], repository=tmp_path) == 2
    assert "error: `git clone" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="takes minutes on a GPU: make planted")
def test_both_plants_are_found_at_their_commit_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "result.jsonl"
    kept = tmp_path / "kept"
    arguments = ["--smallest", "--output", str(output), "--keep", str(kept)]
    assert command.main(arguments) == 0
    assert len([p for p in kept.glob("*/*.json") if p.name != "machine.json"]) == 4
    result = json.loads(output.read_text())
    assert result["modelled"]
    assert result["problems"] == []
    changes = [(one["change"], bool(one["flagged"])) for one in result["commits"]]
    assert changes == [
        ("nothing: the start", False),
        (SLOW_ENQUEUE.name, True),
        (LATE_WAKE_UP.name, True),
        ("a comment", False),
    ]
