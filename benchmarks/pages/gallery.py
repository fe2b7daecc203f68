"""Pictures of a machine's results, where somebody has drawn them.

``make report`` draws them and writes a page with their descriptions beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

#: Folder of a machine's pictures, and the page that describes them.
FOLDER, PAGE = "pictures", "REPORT.md"

#: Which question a picture answers, by its name; others stand after the questions.
QUESTIONS = {"streams": 1, "memory": 2, "waits": 3, "factorial": 4, "library": 5}

#: A picture's description as the page has it.
_EMBEDDED = re.compile(r"!\[(?P<alt>[^\]]*)\]\(" + FOLDER + r"/(?P<name>[\w.-]+)\)")

#: What may be the name of a picture's file.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\.svg")


@dataclass(frozen=True)
class Shown:
    """A picture in the site.

    Attributes
    ----------
    source : Path
    alt : str
        What it shows, in words.
    question : int or None
    """

    source: Path
    alt: str
    question: int | None

    @property
    def path(self) -> str:
        """Where it lies in the site."""
        return f"{FOLDER}/{self.source.parent.parent.name}/{self.source.name}"


def find(machine: Path) -> list[Shown]:
    """List the pictures in a machine's folder; none where there are none."""
    page = machine / PAGE
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    described = {match["name"]: match["alt"] for match in _EMBEDDED.finditer(text)}
    order = list(described)
    files = [path for path in (machine / FOLDER).glob("*.svg") if _NAME.fullmatch(path.name)]
    files.sort(
        key=lambda path: (order.index(path.name) if path.name in order else len(order), path)
    )
    return [
        Shown(
            path,
            described.get(path.name) or f"Picture “{path.stem}” of the results of {machine.name}",
            QUESTIONS.get(path.stem),
        )
        for path in files
    ]


def copy_into(site: Path, pictures: list[Shown]) -> None:
    """Copy pictures to where the start page looks for them."""
    for picture in pictures:
        target = site / picture.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.source.read_bytes())
