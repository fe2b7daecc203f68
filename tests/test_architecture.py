"""ARCHITECTURE.md's table is the order in which the library's rooms import each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Rooms of a line of the table.
LINE = re.compile(r"^\| (`asyncout/[^|]+) \|", re.MULTILINE)
ROOM = re.compile(r"`asyncout/(\w+)")

#: What is imported against the order: the seam gives a torch stream its runtime, late.
EXCEPTIONS = {("runtime", "cuda_runtime")}

#: Compiled, and imported by its one user.
NO_PYTHON = {"csrc"}


def rank_of_rooms() -> dict[str, int]:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = text[text.index("## Rooms") : text.index("## The tree")]
    lines = LINE.findall(rooms)
    return {room: rank for rank, line in enumerate(lines) for room in ROOM.findall(line)}


def rooms_of_library() -> dict[str, list[Path]]:
    package = ROOT / "asyncout"
    found = {path.stem: [path] for path in package.glob("*.py") if path.stem != "__init__"}
    for path in package.glob("*/**/*.py"):
        found.setdefault(path.relative_to(package).parts[0], []).append(path)
    return found


def imports(path: Path) -> set[str]:
    """Name the rooms of the library that a module imports, anywhere in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "asyncout":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("asyncout."):
            rooms.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {a.name.split(".")[1] for a in node.names if a.name.startswith("asyncout.")}
    return rooms


def test_the_table_has_every_room() -> None:
    assert set(rank_of_rooms()) - NO_PYTHON == set(rooms_of_library())


def test_each_room_imports_only_rooms_above_it() -> None:
    ranks, wrong, seen = rank_of_rooms(), [], 0
    for room, paths in rooms_of_library().items():
        for path in paths:
            for other in imports(path) & set(ranks):
                seen += 1
                if ranks[other] > ranks[room] and (room, other) not in EXCEPTIONS:
                    wrong.append(f"{path.name} imports {other}")
    assert wrong == []
    assert seen > 50
