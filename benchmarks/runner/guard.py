"""Refuses to measure a copy of the library that is not the commit's own.

An environment inherits packages from the Python that runs asv. If that Python
has asyncout installed and the commit's build has not, the benchmarks would
quietly measure the same code for every commit.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from benchmarks.runner.errors import ForeignCopyError

LIBRARY = "asyncout"


def refuse_foreign_copy() -> None:
    """Check, inside an asv environment, that the library is the commit's.

    Does nothing outside of one: in asv's own process, in pytest, in a smoke run.

    Raises
    ------
    ForeignCopyError
        The library is missing, or would be imported from elsewhere.
    """
    environment = os.environ.get("ASV_ENV_DIR")
    if not environment or "ASV_ENV_TYPE" not in os.environ:
        return
    commit = os.environ.get("ASV_COMMIT", "unknown")[:8]
    spec = importlib.util.find_spec(LIBRARY)  # finds without importing
    if spec is None or spec.origin is None:
        raise ForeignCopyError(
            f"commit {commit}: {LIBRARY} is not installed in {environment}; "
            "the commit has no such package, or its build left it out"
        )
    if Path(environment).resolve() not in Path(spec.origin).resolve().parents:
        raise ForeignCopyError(
            f"commit {commit}: {LIBRARY} would come from {spec.origin}, not from "
            f"{environment}; delete that environment and run again"
        )
