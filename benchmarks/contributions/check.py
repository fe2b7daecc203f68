"""Everything that must hold before a contribution is taken."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.contributions import bundle, facts, figures, texts
from benchmarks.contributions.bundle import Bundle
from benchmarks.contributions.errors import RefusedError
from benchmarks.contributions.known import Known


@dataclass(frozen=True)
class Checked:
    """A contribution that may be taken.

    Attributes
    ----------
    bundle : Bundle
    commits : tuple of str
    measured, modelled : int
        Rows of the newest commit.
    """

    bundle: Bundle
    commits: tuple[str, ...]
    measured: int
    modelled: int

    def __str__(self) -> str:
        """Say what is in it."""
        commits = ", ".join(commit[:8] for commit in self.commits)
        return (
            f"{self.bundle.machine}: commits {commits}; newest: {self.measured} rows measured, "
            f"{self.modelled} modelled"
        )


def check(path: Path, known: Known) -> Checked:
    """Check a contribution.

    Raises
    ------
    RefusedError
        Its reason is named, and what whoever sent it can do.
    """
    found = bundle.read(path)
    if texts.MACHINE_FILE not in found.files:
        raise RefusedError("machine", f"it holds no {texts.MACHINE_FILE}")
    machine = facts.check_machine(found.files[texts.MACHINE_FILE], found.machine)
    commits: dict[str, str] = {}
    for name, text in found.files.items():
        if name != texts.MACHINE_FILE and texts.RESULT_FILE.fullmatch(name):
            commit = figures.check(text, name, machine, known)
            if commit in commits:
                raise RefusedError("exists", f"{commits[commit]} and {name} are of the same commit")
            commits[commit] = name
    if not commits:
        raise RefusedError("figures", "it holds no results")
    for name, text in found.files.items():
        if of := texts.FACTS_FILE.fullmatch(name):
            if not any(commit.startswith(of["commit"]) for commit in commits):
                raise RefusedError("path", f"{name} is of no commit that it has results of")
            facts.check_facts(text, name)
    gains = _gains(found)
    modelled = sum(gain.modelled for gain in gains)
    ordered = sorted(commits, key=lambda commit: known.commits[commit])
    return Checked(found, tuple(ordered), len(gains) - modelled, modelled)


def write(found: Bundle, folder: Path) -> None:
    """Write a contribution's files into a folder; it must have been checked."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.files.items():
        (folder / texts.file_name(name)).write_text(text, encoding="utf-8")


def _gains(found: Bundle) -> list[results.Gain]:
    """Read it as the report will."""
    with tempfile.TemporaryDirectory(prefix="asyncout-contribution-") as scratch:
        write(found, Path(scratch) / found.machine)
        try:
            return results.read(Path(scratch))
        except (results.ResultsError, ValueError, KeyError, TypeError, IndexError) as error:
            raise RefusedError(
                "schema", f"the report cannot read it: {texts.shown(error)}"
            ) from error
