"""What an older commit of the library lacks is n/a there, and no failure.

The benchmarks are the working tree's, the library is the commit's. Only where that is
another commit than the one that is checked out can a lack be told from a fault.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from benchmarks.runner import progress
from benchmarks.runner.commands import PROJECT
from benchmarks.runner.repository import Repository

#: What a missing name, function or argument raises.
LACKING = (ImportError, AttributeError, TypeError, NotImplementedError)

#: What the library raises at a policy that it does not have yet; by its name, as it may not
#: have the error either.
POLICY_ERROR = "PolicyError"


def is_lack(error: BaseException) -> bool:
    """Whether an error may come of a feature that the library does not have."""
    return isinstance(error, LACKING) or type(error).__name__ == POLICY_ERROR


@cache
def is_older_commit() -> bool:
    """Whether asv measures another commit here than the one that is checked out."""
    commit = os.environ.get("ASV_COMMIT")
    return commit is not None and commit != Repository(PROJECT).head


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Leave out, and say so, what an older commit lacks; any other error goes on."""
    try:
        yield
    except Exception as error:
        if not (is_lack(error) and is_older_commit()):
            raise
        progress.report(f"{what}: n/a at this commit ({type(error).__name__}: {error})")
