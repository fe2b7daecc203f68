"""How facts are read: files and programs that may not be there."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

#: Name of a fact → its text; facts that are not known are absent.
Facts = dict[str, str]

#: What stands where a list of reasons is known to be empty, which a blank would not say.
NO_REASON = "none"

#: Seconds after which a program that should answer at once counts as absent.
PATIENCE_S = 60


def without_blanks(facts: Mapping[str, str]) -> Facts:
    """Keep the facts that say something."""
    return {name: value for name, value in facts.items() if value}


def text_of(path: str | Path) -> str:
    """Read a small file of the system's; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    except OSError:
        return ""


def output_of(command: list[str]) -> str:
    """Give what a program prints; empty where there is none, or it fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
