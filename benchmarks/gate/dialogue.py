"""How the gate speaks with a worker: a question, an answer, a time limit for each."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.gate.builds import CommitEnvironment
from benchmarks.gate.errors import WorkerError
from benchmarks.runner import commands, groups

#: The command of a worker, behind its environment's Python.
WORKER = ("-m", "benchmarks.gate.worker")

#: Seconds that a worker gets to end by itself when its input ends.
PATIENCE_S = 10

#: Lines of a dead worker's error output that are shown.
SHOWN_LINES = 12

#: Bytes read from the pipe at a time; an answer has a few hundred.
CHUNK = 1 << 16


class AnswerError(Exception):
    """A worker answered that it could not; it can be asked other things.

    Attributes
    ----------
    lacking : bool
        Whether its commit's library lacks the feature.
    """

    def __init__(self, text: str, lacking: bool) -> None:
        super().__init__(text)
        self.lacking = lacking


class Dialogue:
    """A running worker.

    Parameters
    ----------
    name : str
        How messages call it.
    command : sequence of str
    folder : Path
        Where it runs.
    environ : dict of str to str
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: dict[str, str]
    ) -> None:
        self.name = name
        # A pipe that nobody reads would fill and hang it. Closed by close().
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = groups.start(
                command,
                cwd=folder,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        except OSError:
            self._said.close()
            raise
        self._pending = b""

    def ask(self, do: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """Ask and give the answer.

        Raises
        ------
        AnswerError
            The worker could not; it is still there.
        WorkerError
            It died, did not answer in time, or gave no answer that can be read. It is
            ended.
        """
        self.send(do, **arguments)
        return self.receive(do, timeout_s)

    def send(self, do: str, **arguments: Any) -> None:
        """Ask only; see :meth:`ask`."""
        assert self._process.stdin is not None
        line = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            raise self._ended(do) from None

    def receive(self, do: str, timeout_s: float) -> dict[str, Any]:
        """Wait for the answer only; see :meth:`ask`."""
        line = self._read_line(do, timeout_s)
        try:
            answer = json.loads(line)
            ok = answer["ok"]
        except (ValueError, TypeError, KeyError):
            self.kill()
            raise WorkerError(f"{self.name} gave no answer to {do!r} but {line[:80]!r}") from None
        if not ok:
            raise AnswerError(answer["error"], answer["lacking"])
        return dict(answer)

    def _read_line(self, do: str, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                self.kill()
                raise WorkerError(
                    f"{self.name} did not answer {do!r} in {timeout_s:g} s and was ended; the "
                    "device or the library hangs"
                )
            chunk = os.read(pipe, CHUNK)
            if not chunk:
                raise self._ended(do)
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _ended(self, do: str) -> WorkerError:
        status = groups.end(self._process, PATIENCE_S)
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
        return WorkerError(
            f"{self.name} ended with {how} when asked to {do!r}; the last that it said:\n"
            + "\n".join(said or ["(nothing)"])
        )

    def close(self) -> None:
        """Let the worker end, and end it when it does not; no more can be asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        groups.end(self._process, PATIENCE_S)
        self._process.stdout.close()
        self._said.close()

    def kill(self) -> None:
        """End the worker and what it started, at once; a no-op when it has ended."""
        groups.end(self._process)


def start_worker(name: str, environment: CommitEnvironment) -> Dialogue:
    """Start the worker of a commit: its own library, this tree's workloads.

    Raises
    ------
    WorkerError
        It cannot be started.
    """
    # A folder that holds nothing but benchmarks/: in the project's root, `import asyncout`
    # would find the working tree instead of the commit.
    folder = environment.folder.parent / "workloads"
    folder.mkdir(exist_ok=True)
    link = folder / "benchmarks"
    if not (link.is_symlink() and link.readlink() == commands.PROJECT / "benchmarks"):
        made = folder / f"benchmarks-{os.getpid()}"  # another gate may be at the same
        made.unlink(missing_ok=True)
        made.symlink_to(commands.PROJECT / "benchmarks")
        made.replace(link)
    # Read by benchmarks.runner.guard, which refuses a library from elsewhere.
    environ = commands.environ(
        ASV_ENV_DIR=str(environment.folder), ASV_ENV_TYPE="inherit", ASV_COMMIT=environment.commit
    )
    try:
        return Dialogue(name, [str(environment.python), *WORKER], folder, environ)
    except OSError as error:
        raise WorkerError(f"{name} cannot be started: {error}") from None
