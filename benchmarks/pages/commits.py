"""The page of the commits that have results, to which asv's graphs and lists point."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.pages import links, tables
from benchmarks.pages.errors import PagesError
from benchmarks.pages.markup import Markup, fill, join, tag
from benchmarks.pages.start import STATIC
from benchmarks.report import SHORT_HASH

TEMPLATE = STATIC / "commits.html"


@dataclass(frozen=True)
class Commit:
    """A commit with results.

    Attributes
    ----------
    hash : str
        All 40 digits.
    date : str
        Day of the commit, in UTC.
    subject : str
        First line of its message; empty where git does not know it.
    machines : tuple of str
    """

    hash: str
    date: str
    subject: str
    machines: tuple[str, ...]


def read(asv: Path, results: Path, repository: Path) -> list[Commit]:
    """List the commits that asv shows, the newest first.

    Parameters
    ----------
    asv : Path
        Folder of asv's pages.
    results : Path
        asv's results, for who measured what.
    repository : Path
        Where git knows the commits' messages.

    Raises
    ------
    PagesError
        asv's index cannot be read.
    """
    try:
        index = json.loads((asv / "index.json").read_text(encoding="utf-8"))
        hashes, dates = index["revision_to_hash"], index["revision_to_date"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PagesError(f"{asv} has no index of asv's: {error}; run `make pages`") from error
    measured = _machines(results)
    said = _subjects(repository)
    return [
        Commit(
            hashes[revision],
            _day(dates[revision]),
            said.get(hashes[revision], ""),
            tuple(measured.get(hashes[revision][:SHORT_HASH], ())),
        )
        for revision in sorted(hashes, key=int, reverse=True)
    ]


def page(commits: Sequence[Commit]) -> str:
    """Give the page."""
    columns = ["commit", "day", "message", "results on"]
    whole = tables.table("Commits with results", columns, [_row(commit) for commit in commits])
    return fill(TEMPLATE, commits=whole)


def _row(commit: Commit) -> Markup:
    short, rest = commit.hash[:SHORT_HASH], commit.hash[SHORT_HASH:]
    # asv points to either form of the hash.
    whole = tag("span", rest, class_="hidden", id=f"{links.COMMIT_ANCHOR}{commit.hash}")
    return tag(
        "tr",
        tag("th", tag("code", short), whole, scope="row"),
        tag("td", commit.date, class_="day"),
        tag("td", commit.subject or "–"),
        tag("td", join(commit.machines, ", ") or "–"),
        id=f"{links.COMMIT_ANCHOR}{short}",
    )


def _machines(results: Path) -> Mapping[str, list[str]]:
    """Give the machines of each commit, by the short hash that asv names files with."""
    found: dict[str, list[str]] = {}
    for path in sorted(results.glob("*/*.json")):
        if path.name != "machine.json":
            names = found.setdefault(path.name[:SHORT_HASH], [])
            if path.parent.name not in names:
                names.append(path.parent.name)
    return found


def _subjects(repository: Path) -> Mapping[str, str]:
    command = ["git", "log", "--all", "--format=%H %s"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return dict(line.partition(" ")[::2] for line in lines)


def _day(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).date().isoformat()
