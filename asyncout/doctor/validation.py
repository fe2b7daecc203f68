"""How far off the model was where it could be checked against measurements.

``python -m benchmarks.fit --validate --save`` writes such a file for a machine with
committed results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from asyncout.errors import ProfileError

#: Version of the file format; a file of another one is refused, not guessed at.
FORMAT = 1

_SHIPPED = Path(__file__).parent / "validations"


@dataclass(frozen=True)
class Validation:
    """Errors of predictions for workloads that the model was not fitted on.

    Attributes
    ----------
    machine, commit : str
        Whose results they were.
    metric : str
        What was predicted.
    predictions : int
    median_error, worst_error : float
        Of predicted over measured, less 1, without its sign.
    """

    machine: str
    commit: str
    metric: str
    predictions: int
    median_error: float
    worst_error: float


def known(machine: str | None = None) -> list[Validation]:
    """List the validations that are shipped, of one machine or of all.

    Raises
    ------
    ProfileError
        A file is cut, foreign or of another format.
    """
    found = [one for path in sorted(_SHIPPED.glob("*.json")) for one in load(path)]
    return [one for one in found if machine is None or one.machine == machine]


def load(path: Path) -> list[Validation]:
    """Read a file of validations.

    Raises
    ------
    ProfileError
        The file is missing, cut, foreign or of another format.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ProfileError(f"{path} holds no validations of format {FORMAT}")
    names = {field.name for field in fields(Validation)}
    entries = data.get("validations")
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and entry.keys() == names for entry in entries
    ):
        raise ProfileError(f"{path}: validations must be a list of objects with {sorted(names)}")
    return [Validation(**entry) for entry in entries]


def save(validations: Sequence[Validation], folder: Path = _SHIPPED) -> Path:
    """Write one machine's validations under its name; give the file."""
    path = folder / f"{validations[0].machine}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"format": FORMAT, "validations": [asdict(one) for one in validations]}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return path
