"""Starts the programs of a run: asv, pytest, the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Root of the project, in which every command runs.
PROJECT = Path(__file__).resolve().parents[2]

#: asv's status when a benchmark failed.
BENCHMARK_FAILED = 2


def environ(**variables: str) -> dict[str, str]:
    """Copy the variables of this process, with `variables` and without PYTHONPATH.

    What PYTHONPATH named is part of the environment already; asv would take it
    out of the benchmarks' path again.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**kept, **variables}


def run_module(arguments: list[str], variables: dict[str, str]) -> int:
    """Run ``python -m`` with `arguments` in the project's root; give its status."""
    print(f"\n$ python -m {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=PROJECT, env=environ(**variables)).returncode
