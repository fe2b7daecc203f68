"""Why a contribution is refused."""

from __future__ import annotations

from benchmarks.runner.errors import RunnerError

#: Every reason, and what whoever sent the file can do.
REASONS = {
    "unreadable": "name a file that is there",
    "cut": "the file did not arrive whole: send it again",
    "foreign": "this is no contribution to asyncout: make one with `make contribute MACHINE=name`",
    "version": "make it anew with the newest main",
    "too large": "send fewer commits in one file",
    "path": "make it anew with `make contribute MACHINE=name`",
    "changed": "the file was edited: send it as it was made",
    "schema": "make it anew with the newest main",
    "text": "rename it: plain letters, digits and spaces",
    "machine": "name the machine with `make bench MACHINE=name`",
    "benchmark": "measure with the newest main",
    "commit": "measure a commit of main: `make bench` on a checkout of it",
    "figures": "measure again with `make bench`",
    "exists": "a machine has one result of each commit: send those that are not there yet",
}


class RefusedError(RunnerError):
    """A contribution is refused.

    Attributes
    ----------
    reason : str
        A key of :data:`REASONS`.
    """

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(f"refused ({reason}): {what}; {REASONS[reason]}")
        self.reason = reason
