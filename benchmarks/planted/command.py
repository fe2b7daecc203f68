"""The command: plant, measure with asv, publish, read the regressions, write what was found.

0: both plants were flagged at their commit, and nothing at the unchanged ones; 1: the
tracking got something wrong; 2: it could not be tried.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted import branch, flagged
from benchmarks.planted.plants import LATE_WAKE_UP, SLOW_ENQUEUE
from benchmarks.runner import commands, facts, machine
from benchmarks.runner.errors import RunnerError

#: What each commit changes, oldest first; None: a comment. The first is measured too, as the
#: state before. A step is found with two commits on each side.
CHANGES = (None, None, SLOW_ENQUEUE, None, LATE_WAKE_UP, None, None)

#: The smallest branch that shows the same, for a test of this command.
SMALLEST = (None, SLOW_ENQUEUE, LATE_WAKE_UP, None)

#: The benchmarks that run: those that a plant shows in.
BENCHMARKS = ("bench_library.Enqueue", "bench_waits.WakeUp")

ALL_RIGHT, WRONG, NOT_TRIED = 0, 1, 2

#: Name of the result beside a machine's results. asv reads every *.json there.
RESULT = "planted-regressions.jsonl"


def main(arguments: Sequence[str] | None = None, repository: Path = commands.PROJECT) -> int:
    """Do what the command line asks for; give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        found_facts = facts.collect()
        name = options.machine or machine.default_name(found_facts)
        with tempfile.TemporaryDirectory(prefix="asyncout-planted-") as scratch:
            changes = SMALLEST if options.smallest else CHANGES
            result = _try(repository, Path(scratch), name, options.mode, changes)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_TRIED
    result = {"device": found_facts.get("cuda_device", "virtual device, modelled"), **result}
    path = options.output or commands.PROJECT / "results" / name / RESULT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")
    _show(result)
    return WRONG if result["problems"] else ALL_RIGHT


def _try(
    repository: Path, scratch: Path, name: str, mode: str, changes: Sequence[Any]
) -> dict[str, Any]:
    folder = scratch / "clone"
    branch.clone(repository, folder)
    base = branch.make_commits(folder, [None])[0]
    commits = [base, *branch.make_commits(folder, changes)]
    _publish_branch(folder / "asv.conf.json")

    run = ["benchmarks.runner", "--machine", name, "--mode", mode, "--no-pages"]
    run += ["--commits", f"{base.commit}^..{branch.BRANCH}"]
    run += ["--", *(part for benchmark in BENCHMARKS for part in ("--bench", benchmark))]
    _run(run, folder, scratch)
    _run(["asv", "publish"], folder, scratch)
    found = flagged.read(folder / ".asv" / "html")
    return {
        "machine": name,
        "mode": mode,
        "problems": flagged.problems(commits, found),
        "commits": flagged.as_object(commits, found),
    }


def _publish_branch(configuration: Path) -> None:
    """Let the clone's pages show its branch and nothing else that was measured before."""
    text = configuration.read_text(encoding="utf-8")
    shown = '"branches": ["main"]'
    if shown not in text:
        raise RunnerError(f"{configuration} has no line {shown}; the branch cannot be published")
    configuration.write_text(text.replace(shown, f'"branches": ["{branch.BRANCH}"]'))


def _run(arguments: list[str], folder: Path, home: Path) -> None:
    print(f"\n$ python -m {' '.join(arguments)}", flush=True)
    # A home of its own: asv notes the machine there.
    environ = commands.environ(HOME=str(home))
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=environ)
    if done.returncode != 0:
        raise RunnerError(f"`python -m {arguments[0]}` ended with status {done.returncode}")


def _show(result: dict[str, Any]) -> None:
    print()
    for commit in result["commits"]:
        print(f"{commit['commit'][:8]}  {commit['change']}")
        for name in commit["flagged"]:
            print(f"          flagged: {name}")
    for problem in result["problems"]:
        print(f"wrong: {problem}")
    if not result["problems"]:
        print("both plants were found at their commit, and nothing else")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--mode", choices=("smoke", "quick", "full"), default="quick", help="default: quick"
    )
    parser.add_argument("--machine", help="name in results/; default: made from the hardware")
    parser.add_argument("--output", type=Path, help="file of the result; default: in results/")
    parser.add_argument(
        "--smallest", action="store_true", help="five commits instead of eight, to test this"
    )
    return parser
