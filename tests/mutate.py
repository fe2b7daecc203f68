"""Removes each guarded line of the library and sees its tests fail.

``python -m tests.mutate`` collects the tests that are marked
``@pytest.mark.guards(file, line, nth=1, only=..., unless=...)``. For each it puts
``pass`` in the place of the `nth` line of `file` that reads `line`, in a copy of
the tree, and runs the test there. `only` and `unless` narrow a parametrised test to
the cases that depend on the line. A test that still passes does not guard its line:
that is a failure, and so is a line that is no longer there.

Each run is a fork of one process that has torch imported, which keeps the whole
check under a minute.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import shutil
import signal
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest
import torch  # imported before the forks, which inherit it

if torch.distributed.is_available():
    # torch loads this, and sympy with it, at the first operation that a tensor subclass such as
    # the virtual device's sees: in each fork anew unless it is there before.
    import torch.distributed.tensor

ROOT = Path(__file__).resolve().parent.parent

#: A mutated wait can hang instead of failing: that counts as noticed, but not for ever.
TIMEOUT_S = 60

#: pytest's exit codes for "all passed" and "tests failed".
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Guard:
    """One removed line and the test that must notice."""

    test: str
    file: str
    line: str
    nth: int


class _Collector:
    def __init__(self) -> None:
        self.guards: list[Guard] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("guards"):
                only, unless = mark.kwargs.get("only"), mark.kwargs.get("unless")
                if (only and only not in item.name) or (unless and unless in item.name):
                    continue
                self.guards.append(
                    Guard(item.nodeid, mark.args[0], mark.args[1], mark.kwargs.get("nth", 1))
                )


def collect() -> list[Guard]:
    """Find every guard of the test suite, in a fork: this process must not know the tests."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        collector = _Collector()
        with redirect_stdout(io.StringIO()):
            pytest.main(
                ["--collect-only", "-q", "-p", "no:cacheprovider", str(ROOT / "tests")],
                [collector],
            )
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump([astuple(guard) for guard in collector.guards], pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = [Guard(*fields) for fields in pickle.load(pipe)]
    os.wait()
    return found


def without_line(text: str, guard: Guard) -> str:
    """Give a file's text with a guard's line replaced by ``pass``.

    Raises
    ------
    LookupError
        The line is not there as often as the guard says.
    """
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.strip() == guard.line]
    if len(places) < guard.nth:
        raise LookupError(f"{guard.file} has no line {guard.line!r} (number {guard.nth})")
    place = places[guard.nth - 1]
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    lines[place] = f"{indent}pass\n"
    return "".join(lines)


def notices(guard: Guard, tree: Path) -> bool:
    """Whether the guard's test fails (or hangs) when its line is removed from `tree`."""
    target = tree / guard.file
    original = target.read_text()
    target.write_text(without_line(original, guard))
    try:
        child = os.fork()
        if child == 0:
            _run_in_child(tree, guard.test)
        _, status = os.waitpid(child, 0)
    finally:
        target.write_text(original)
    if os.WIFSIGNALED(status):
        return True  # the alarm, or a crash: noticed
    code = os.WEXITSTATUS(status)
    if code not in (PASSED, FAILED):
        raise RuntimeError(f"{guard.test}: pytest ended with {code}, neither passed nor failed")
    return code == FAILED


def _run_in_child(tree: Path, test: str) -> None:
    signal.alarm(TIMEOUT_S)
    os.chdir(tree)
    sys.path[:] = [str(tree), *[p for p in sys.path if p and Path(p).resolve() != ROOT]]
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(tree), test])
    os._exit(int(code))


def main() -> int:
    """Check every guard; print the ones that do not hold and return their number."""
    guards = collect()
    if not guards:
        print("no test is marked with guards")
        return 1
    broken = 0
    gc.freeze()  # pytest collects garbage in each fork, which need not walk what was inherited
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in ("asyncout", "tests", "benchmarks"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "conftest.py"):
            shutil.copy(ROOT / name, tree)
        for guard in guards:
            place = f"{guard.file}: {guard.line}"
            try:
                noticed = notices(guard, tree)
            except LookupError as error:
                print(f"GONE     {error}")
                broken += 1
                continue
            broken += not noticed
            print(f"{'noticed ' if noticed else 'UNNOTICED'} {place}  <- {guard.test}", flush=True)
    print(f"{len(guards) - broken} passed, {broken} failed")
    return min(broken, 1)


if __name__ == "__main__":
    raise SystemExit(main())
