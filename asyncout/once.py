"""Work that is done once, by whichever thread asks first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """The outcome of work that is done at most once: its value, or its error.

    The work is given to :meth:`get`, not kept here: an owner that kept its own
    bound method would be a cycle, freed late.
    """

    __slots__ = ("_done", "_error", "_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._error: Exception | None = None

    def get(self, work: Callable[[], T]) -> T:
        """Give the work's value, or raise its error, the same at each call.

        The first thread to call does the work and others wait for it. An interrupt
        (KeyboardInterrupt) is no outcome: the next call starts again.
        """
        with self._lock:
            if not self._done:
                try:
                    self._value = work()
                except Exception as error:
                    self._error = error
                self._done = True
        if self._error is not None:
            # Without the traceback of earlier calls, which would grow with each.
            raise self._error.with_traceback(None)
        return self._value
