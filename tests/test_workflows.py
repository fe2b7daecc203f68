"""The workflows call nothing but commands that are there for anyone, and the branches they keep."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.runner import branches, commands
from benchmarks.runner.errors import RepositoryError

WORKFLOWS = sorted((commands.PROJECT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_make_targets_and_the_checks(path: Path) -> None:
    makefile = (commands.PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    steps = re.findall(r"\brun: (.+)", path.read_text())
    assert steps
    for step in steps:
        words = step.split()
        assert step == ".ci/run" or (words[0] == "make" and words[1] in targets), step
        assert "${{" not in step  # what GitHub fills in could be a command: by environment only


def test_the_benchmarks_run_alone_with_the_history_on_a_machine_with_a_gpu() -> None:
    text = (commands.PROJECT / ".github" / "workflows" / "gpu-benchmarks.yml").read_text()
    jobs = text.count("runs-on: [self-hosted, gpu]")
    assert jobs == text.count("runs-on:") == text.count("fetch-depth: 0")
    assert "group: gpu-benchmarks\n  cancel-in-progress: false" in text


def test_every_target_is_phony_and_every_public_one_is_in_the_help() -> None:
    makefile = (commands.PROJECT / "Makefile").read_text()
    phony = makefile.partition(".PHONY:")[2].replace("\\\n", " ").partition("\n")[0].split()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert targets == set(phony)
    for target in targets - {"help", "env", "format"}:
        assert re.search(rf"echo .*\b{target}\b", makefile), target


# --- branches that hold a folder ------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone, with a commit, of a remote that has nothing else."""
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "remote")], check=True)
    subprocess.run(
        ["git", "clone", "-q", str(tmp_path / "remote"), str(tmp_path / "clone")],
        check=True,
        capture_output=True,
    )
    clone = tmp_path / "clone"
    (clone / ".gitignore").write_text("/pages/\n")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "1")
    return clone


def test_a_folder_travels_by_its_branch_and_the_checkout_stays_as_it_is(
    checkout: Path, tmp_path: Path
) -> None:
    pages = checkout / "pages"
    (pages / "graphs").mkdir(parents=True)
    (pages / "graphs" / "a.json").write_text("1")
    (checkout / "staged").write_text("")
    git(checkout, "add", "staged")
    before = git(checkout, "status", "--porcelain")

    first = branches.push(checkout, pages, "gh-pages")
    assert branches.push(checkout, pages, "gh-pages") is None  # nothing has changed
    (pages / "graphs" / "a.json").unlink()
    (pages / "b.json").write_text("2")
    second = branches.push(checkout, pages, "gh-pages")

    assert git(checkout, "status", "--porcelain") == before
    assert git(tmp_path / "remote", "rev-parse", "gh-pages^") == first
    listed = git(tmp_path / "remote", "ls-tree", "-r", "--name-only", "gh-pages").split()
    assert listed == [".nojekyll", "b.json"]
    (checkout / "elsewhere").mkdir()
    (checkout / "elsewhere" / "own").write_text("3")
    assert branches.pull(checkout, checkout / "elsewhere", "gh-pages") == second
    found = {path.name: path.read_text() for path in (checkout / "elsewhere").iterdir()}
    assert found == {"own": "3", "b.json": "2"}


def test_a_branch_that_is_not_there_yet_is_no_error_and_an_empty_folder_is(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert branches.main(["pull", str(checkout / "results"), "results"], checkout) == 0
    assert "there is no such branch" in capsys.readouterr().out
    with pytest.raises(RepositoryError, match="has no files; measure first"):
        branches.push(checkout, checkout / "results", "results")
    assert branches.main(["push", str(checkout), "x", "--remote", "nowhere"], checkout) == 1
    assert "`git ls-remote" in capsys.readouterr().err
