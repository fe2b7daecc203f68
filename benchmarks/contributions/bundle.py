"""The one file that a contribution is: a machine's results with their checksums, as JSON."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contributions import texts
from benchmarks.contributions.errors import RefusedError

#: What the file says that it is.
FORMAT, VERSION = "asyncout results", 1

#: Largest file in bytes: some thirty commits of today's suites in full.
LARGEST = 32 << 20

#: Most files; two for each commit, and the machine's.
MOST_FILES = 129

_KEYS = frozenset({"format", "version", "machine", "files", "sha256", "digest"})


@dataclass(frozen=True)
class Bundle:
    """The files of one machine's folder.

    Attributes
    ----------
    machine : str
    files : dict of str to str
        Their texts by their names, which hold no folder.
    """

    machine: str
    files: Mapping[str, str]


def collect(folder: Path) -> Bundle:
    """Collect what a contribution holds from a machine's folder; other files stay out.

    Raises
    ------
    RefusedError
        There are no results.
    """
    found = {}
    for path in sorted(folder.glob("*")):
        try:
            name = texts.file_name(path.name)
        except RefusedError:
            continue  # pictures and reports are made from the results again
        found[name] = path.read_text(encoding="utf-8")
    if texts.MACHINE_FILE not in found or len(found) == 1:
        raise RefusedError("machine", f"{folder} has no results")
    return Bundle(folder.name, found)


def write(bundle: Bundle, path: Path) -> None:
    """Write a contribution."""
    sums = {name: _sum(text) for name, text in bundle.files.items()}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "machine": bundle.machine,
        "sha256": sums,
        "digest": _digest(bundle.machine, sums),
        "files": dict(bundle.files),
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Bundle:
    """Read a contribution and check that it is one, whole and as it was made.

    Raises
    ------
    RefusedError
        It is not; the reason is named.
    """
    content = texts.table(_parse(path), "the file")
    if content.get("format") != FORMAT:
        raise RefusedError("foreign", f"it says that it is {texts.shown(content.get('format'))}")
    if content.get("version") != VERSION:
        raise RefusedError(
            "version", f"its version is {texts.shown(content.get('version'))}, not {VERSION}"
        )
    if content.keys() != _KEYS:
        odd = sorted(content.keys() ^ _KEYS)
        raise RefusedError("schema", f"keys are missing or not known: {texts.shown(odd)}")
    machine = texts.machine_name(content["machine"])
    files = texts.table(content["files"], "files")
    if len(files) > MOST_FILES:
        raise RefusedError("too large", f"it holds {len(files)} files, more than {MOST_FILES}")
    for name, text in files.items():
        texts.file_name(name)
        if not isinstance(text, str):
            raise RefusedError("schema", f"{name} is no text")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise RefusedError("text", f"{name} holds half a character")
    _check_sums(machine, files, texts.table(content["sha256"], "sha256"), content["digest"])
    return Bundle(machine, files)


def _parse(path: Path) -> Any:
    # Some editors and shells put a mark of UTF-8 before a text.
    content = _content(path).removeprefix(codecs.BOM_UTF8)
    if not content.lstrip().startswith(b"{"):
        raise RefusedError("foreign", "it is no table of JSON")
    try:
        return texts.parse(content.decode("utf-8"), "the file")
    except UnicodeDecodeError as error:
        raise RefusedError("cut", f"it is no UTF-8 text: {error}") from error


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe or a device may never end, or never begin
            raise RefusedError("unreadable", f"{path} is no file")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # whatever size the system says it has
    except OSError as error:
        raise RefusedError("unreadable", f"it cannot be read: {error}") from error
    if len(content) > LARGEST:
        raise RefusedError("too large", f"it has more than {LARGEST} bytes")
    return content


def _check_sums(machine: str, files: Mapping[str, str], sums: Any, digest: Any) -> None:
    if sums.keys() != files.keys():
        raise RefusedError("changed", "its list of checksums names other files")
    for name, text in files.items():
        if sums[name] != _sum(text):
            raise RefusedError("changed", f"{name} is not the one that was checksummed")
    if digest != _digest(machine, sums):
        raise RefusedError("changed", "its list of checksums is not the one that was made")


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _digest(machine: str, sums: Mapping[str, str]) -> str:
    return _sum(json.dumps([FORMAT, VERSION, machine, sorted(sums.items())]))
