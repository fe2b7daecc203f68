"""One command from commit to table: measure, publish the pages, print the gains."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import clocks
from benchmarks.runner import facts, machine, mode, progress
from benchmarks.runner.commands import BENCHMARK_FAILED, PROJECT, run_module
from benchmarks.runner.errors import RunnerError
from benchmarks.runner.facts import Facts
from benchmarks.runner.repository import PUBLISHED_BRANCH, Repository

#: The commit that is checked out, and no other.
THIS_COMMIT = "HEAD^!"

#: Status of a command that the user stopped, as shells have it.
INTERRUPTED = 130


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes
    ----------
    machine : str
        Name of the machine's folder in ``results/``.
    mode : {"quick", "full", "nightly"}
        How much is measured.
    commits : str
        Which commits, as ``asv run`` understands them.
    pages : bool
        Whether pages are made of the results.
    asv_arguments : tuple of str
        More arguments for ``asv run``.
    """

    machine: str
    mode: str
    commits: str = THIS_COMMIT
    pages: bool = True
    asv_arguments: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; give the exit status.

    0: all is well; 1: the run could not be made; 2: a benchmark failed;
    130: the user stopped it.
    """
    try:
        options = _parser().parse_args(arguments)
        repository = Repository(PROJECT)
        if options.pages:
            repository.require_publishable()
        before = facts.collect()
        plan = Plan(
            machine=machine.chosen_name(options.machine, before),
            mode=options.mode or ("full" if "cuda_device" in before else "quick"),
            commits=options.commits,
            pages=options.pages,
            asv_arguments=tuple(options.asv_arguments),
        )
        _introduce(plan, before, repository)
        return run(plan, before, repository)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what asv had finished is not saved", file=sys.stderr)
        return INTERRUPTED


def run(plan: Plan, before: Facts, repository: Repository) -> int:
    """Carry out `plan`; give the exit status of the first step that failed."""
    machine.register(machine.asv_fields(plan.machine, before))
    began = time.monotonic()
    measured = _measure(plan)
    if measured not in (0, BENCHMARK_FAILED):
        return measured
    after = {**facts.collect(), "seconds": f"{time.monotonic() - began:.0f}"}
    _record_facts(plan, repository.head, before, after)
    judged = clocks.judge_clocks(before, after)
    if judged.discard:
        print(f"\nwarning: measure again; these results are {judged}", flush=True)
    if share := clocks.share_at_power_limit(before, after):
        print(f"\nnote: the GPU drew all the power it may for {share:.0%} of the run", flush=True)
    statuses = [measured]
    if plan.pages:
        statuses.append(run_module(["benchmarks.pages", "build"], {}))
    statuses.append(run_module(["benchmarks.report"], {}))
    if measured == BENCHMARK_FAILED:
        print("\nerror: a benchmark failed; it says 'failed' above", file=sys.stderr)
    return next((status for status in statuses if status), 0)


def _measure(plan: Plan) -> int:
    arguments = ["asv", "run", plan.commits, "--machine", plan.machine, "--record-samples"]
    arguments += ["--show-stderr", *plan.asv_arguments]
    with progress.Follower(progress.show_below_asv) as path:
        return run_module(arguments, {mode.VARIABLE: plan.mode, progress.VARIABLE: path})


def _record_facts(plan: Plan, commit: str, before: Facts, after: Facts) -> None:
    """Write what the machine was before and after, beside the results."""
    # asv reads every *.json in this folder as results.
    path = PROJECT / "results" / plan.machine / f"facts-{commit[:8]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = ({"when": "before", **before}, {"when": "after", **after})
    # asv adds the rows of some benchmarks to those that are there; a whole run replaces them.
    of_some = not {"--bench", "-b"}.isdisjoint(plan.asv_arguments)
    with path.open("a" if of_some else "w") as file:
        file.writelines(json.dumps(record, sort_keys=True) + "\n" for record in records)


def _introduce(plan: Plan, found: Facts, repository: Repository) -> None:
    device = found.get("cuda_device", "no GPU: what needs one is n/a, the rest is modelled")
    print(f"machine {plan.machine}: {device}")
    print(f"mode {plan.mode}, commits {plan.commits} (checked out: {repository.head[:8]})")
    if changed := repository.unbuilt_changes():
        print(
            f"note: asv measures committed code; not measured: changes in {', '.join(changed)} "
            "(`make smoke` runs the tree as it is)"
        )
    if plan.pages and not repository.is_published(repository.head):
        print(f"note: {repository.head[:8]} is not on {PUBLISHED_BRANCH}; the pages leave it out")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runner", description=__doc__)
    parser.add_argument(
        "--mode",
        choices=("quick", "full", "nightly"),
        help="default: full with a GPU, quick without; nightly: also every block of question 4",
    )
    parser.add_argument("--machine", help="name in results/; default: made from the hardware")
    parser.add_argument(
        "--commits",
        default=THIS_COMMIT,
        help="commits as `asv run` takes them, such as ALL or main~5..main; default: this one",
    )
    parser.add_argument(
        "--no-pages", dest="pages", action="store_false", help="do not publish pages"
    )
    parser.add_argument(
        "asv_arguments",
        nargs="*",
        metavar="-- ASV_ARGUMENT",
        help="more arguments for `asv run`, such as -- --bench streams --skip-existing-commits",
    )
    return parser
