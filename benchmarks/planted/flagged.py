"""What asv's regressions say of the commits of a branch, and whether that is right."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted.branch import PlantedCommit
from benchmarks.runner.errors import RunnerError


class PagesError(RunnerError):
    """asv's pages are missing or say what they should not be able to."""


def read(pages: Path) -> dict[str, list[str]]:
    """Read which benchmarks are flagged at which commit.

    Parameters
    ----------
    pages : Path
        What ``asv publish`` has written.

    Returns
    -------
    dict
        Benchmarks, with their parameters, by the full hash of the commit. A jump that asv
        can only place in a range of commits stands under "first..last".

    Raises
    ------
    PagesError
        There are no pages there.
    """
    try:
        listed = json.loads((pages / "regressions.json").read_text())["regressions"]
        revisions = json.loads((pages / "index.json").read_text())["revision_to_hash"]
    except (OSError, ValueError, KeyError) as error:
        raise PagesError(f"{pages} holds no pages with regressions: {error}") from error
    found: dict[str, list[str]] = defaultdict(list)
    for name, _path, _graph, _index, _last, _best, jumps in listed:
        for first, last, _before, _after in jumps:
            at = str(revisions[str(last)])
            if first is not None:
                at = f"{revisions[str(first)]}..{at}"
            found[at].append(name)
    return dict(found)


def problems(
    commits: Sequence[PlantedCommit], found: Mapping[str, Sequence[str]], modelled: bool
) -> list[str]:
    """List what the tracking got wrong; empty if it found all and nothing else.

    Parameters
    ----------
    commits : sequence of PlantedCommit
    found : dict
        As from :func:`read`.
    modelled : bool
        Whether modelled benchmarks must show the plants. Where there is a GPU, measured ones
        must.
    """
    wrong = []
    for commit in commits:
        if commit.plant is None:
            continue
        benchmark = commit.plant.shows_in + ("Modelled" if modelled else "")
        names = found.get(commit.commit, ())
        if not any(name.startswith(f"{benchmark}.") for name in names):
            wrong.append(f"{commit.commit[:8]} ({commit.plant.name}) is not flagged in {benchmark}")
    planted = {commit.commit for commit in commits if commit.plant is not None}
    for at, names in found.items():
        if at not in planted:
            wrong.append(f"{at[:8]} changed nothing and is flagged in {', '.join(names)}")
    return wrong


def as_object(commits: Sequence[PlantedCommit], found: Mapping[str, Sequence[str]]) -> list[Any]:
    """Give each commit, what it changes, and what was flagged at it; the first is the start."""
    changes = ["a comment" if commit.plant is None else commit.plant.name for commit in commits]
    return [
        {
            "commit": commit.commit,
            "change": change,
            "flagged": sorted(found.get(commit.commit, ())),
        }
        for commit, change in zip(commits, ["nothing: the start", *changes[1:]], strict=True)
    ]
