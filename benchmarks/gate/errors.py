"""Why a gate could not measure. Each ends the command with its own status, never "slower"."""

from __future__ import annotations

from benchmarks.runner.errors import RunnerError


class GateError(RunnerError):
    """The gate could not measure what it was asked to."""


class BuildError(GateError):
    """A commit is not there, or its library cannot be built or installed."""


class WorkerError(GateError):
    """A worker cannot go on: it died, hangs, or says what no worker says."""


class OutOfTimeError(GateError):
    """The time limit leaves no room for what is left to measure."""
