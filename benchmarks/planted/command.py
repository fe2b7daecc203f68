"""The command: plant, measure with asv, publish, read the regressions, write what was found.

0: both plants were flagged at their commit, and nothing at the unchanged ones; 1: the
tracking got something wrong; 2: it could not be tried.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted import branch, flagged
from benchmarks.planted.plants import LATE_WAKE_UP, SLOW_ENQUEUE, Plant
from benchmarks.runner import commands, facts, machine
from benchmarks.runner.errors import RunnerError

#: What each commit behind the present one changes, oldest first; None: a comment. With at
#: least two commits on each side of a plant, no lone outlier passes for a step or hides one.
CHANGES = (None, None, SLOW_ENQUEUE, None, LATE_WAKE_UP, None, None)

#: asv's benchmarks that run: both questions that a plant shows in, with all their metrics.
BENCHMARKS = ("bench_library", "bench_waits")

#: The smallest that shows the same, for a test of this command.
SMALLEST_CHANGES = (SLOW_ENQUEUE, LATE_WAKE_UP, None)
SMALLEST_BENCHMARKS = ("bench_library.Enqueue", "bench_waits.WakeUp")

ALL_RIGHT, WRONG, NOT_TRIED = 0, 1, 2

#: Name of the result beside a machine's results. asv reads every *.json there.
RESULT = "planted-regressions.jsonl"


def main(arguments: Sequence[str] | None = None, repository: Path = commands.PROJECT) -> int:
    """Do what the command line asks for; give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        found_facts = facts.collect()
        trial = Trial(
            machine=machine.chosen_name(options.machine, found_facts),
            modelled="cuda_device" not in found_facts,
            mode=options.mode,
            changes=SMALLEST_CHANGES if options.smallest else CHANGES,
            benchmarks=SMALLEST_BENCHMARKS if options.smallest else BENCHMARKS,
        )
        with tempfile.TemporaryDirectory(prefix="asyncout-planted-") as scratch:
            result = carry_out(trial, repository, Path(scratch), options.keep)
        result = {"device": found_facts.get("cuda_device", "virtual device"), **result}
        path = options.output or commands.PROJECT / "results" / trial.machine / RESULT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")
        _show(result)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_TRIED
    except Exception:
        traceback.print_exc()  # Python's own status for this is 1, which here means "wrong"
        return NOT_TRIED
    return WRONG if result["problems"] else ALL_RIGHT


@dataclass(frozen=True)
class Trial:
    """What is planted and measured.

    Attributes
    ----------
    machine, mode : str
    modelled : bool
        Whether there is no GPU, so that only modelled rows can show the plants.
    changes : tuple of Plant or None
        What each commit behind the present one changes; None: a comment.
    benchmarks : tuple of str
        asv's benchmarks that run, as regular expressions.
    """

    machine: str
    modelled: bool
    mode: str
    changes: tuple[Plant | None, ...]
    benchmarks: tuple[str, ...]


def carry_out(
    trial: Trial, repository: Path, scratch: Path, keep: Path | None = None
) -> dict[str, Any]:
    """Plant, measure, publish, and say what the regressions got right.

    Parameters
    ----------
    trial : Trial
    repository, scratch : Path
    keep : Path, optional
        Folder that gets the results of the commits.

    Raises
    ------
    RunnerError
        A step of it failed.
    """
    folder = scratch / "clone"
    begin = branch.clone(repository, folder)
    commits = [begin, *branch.make_commits(folder, trial.changes)]
    # Results of before would put other commits on the pages.
    for path in (folder / "results").glob("*/"):
        shutil.rmtree(path)
    _publish_branch(folder / "asv.conf.json")
    hashes = scratch / "commits.txt"
    hashes.write_text("".join(f"{commit.commit}\n" for commit in commits))

    run = ["benchmarks.runner", "--machine", trial.machine, "--mode", trial.mode]
    run += ["--no-pages", "--commits", f"HASHFILE:{hashes}", "--"]
    run += [part for name in trial.benchmarks for part in ("--bench", name)]
    _run(run, folder, scratch)
    if keep is not None:
        shutil.copytree(folder / "results", keep, dirs_exist_ok=True)
    _run(["asv", "publish"], folder, scratch)
    found = flagged.read(folder / ".asv" / "html")
    return {
        "machine": trial.machine,
        "modelled": trial.modelled,
        "mode": trial.mode,
        "benchmarks": trial.benchmarks,
        "problems": flagged.problems(commits, found, trial.modelled),
        "commits": flagged.as_object(commits, found),
    }


def _publish_branch(configuration: Path) -> None:
    """Let the clone's pages show its branch."""
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
    parser.add_argument("--mode", choices=("quick", "full"), default="quick", help="default: quick")
    parser.add_argument("--machine", help="name in results/; default: made from the hardware")
    parser.add_argument("--output", type=Path, help="file of the result; default: in results/")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the commits' results there: those of unchanged ones tell the noise between runs",
    )
    parser.add_argument(
        "--smallest", action="store_true", help="four commits instead of eight, to test this"
    )
    return parser
