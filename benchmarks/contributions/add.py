"""Takes a checked contribution into ``results/``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contributions import check, texts
from benchmarks.contributions.bundle import Bundle
from benchmarks.contributions.check import Checked
from benchmarks.contributions.errors import RefusedError


def add(checked: Checked, results: Path) -> list[Path]:
    """Write a contribution's files beside what is there; list those that are new.

    Nothing that is there is changed: a machine of the same name must be the same one. A file
    that differs from the one that is there is refused before anything is written, and so is
    another result of a commit: a stranger's figures would stand beside the machine's own.

    Raises
    ------
    RefusedError
    """
    found = checked.bundle
    folder = results / found.machine
    # The machine first: whether it is the same one is the better reason.
    names = sorted(found.files, key=lambda name: name != texts.MACHINE_FILE)
    new = {n: found.files[n] for n in names if not _is_there(folder / n, found.files[n])}
    for name in new:
        _refuse_second(folder, name)
    check.write(Bundle(found.machine, new), folder)
    return [folder / name for name in new]


def _is_there(path: Path, text: str) -> bool:
    if path.is_symlink() or path.parent.is_symlink():
        raise RefusedError("path", f"{path} is a link")
    if not path.exists():
        return False
    if path.read_text(encoding="utf-8") == text:
        return True
    if path.name == texts.MACHINE_FILE:
        raise RefusedError("machine", f"there is another machine of the name {path.parent.name}")
    raise RefusedError("exists", f"{path} is there with other contents")


def _refuse_second(folder: Path, name: str) -> None:
    if (of := texts.RESULT_FILE.fullmatch(name)) is None:
        return
    # Whatever its environment is called, asv and the report read it.
    if there := sorted(folder.glob(f"{of['commit']}-*.json")):
        raise RefusedError("exists", f"{there[0]} is of the same commit as {name}")
