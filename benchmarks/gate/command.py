"""The command: build both commits, compare them, print the table, give the status.

0: something was measured and nothing is slower; 1: something is slower; 2: it could
not be measured, or nothing was; 130: the user stopped it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.gate import builds, rounds, statuses, table, verdicts
from benchmarks.gate.catalogue import PROBES
from benchmarks.gate.dialogue import start_worker
from benchmarks.gate.errors import GateError
from benchmarks.gate.rounds import BASE, HEAD, Result
from benchmarks.runner import commands, groups
from benchmarks.runner.errors import RunnerError
from benchmarks.runner.repository import Repository

#: Seconds after which no more is started; a whole run is to take less than six minutes.
TIME_LIMIT_S = 330

#: Characters of a commit's hash that are shown.
SHORT_HASH = 8

CLOSING = {
    statuses.NOTHING_SLOWER: "gate: nothing is slower",
    statuses.SOMETHING_SLOWER: "gate: SLOWER",
    statuses.COULD_NOT_MEASURE: "gate: could not measure; this says nothing of the change",
}


def main(arguments: Sequence[str] | None = None, repository: Path = commands.PROJECT) -> int:
    """Do what the command line asks for; give the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
    repository : Path
        Where the commits are; the workloads are always this tree's.
    """
    options = _parser().parse_args(arguments)
    try:
        with groups.termination_interrupts():
            return _compare(options, repository)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return statuses.INTERRUPTED
    except Exception:
        # Python's own status for this is 1, which here means "slower"; a table that nobody
        # could read or keep is no verdict either.
        traceback.print_exc()
    print(CLOSING[statuses.COULD_NOT_MEASURE], file=sys.stderr, flush=True)
    return statuses.COULD_NOT_MEASURE


def compare_commits(
    repository: Path, base: str, head: str, device: str, time_limit_s: float
) -> Result:
    """Build two commits and compare them.

    Raises
    ------
    RunnerError
        A commit is not there or cannot be built, or there is no such device.
    """
    begin = time.monotonic()
    environments = {}
    for side, name in ((BASE, base), (HEAD, head)):
        commit = builds.resolve(repository, name)
        print(f"{side}: {name} is {commit[:SHORT_HASH]}", flush=True)
        environments[side] = builds.environment_for(repository, commit)
    if environments[BASE].commit == environments[HEAD].commit:
        print("note: a commit is compared with itself; only a false alarm can come of it")
    if changed := Repository(repository).unbuilt_changes():
        print(f"note: commits are compared; not in them: changes in {', '.join(changed)}")
    sys.stdout.flush()

    start = partial(_start, environments)
    left = time_limit_s - (time.monotonic() - begin)
    return rounds.compare(start, PROBES, device, left)


def _compare(options: argparse.Namespace, repository: Path) -> int:
    """Compare, print the table and give the status that follows from it."""
    _require_two_commits(repository, options.base, options.head)
    result = compare_commits(
        repository, options.base, options.head, options.device, options.time_limit
    )
    print(table.as_text(result))
    if options.json is not None:
        options.json.write_text(json.dumps(table.as_object(result), indent=1) + "\n")
    status = verdicts.exit_status(result.judgements, result.failure)
    print(CLOSING[status], flush=True)
    return status


def _require_two_commits(repository: Path, base: str, head: str) -> None:
    """Refuse to compare a commit with itself, which is green whatever was changed.

    Not part of :func:`compare_commits`: to count false alarms is to do just that.
    """
    commit = builds.resolve(repository, base)
    if builds.resolve(repository, head) != commit:
        return
    changed = Repository(repository).unbuilt_changes()
    uncommitted = f", or commit the changes in {', '.join(changed)}" if changed else ""
    raise GateError(
        f"measured nothing: base and head ({base} and {head}) are the same commit, "
        f"{commit[:SHORT_HASH]}; name another BASE{uncommitted}"
    )


def _start(environments: dict[str, builds.CommitEnvironment], side: str) -> rounds.Dialogue:
    environment = environments[side]
    return start_worker(f"the {side}'s worker ({environment.commit[:SHORT_HASH]})", environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", default="main", help="commit to compare with; default: main")
    parser.add_argument("--head", default="HEAD", help="commit to judge; default: HEAD")
    parser.add_argument(
        "--device",
        choices=("auto", "gpu", "virtual"),
        default="auto",
        help="auto takes the GPU if there is one; gpu fails without one; virtual is modelled",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=TIME_LIMIT_S,
        metavar="SECONDS",
        help=f"give up when it would take longer; default: {TIME_LIMIT_S}",
    )
    parser.add_argument("--json", type=Path, help="write what the table shows to a file")
    return parser
