"""A checkout that asv cannot use is refused before anything is measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.runner.errors import RepositoryError
from benchmarks.runner.repository import Repository

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def git(folder: Path, *arguments: str) -> None:
    command = ["git", *IDENTITY, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "asyncout").mkdir(parents=True)
    git(folder, "init", "--initial-branch=main")
    for number in range(2):
        (folder / "asyncout" / "code.py").write_text(f"N = {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-m", f"commit {number}")
    return folder


def test_a_whole_clone_with_main_can_be_published(checkout: Path) -> None:
    repository = Repository(checkout)
    repository.require_publishable()
    assert repository.is_published(repository.head)


def test_a_shallow_clone_is_refused_with_the_way_out(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--depth=1", checkout.as_uri(), "shallow")
    with pytest.raises(RepositoryError, match=r"shallow clone.*git fetch --unshallow"):
        Repository(tmp_path / "shallow").require_publishable()


def test_a_detached_head_without_main_is_refused_with_the_way_out(checkout: Path) -> None:
    git(checkout, "checkout", "--detach")
    git(checkout, "branch", "-D", "main")
    with pytest.raises(RepositoryError, match=r"no local branch main.*git branch main HEAD"):
        Repository(checkout).require_publishable()


def test_a_detached_head_beside_main_is_fine(checkout: Path) -> None:
    git(checkout, "checkout", "--detach", "HEAD^")
    repository = Repository(checkout)
    repository.require_publishable()
    assert repository.is_published(repository.head)


def test_a_commit_on_another_branch_is_not_published(checkout: Path) -> None:
    git(checkout, "checkout", "-b", "idea")
    git(checkout, "commit", "--allow-empty", "-m", "idea")
    repository = Repository(checkout)
    assert not repository.is_published(repository.head)


@pytest.mark.parametrize("initialised", [True, False])
def test_a_folder_without_a_commit_is_refused(tmp_path: Path, initialised: bool) -> None:
    if initialised:
        git(tmp_path, "init")
    with pytest.raises(RepositoryError, match="no git checkout with a commit"):
        Repository(tmp_path)


def test_only_changes_that_a_run_would_miss_are_listed(checkout: Path) -> None:
    (checkout / "README.md").write_text("text\n")
    repository = Repository(checkout)
    assert repository.unbuilt_changes() == []
    (checkout / "asyncout" / "code.py").write_text("N = 2\n")
    (checkout / "asyncout" / "new.py").write_text("")
    assert repository.unbuilt_changes() == ["asyncout/code.py", "asyncout/new.py"]
