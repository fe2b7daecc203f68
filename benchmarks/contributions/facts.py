"""Checks what a contribution says of its machine."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.contributions import texts
from benchmarks.contributions.errors import RefusedError

#: Fields of asv's machine file beside its version.
MACHINE_FIELDS = frozenset({"arch", "cpu", "machine", "num_cpu", "os", "ram"})

#: asv's version of that file.
MACHINE_VERSION = 1

#: Name of a fact, and the most of them.
_KEY = re.compile(r"[a-z][a-z0-9_]{0,59}")
MOST_FACTS = 100

#: When facts were read.
_TIMES = ("before", "after")


def check_machine(text: str, name: str) -> dict[str, str]:
    """Check asv's file of a machine; give its fields."""
    fields = texts.table(texts.parse(text, texts.MACHINE_FILE), texts.MACHINE_FILE)
    if fields.pop("version", None) != MACHINE_VERSION:
        raise RefusedError("version", f"{texts.MACHINE_FILE} is of another version of asv")
    if fields.keys() != MACHINE_FIELDS:
        odd = sorted(fields.keys() ^ MACHINE_FIELDS)
        raise RefusedError(
            "schema", f"{texts.MACHINE_FILE} has fields too many or too few: {texts.shown(odd)}"
        )
    checked = {key: texts.plain(value, f"the machine's {key}") for key, value in fields.items()}
    if checked["machine"] != name:
        raise RefusedError(
            "machine", f"{texts.MACHINE_FILE} is of {checked['machine']}, not of {name}"
        )
    return checked


def check_facts(text: str, file: str) -> None:
    """Check what a machine was before and after each run of a commit's benchmarks."""
    records = [
        texts.table(texts.parse(line, file), file) for line in text.splitlines() if line.strip()
    ]
    times = tuple(record.get("when") for record in records)
    if not times or times != _TIMES * (len(times) // len(_TIMES)):
        raise RefusedError("schema", f"{file} does not say what was before and what after")
    for record in records:
        _check_record(record, file)


def _check_record(record: dict[str, Any], file: str) -> None:
    if len(record) > MOST_FACTS:
        raise RefusedError("too large", f"{file} has more than {MOST_FACTS} facts")
    for key, value in record.items():
        if not _KEY.fullmatch(key):
            raise RefusedError("text", f"{file} names a fact {texts.shown(key)}")
        texts.plain(value, f"{key} in {file}")
