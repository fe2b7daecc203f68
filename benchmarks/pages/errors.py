"""What can go wrong while the site is built or served. Each message says what to do."""

from __future__ import annotations

from benchmarks.runner.errors import RunnerError


class PagesError(RunnerError):
    """The site could not be built; the message says which part and what to do."""


class VendoredError(PagesError):
    """A shipped script is not the file that its package has."""
