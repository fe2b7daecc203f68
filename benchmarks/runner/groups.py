"""Programs that end with everything they started.

Each runs in a session, and so in a process group, of its own. The terminal's interrupt does
not reach it there: who starts one ends it, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own; `options` are :class:`subprocess.Popen`'s."""
    return subprocess.Popen(command, start_new_session=True, **options)


def end(process: subprocess.Popen[bytes], patience_s: float = 0.0) -> int:
    """End a program and what it started; give its status.

    A no-op when it was ended here before.

    Parameters
    ----------
    process : subprocess.Popen
        From :func:`start`. Nothing else may wait for it: see below.
    patience_s : float
        Seconds it gets to end by itself. What it leaves behind is ended in any case.
    """
    if process.returncode is not None:
        return int(process.returncode)  # long ago perhaps: its number may be another's by now
    try:
        if patience_s > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
    finally:
        _kill_group(process)
    return process.wait()


def run(
    command: Sequence[str], timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end and give what it said, errors among it.

    Raises
    ------
    subprocess.TimeoutExpired
        It took longer and was ended.
    """
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        finally:
            _kill_group(process)
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, said)


@contextlib.contextmanager
def termination_interrupts() -> Iterator[None]:
    """Let SIGTERM, which a cancelled job gets, be a KeyboardInterrupt in this context.

    Python would end at once instead, and leave running what it started.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough; let it clean up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a group whose first process is there or has only just ended."""
    # No group: nothing is left. No permission: macOS says so of one that has only just ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
