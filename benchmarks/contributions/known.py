"""What a contribution's names are held against: this checkout's benchmarks and commits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import factorial_summary, names, results
from benchmarks.runner.errors import RepositoryError
from benchmarks.runner.repository import PUBLISHED_BRANCH, Repository

#: Comparisons that classes had at earlier commits of main, and have no longer; results of those
#: commits are among the project's own.
_HELD = frozenset({"pageable, thread / pageable, inline", "pinned, thread / pinned, inline"})
FORMER = {"bench_library.Held": _HELD, "bench_library.HeldModelled": _HELD}


@dataclass(frozen=True)
class Grid:
    """What a class may say.

    Attributes
    ----------
    workloads, comparisons : frozenset of str
        Its parameters, in any mode.
    signed : bool
        Whether its samples may be zero or less.
    """

    workloads: frozenset[str]
    comparisons: frozenset[str]
    signed: bool


@dataclass(frozen=True)
class Known:
    """What is known here.

    Attributes
    ----------
    units : dict of str to str
        Unit of each benchmark, by asv's name of it.
    commits : dict of str to int
        Date of each commit that the pages can show, in milliseconds as asv writes it.
    grids : dict of str to Grid
        By asv's names of their classes.
    """

    units: Mapping[str, str]
    commits: Mapping[str, int]
    grids: Mapping[str, Grid]


def read(project: Path) -> Known:
    """Read what is known in a checkout.

    Raises
    ------
    benchmarks.runner.errors.RepositoryError
        The checkout has no whole history of the published branch, or no list of benchmarks.
    """
    Repository(project).require_publishable()
    command = ["git", "log", "--format=%H %ct", f"refs/heads/{PUBLISHED_BRANCH}", "--"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    commits = {commit: int(seconds) * 1000 for commit, seconds in lines}
    path = project / "results" / "benchmarks.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        units = {name: str(b.get("unit", "")) for name, b in table.items() if isinstance(b, dict)}
    except (OSError, ValueError, AttributeError) as error:
        raise RepositoryError(
            f"{path} is missing or cut: {error}; it is committed together with the results"
        ) from error
    return Known(units, commits, grids())


def grids() -> dict[str, Grid]:
    """Give what each class of comparisons may say, whatever mode this process has."""
    found = {}
    for name, grid in results.grid_classes().items():
        workloads, comparisons = grid.params
        nightly = names.BLOCKS if grid.question == factorial_summary.QUESTION else ()
        found[name] = Grid(
            frozenset({*workloads, *nightly}),
            frozenset(comparisons) | FORMER.get(name, frozenset()),
            grid.signed,
        )
    return found
