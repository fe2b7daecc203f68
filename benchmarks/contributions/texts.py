"""What a text in a contribution may be, and JSON that is read without surprises."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.contributions.errors import RefusedError
from benchmarks.runner.machine import is_name

#: Longest text; the longest names of processors and kernels have some 90 characters.
LONGEST = 200

#: Printable ASCII without what quotes, escapes or begins markup: < > & " ' ` and the backslash.
_PLAIN = re.compile(r"[ !#$%()*+,\-./0-9:;=?@A-Z\[\]^_a-z{|}~]*")

#: Names of files in a machine's folder: asv's results, what the machine was, and asv's own.
MACHINE_FILE = "machine.json"
RESULT_FILE = re.compile(r"(?P<commit>[0-9a-f]{8})-(?P<env>[A-Za-z0-9][A-Za-z0-9._+-]{0,99})\.json")
FACTS_FILE = re.compile(r"facts-(?P<commit>[0-9a-f]{8})\.jsonl")

#: Deepest nesting of a file; asv's results have five levels.
_DEEPEST = 12


def plain(value: Any, where: str) -> str:
    """Give a text that means nothing to a page, a shell or a terminal."""
    if not isinstance(value, str):
        raise RefusedError("schema", f"{where} is no text")
    if len(value) > LONGEST or not _PLAIN.fullmatch(value):
        raise RefusedError("text", f"{where} holds characters that are not allowed: {shown(value)}")
    return value


def machine_name(value: Any) -> str:
    """Give a machine's name."""
    if not isinstance(value, str) or not is_name(value):
        raise RefusedError(
            "machine", f"{shown(value)} is no name of a machine: small letters, digits, - . _"
        )
    return value


def file_name(value: str) -> str:
    """Give the name of a file that a contribution may hold."""
    if value == MACHINE_FILE or RESULT_FILE.fullmatch(value) or FACTS_FILE.fullmatch(value):
        return value
    raise RefusedError("path", f"{shown(value)} is no name of a results file")


def shown(value: Any) -> str:
    """Give a foreign value as a short text that a terminal shows as it is."""
    text = ascii(value)
    return text if len(text) <= LONGEST // 2 else f"{text[: LONGEST // 2]}..."


def parse(text: str, where: str) -> Any:
    """Parse JSON whose objects name each key once, and that is not nested without end.

    Numbers that are not finite are left to whoever knows where asv writes them.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise RefusedError("schema", f"{where} is nested too deeply") from None
    except ValueError as error:
        raise RefusedError("cut", f"{where} is no whole JSON ({error})") from None
    _refuse_deep(value, where)
    return value


def table(value: Any, where: str) -> dict[str, Any]:
    """Give an object of JSON."""
    if not isinstance(value, dict):
        raise RefusedError("schema", f"{where} is no table")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusedError("schema", "a table names a key twice")
    return found


def _refuse_deep(value: Any, where: str, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise RefusedError("schema", f"{where} is nested too deeply")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        if isinstance(inner, (dict, list)):
            _refuse_deep(inner, where, depth + 1)
