"""A scratch clone with a branch of commits of which it is known what they change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planted.plants import Plant
from benchmarks.runner.errors import RepositoryError

#: Name of the branch, in the clone only.
BRANCH = "planted"

#: The module whose comment an unchanged commit changes.
COMMENTED = "asyncout/__init__.py"

#: Seconds between two commits' dates: asv orders results by them.
BETWEEN_COMMITS_S = 60

_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "planted"), ("EMAIL", "planted@example.org"))
}


@dataclass(frozen=True)
class PlantedCommit:
    """A commit of the branch.

    Attributes
    ----------
    commit : str
        Its full hash.
    plant : Plant or None
        None: nothing but a comment changed, or it is the first.
    """

    commit: str
    plant: Plant | None


def clone(repository: Path, folder: Path) -> PlantedCommit:
    """Clone the repository with its history; give the checked-out commit.

    Raises
    ------
    RepositoryError
        git could not.
    """
    _git(repository, "clone", "--quiet", "--no-local", str(repository), str(folder))
    head = _git(repository, "rev-parse", "HEAD")
    # A detached or unnamed commit is not part of what a clone fetches.
    _git(folder, "fetch", "--quiet", str(repository), head)
    _git(folder, "checkout", "--quiet", "-B", BRANCH, head)
    return PlantedCommit(head, None)


def make_commits(folder: Path, changes: Sequence[Plant | None]) -> list[PlantedCommit]:
    """Commit the changes one by one on the branch; give them in that order.

    Parameters
    ----------
    folder : Path
        A clone, as from :func:`clone`.
    changes : sequence of Plant or None
        None for a commit that changes a comment only.
    """
    date = int(_git(folder, "log", "-1", "--format=%ct"))
    made = []
    for number, plant in enumerate(changes, start=1):
        path = folder / (COMMENTED if plant is None else plant.path)
        code = f"\n# Unchanged commit {number}.\n" if plant is None else plant.code
        with path.open("a", encoding="utf-8") as file:
            file.write(code)
        date += BETWEEN_COMMITS_S
        message = f"Unchanged {number}" if plant is None else plant.name
        _git(folder, "commit", "--quiet", "--all", "--no-verify", "-m", message, date=date)
        made.append(PlantedCommit(_git(folder, "rev-parse", "HEAD"), plant))
    return made


def _git(folder: Path, *arguments: str, date: int | None = None) -> str:
    environ = {**os.environ, **_IDENTITY}
    if date is not None:
        environ |= {f"GIT_{role}_DATE": f"@{date} +0000" for role in ("AUTHOR", "COMMITTER")}
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    if done.returncode != 0:
        raise RepositoryError(f"`{' '.join(command)}` failed in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()
