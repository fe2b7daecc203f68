"""Runs both suites on the working tree, in seconds, and saves nothing.

It shows that every benchmark runs, not how fast anything is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.runner import machine, mode, progress
from benchmarks.runner.commands import PROJECT, run_module

#: Name of the machine that asv demands; it appears nowhere.
MACHINE = "smoke"

#: Enough rounds to pass through the timing code of pytest-benchmark.
PYTEST_FLAGS = (
    "--benchmark-enable",
    "--benchmark-min-rounds=1",
    "--benchmark-max-time=0.001",
    "--benchmark-warmup=off",
    "--benchmark-columns=median,rounds",
)


def main() -> int:
    """Run both suites; give the exit status of the first that failed."""
    return run_asv() or run_pytest()


def run_asv() -> int:
    """Run asv's suite in this Python, with a configuration and a home to throw away.

    asv writes its list of benchmarks into the results folder even on a dry run,
    and the machine's name into the home folder.
    """
    with tempfile.TemporaryDirectory(prefix="asyncout-smoke-") as folder:
        configuration = Path(folder) / "asv.conf.json"
        configuration.write_text(json.dumps(scratch_configuration(Path(folder))))
        variables = {"HOME": folder, mode.VARIABLE: "smoke"}
        flags = ["--config", str(configuration)]
        machine.register(machine.asv_fields(MACHINE, {}), home=Path(folder))
        arguments = ["asv", "run", *flags, "--python=same", "--machine", MACHINE]
        # One process for all: with nothing saved, a fresh one each is only slower.
        arguments += ["--dry-run", "--quick", "--show-stderr", "--launch-method", "forkserver"]
        with progress.Follower(progress.show_below_asv) as path:
            return run_module(arguments, {**variables, progress.VARIABLE: path})


def scratch_configuration(folder: Path) -> dict[str, object]:
    """Give a configuration of asv that writes below `folder` only."""
    return {
        "version": 1,
        "project": "asyncout",
        "repo": str(PROJECT),
        "environment_type": "existing",
        "benchmark_dir": str(PROJECT / "benchmarks"),
        "results_dir": str(folder / "results"),
        "html_dir": str(folder / "html"),
        "env_dir": str(folder / "env"),
    }


def run_pytest() -> int:
    """Run the pytest-benchmark suite with its timing switched on."""
    return run_module(["pytest", "benchmarks", "-q", *PYTEST_FLAGS], {mode.VARIABLE: "smoke"})


if __name__ == "__main__":
    sys.exit(main())
