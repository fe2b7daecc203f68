"""Exit statuses, and a guard for them: 1 says "slower", so nothing that breaks may give it.

Imports the standard library only: a module that cannot be imported is a case of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import IO

#: Statuses of the gate; 0 and 1 are verdicts.
NOTHING_SLOWER, SOMETHING_SLOWER, COULD_NOT_MEASURE = 0, 1, 2

#: Status of a command that the user stopped, as shells have it.
INTERRUPTED = 130


def guarded(load: Callable[[], Callable[[], int]]) -> int:
    """Import and run a command; give its status.

    Parameters
    ----------
    load : callable
        Imports the command and gives its main function.
    """
    try:
        status = load()()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except SystemExit as end:  # of a command line that asks for help, or cannot be read
        status = end.code if isinstance(end.code, int) else COULD_NOT_MEASURE
    except Exception:
        # Python's own status for this is 1. Nor is there always someone to tell.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        status = COULD_NOT_MEASURE
    # Python would do it at its end, with the status 120 if it fails.
    said = [_flushed(stream) for stream in (sys.stdout, sys.stderr)]
    return status if all(said) else COULD_NOT_MEASURE


def _flushed(stream: IO[str] | None) -> bool:
    """Write out a stream; when nobody takes it, leave nothing to be written at Python's end."""
    if stream is None:  # it was closed before Python began
        return True
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return False
    return True
