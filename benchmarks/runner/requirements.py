"""Lists what an environment still lacks, by the versions that pyproject.toml asks for.

Run by an environment's own Python with the names of extras; prints one requirement
a line. torch is never listed: pip must not be given a reason to replace the one
that is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

TORCH = "torch"


def declared(project: Path, extras: Iterable[str]) -> list[str]:
    """List the requirements of building, of the library and of `extras`, but torch."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pip carries the reader that Python 3.10 lacks
        from pip._vendor import tomli as tomllib

    table: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    optional: dict[str, list[str]] = table["project"]["optional-dependencies"]
    found = [*table["build-system"]["requires"], *table["project"]["dependencies"]]
    for extra in extras:
        found += optional[extra]
    return [text for text in dict.fromkeys(found) if _parsed(text).name != TORCH]


def missing(project: Path, extras: Iterable[str]) -> list[str]:
    """List the declared requirements that no importable package satisfies."""
    return [text for text in declared(project, extras) if not is_satisfied(text)]


def is_satisfied(requirement: str) -> bool:
    """Whether an importable package has the version that `requirement` asks for."""
    parsed = _parsed(requirement)
    try:
        version = metadata.version(parsed.name)
    except metadata.PackageNotFoundError:
        return False
    return bool(parsed.specifier.contains(version, prereleases=True))


def _parsed(requirement: str) -> Any:
    # pip is in every environment that can be completed, so its parser needs no install.
    from pip._vendor.packaging.requirements import Requirement

    return Requirement(requirement)


if __name__ == "__main__":
    print("\n".join(missing(Path.cwd(), sys.argv[1:])))
