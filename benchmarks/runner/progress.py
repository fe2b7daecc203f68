"""Lines of progress out of processes whose output asv holds back.

asv shows what a benchmark prints only after it has ended, and a grid can take
minutes. A benchmark therefore appends its lines to a file, and the command that
started asv prints them as they come.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

#: Environment variable that names the file; without it nothing is written.
VARIABLE = "ASYNCOUT_BENCH_PROGRESS"

#: Seconds between two looks at the file: soon enough for a reader, rare enough
#: not to disturb what is measured.
POLL_SECONDS = 0.5


def report(text: str) -> None:
    """Tell whoever watches the run one line of progress; a no-op if nobody does.

    Call it between measurements, not inside one: it writes to a file.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    with open(path, "a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")


def show_below_asv(line: str) -> None:
    """Print a line while asv holds its own line open; a ``show`` for :class:`Follower`."""
    print(f"\n             {line}", end="", flush=True)


class Follower:
    """Shows the lines of :func:`report` while a command runs.

    A context manager; gives the value for :data:`VARIABLE`. When the block ends,
    the lines that are left are shown and the file is removed.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
        self._offset = 0

    def __enter__(self) -> str:
        handle, path = tempfile.mkstemp(prefix="asyncout-progress-")
        os.close(handle)
        self._path = Path(path)
        self._thread.start()
        return path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def _follow(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self._show_new_lines()
        self._show_new_lines()

    def _show_new_lines(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # a line that is being written waits
        self._offset += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            self._show(line)
