"""A program ends with everything that it started, and a termination is an interrupt."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks.runner import groups

#: Starts a process that goes on, and goes on itself.
BOTH_GO_ON = ["sh", "-c", "sleep 60 & echo started; wait"]

#: Starts a process that goes on, and ends.
ONE_GOES_ON = ["sh", "-c", "sleep 60 > /dev/null 2>&1 & echo said; exit 3"]

#: Seconds until a process counts as one that goes on; a killed one is gone at once.
PATIENCE_S = 10


class Pipe:
    """A pipe that tells whether a process still has its end."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe()

    def was_let_go(self) -> bool:
        os.close(self.theirs)
        readable, _, _ = select.select([self.ours], [], [], PATIENCE_S)
        return bool(readable) and os.read(self.ours, 1) == b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    one = Pipe()
    yield one
    os.close(one.ours)


def test_a_program_that_takes_too_long_ends_with_what_it_started(pipe: Pipe) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        groups.run(BOTH_GO_ON, 0.3, pass_fds=[pipe.theirs])
    assert pipe.was_let_go()


def test_what_a_program_leaves_behind_is_ended_and_its_output_and_status_are_kept(
    pipe: Pipe,
) -> None:
    done = groups.run(ONE_GOES_ON, 60, pass_fds=[pipe.theirs])
    assert (done.stdout, done.returncode) == (b"said\n", 3)
    assert pipe.was_let_go()


@pytest.mark.parametrize("patience_s", [0.0, 60.0])
def test_a_program_that_ended_by_itself_leaves_nothing(pipe: Pipe, patience_s: float) -> None:
    process = groups.start(ONE_GOES_ON, stdout=subprocess.PIPE, pass_fds=[pipe.theirs])
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"said\n"
    status = groups.end(process, patience_s)
    assert status == 3 or (status == -signal.SIGKILL and patience_s == 0)
    assert pipe.was_let_go()


def test_a_program_is_ended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = groups.start([sys.executable, "-c", "raise SystemExit(4)"])
    assert groups.end(process, 60) == 4

    def kill(*_: object) -> None:
        raise AssertionError("its number may be another's by now")

    monkeypatch.setattr(os, "killpg", kill)
    assert groups.end(process, 60) == 4


def test_a_termination_is_one_interrupt_and_what_was_there_before_comes_back() -> None:
    def before(*_: object) -> None:
        raise AssertionError("not taken")

    told = []

    def terminated() -> None:
        with groups.termination_interrupts():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)  # while it cleans up
                told.append("cleaned up")

    first = signal.signal(signal.SIGTERM, before)
    try:
        with pytest.raises(KeyboardInterrupt):
            terminated()
        assert told == ["cleaned up"]
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, first)
