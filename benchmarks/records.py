"""Lines that commands leave beside a machine's results, one JSON object a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Where committed results lie.
RESULTS = ROOT / "results"


def append(folder: Path, machine: str, name: str, record: Mapping[str, Any]) -> Path:
    """Add a line to a machine's file of this name; give the file.

    Parameters
    ----------
    folder : Path
        With a folder for each machine; the machine's is made if it is not there.
    machine, name : str
        The file is ``folder/machine/name.jsonl``: asv reads every .json there as results.
    record : mapping
        What JSON can hold; no value that is not finite.
    """
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    path = folder / machine / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    return path
