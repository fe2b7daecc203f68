"""How often the gate cries wolf: ``python -m benchmarks.gate.false_alarms --times 10``.

Compares a commit with itself and notes every verdict. Runs add up: what the result file
has of the same commit, device and method is kept, so that ten runs may be made in several
sittings.

0: so many runs were made, whatever came of them; 2: one could not be made; 130: the user
stopped it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gate import builds, command, statuses, table, verdicts
from benchmarks.gate.rounds import Result
from benchmarks.measure import FASTER, SLOWER
from benchmarks.runner import commands, facts, groups, machine
from benchmarks.runner.errors import RunnerError

#: Verdicts that are wrong when a commit is compared with itself. The gate's status only
#: follows the first.
WRONG = (SLOWER, FASTER)

#: Kinds of lines in a result file.
SUMMARY, RUN = "summary", "run"

#: Fields that the runs of one file share; others are another file's.
SHARED = ("commit", "device", "modelled", "confidence", "metrics")


class ResultFileError(RunnerError):
    """A result file is cut, foreign, or of another commit or method."""


def main(arguments: Sequence[str] | None = None, repository: Path = commands.PROJECT) -> int:
    """Do what the command line asks for; give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with groups.termination_interrupts():
            _count(options, repository)
        return 0
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ninterrupted; the runs that were done are kept", file=sys.stderr)
        return statuses.INTERRUPTED
    except Exception:
        traceback.print_exc()
    return statuses.COULD_NOT_MEASURE


def _count(options: argparse.Namespace, repository: Path) -> None:
    """Make the runs, add each to the file when it is done, and print what there is."""
    commit = builds.resolve(repository, options.commit)
    path = options.output or _default_path(commit)
    for number in range(options.times):
        print(f"\nrun {number + 1} of {options.times}", flush=True)
        begin = time.monotonic()
        result = command.compare_commits(
            repository, commit, commit, options.device, options.time_limit
        )
        print(table.as_text(result), flush=True)
        whole = all(j.verdict in verdicts.MEASURED for j in result.judgements)
        if result.failure or not whole:
            raise RunnerError("this run could not measure everything; it is not counted")
        add(path, describe(result, commit, time.monotonic() - begin))
    print(f"\n{as_text(read(path)[0])}\nin {path}")


def describe(result: Result, commit: str, seconds: float) -> dict[str, Any]:
    """Give a run as a line of a result file.

    Parameters
    ----------
    result : Result
    commit : str
        The one that was compared with itself.
    seconds : float
        How long it took.
    """
    rows = table.as_object(result)["rows"]
    kept = ("metric", "workload", "verdict", "ratio", "low", "high")
    return {
        "kind": RUN,
        "commit": commit,
        "device": result.device,
        "modelled": result.modelled,
        "confidence": result.confidence,
        "metrics": len(rows),
        "seconds": round(seconds, 1),
        "alarms": [_named(row) for row in rows if row["verdict"] == SLOWER],
        "rows": [{key: row[key] for key in kept} for row in rows],
    }


def add(path: Path, run: dict[str, Any]) -> None:
    """Add a run to a result file, which is made if it is not there.

    Raises
    ------
    ResultFileError
        The file is no result file, or its runs are not like this one.
    """
    runs = [*(read(path)[1] if path.exists() else ()), run]
    if any(other[key] != run[key] for other in runs for key in SHARED):
        raise ResultFileError(
            f"{path} has runs of another commit, device or method; name another file: --output"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (summary(runs), *runs)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    # Two steps: who interrupts the first loses one run, and not the file.
    written = path.with_name(f"{path.name}.new")
    written.write_text(text, encoding="utf-8")
    written.replace(path)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a result file: its summary, counted anew, and its runs.

    Raises
    ------
    ResultFileError
        The file is cut or foreign.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        runs = [line for line in lines if line["kind"] == RUN]
        found = summary(runs)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ResultFileError(
            f"{path} is no file of false alarms ({type(error).__name__}: {error}); delete it or "
            "name another: --output"
        ) from error
    if lines[0] != found:
        raise ResultFileError(f"the summary in {path} is not that of its runs; delete the file")
    return found, runs


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count the alarms: over runs, and over metrics."""
    first = runs[0]
    return {
        "kind": SUMMARY,
        **{key: first[key] for key in SHARED},
        "runs": len(runs),
        "runs_with_alarm": sum(bool(run["alarms"]) for run in runs),
        "verdicts": dict(Counter(row["verdict"] for run in runs for row in run["rows"])),
        "wrong_by_metric": dict(Counter(_wrong(runs))),
        "largest_ratio_by_metric": _largest(runs),
        "longest_run_s": max(run["seconds"] for run in runs),
    }


def _wrong(runs: Iterable[dict[str, Any]]) -> Iterable[str]:
    for run in runs:
        for row in run["rows"]:
            if row["verdict"] in WRONG:
                yield f"{_named(row)}: {row['verdict']}"


def _largest(runs: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Give how far from 1 the ratio of each metric got, by its name."""
    found: dict[str, float] = {}
    for run in runs:
        for row in run["rows"]:
            if row["ratio"] is not None:
                away = max(row["ratio"], 1 / row["ratio"])
                found[_named(row)] = max(found.get(_named(row), 1.0), away)
    return found


def _named(row: dict[str, Any]) -> str:
    return f"{row['metric']}, {row['workload']}"


def as_text(found: dict[str, Any]) -> str:
    """Give a summary for a terminal."""
    kind = "modelled" if found["modelled"] else "measured"
    lines = [
        f"{found['commit'][: command.SHORT_HASH]} against itself, {kind} on {found['device']}: "
        f"{found['runs_with_alarm']} of {found['runs']} runs called it slower; the longest took "
        f"{found['longest_run_s']:.0f} s"
    ]
    wrong = found["wrong_by_metric"]
    for name, ratio in found["largest_ratio_by_metric"].items():
        said = [f"{key.rpartition(': ')[2]} {n}×" for key, n in wrong.items() if name in key]
        lines.append(f"  {name}: ratio within a factor of {ratio:.3f}  {' '.join(said)}".rstrip())
    return "\n".join(lines)


def _default_path(commit: str) -> Path:
    name = machine.default_name(facts.collect())
    # asv reads every *.json in this folder as results.
    file = f"false-alarms-{commit[: command.SHORT_HASH]}.jsonl"
    return commands.PROJECT / "results" / name / file


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} runs are none; give 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate.false_alarms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=_positive, default=10, help="runs; default: 10")
    parser.add_argument("--commit", default="HEAD", help="default: HEAD")
    parser.add_argument("--device", choices=("auto", "gpu", "virtual"), default="auto")
    parser.add_argument(
        "--time-limit", type=float, default=command.TIME_LIMIT_S, metavar="SECONDS", help="of a run"
    )
    parser.add_argument("--output", type=Path, help="file of the result; default: in results/")
    return parser


if __name__ == "__main__":
    sys.exit(statuses.guarded(lambda: main))
