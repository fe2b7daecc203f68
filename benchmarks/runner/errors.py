"""What can go wrong around a run. Each message says what to do about it."""

from __future__ import annotations


class RunnerError(Exception):
    """Base of the errors that end a command with a message and no traceback."""


class ForeignCopyError(RunnerError, ImportError):
    """asv would measure a copy of the library that is not the commit's."""


class SetupError(RunnerError):
    """The environment that a command needs could not be made."""


class RepositoryError(RunnerError):
    """The state of the git checkout does not allow what was asked for."""


class MachineNameError(RunnerError, ValueError):
    """A name that no machine can have."""


class ModeError(RunnerError, ValueError):
    """A mode was asked for that does not exist."""
