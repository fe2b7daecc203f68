"""The thread that enqueues copies where doing so would hold the engine's (``submit="thread"``)."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from asyncout.runtime import Job

#: How long the process's end waits for copies that are still to be enqueued, seconds: a
#: device that hangs must not keep the process for ever.
LAST_JOBS_S = 5.0


class Handover:
    """Whether the worker has done what it was handed, and what went wrong."""

    __slots__ = ("_error", "_settled")

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._error: BaseException | None = None

    def settle(self, error: BaseException | None) -> None:
        """Say that it is done, or could not be."""
        self._error = error
        self._settled.set()

    def is_settled(self) -> bool:
        """Whether :meth:`wait` would return or raise at once."""
        return self._settled.is_set()

    def wait(self) -> None:
        """Return when it is done; raise the error that kept it from being done."""
        self._settled.wait()
        if self._error is not None:
            raise self._error


class ThreadWorker:
    """Runs jobs one after the other in a thread that starts with the first of them.

    Parameters
    ----------
    stream : Stream
        Its own; what jobs enqueue copies on.
    enter : callable
        Called in the thread before the first job; makes the stream and its device current
        there. Where it raises, the job gets the error, and the next one's turn tries again.

    Attributes
    ----------
    stream : Stream
    """

    def __init__(self, stream: Any, enter: Callable[[], None]) -> None:
        self.stream = stream
        self._enter = enter
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def run(self, job: Job) -> None:
        """Have a job run behind the earlier ones. It must not raise."""
        self._jobs.put(job)
        thread = self._thread
        if thread is None or not thread.is_alive():  # a forked child has no threads
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None and self._thread.is_alive():
                return
            # A daemon, so that a device that hangs does not keep the process; at its end the
            # jobs that are left are waited for.
            self._thread = threading.Thread(target=self._work, name="asyncout copies", daemon=True)
            self._thread.start()
            atexit.register(self._finish)

    def _work(self) -> None:
        has_entered = False
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            if not has_entered:
                try:
                    self._enter()
                    has_entered = True
                except BaseException as caught:  # whatever it is: a reader waits for the job
                    error = caught
            job(error)
            del job, error  # they hold an output: not until the next one comes

    def _finish(self) -> None:
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(LAST_JOBS_S)
