"""``python -m benchmarks.contributions make MACHINE | check FILE | add FILE``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contributions import add, bundle, check, known, texts
from benchmarks.runner.commands import PROJECT
from benchmarks.runner.errors import RunnerError


def main(arguments: Sequence[str] | None = None, project: Path = PROJECT) -> int:
    """Do what the command line asks for.

    Returns
    -------
    int
        0: made, good or taken; 1: refused, or there is no such machine, with the reason.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.command == "make":
            _make(options.machine, options.out, project)
        else:
            found = check.check(options.file, known.read(project))
            print(f"good: {found}")
            if options.command == "add":
                _add(found, project / "results")
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _make(machine: str, out: Path | None, project: Path) -> None:
    name = texts.machine_name(machine)
    path = out or project / f"{name}.results.json"
    bundle.write(bundle.collect(project / "results" / name), path)
    try:
        found = check.check(path, known.read(project))
    except RunnerError:
        path.unlink()  # nobody is to send what will be refused
        raise
    print(f"{found}\n{path} is ready to be sent")


def _add(found: check.Checked, results: Path) -> None:
    new = add.add(found, results)
    print("".join(f"new: {path}\n" for path in new) or "nothing new\n", end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contributions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write one file of a machine's results")
    make.add_argument("machine", metavar="MACHINE", help="its name in results/")
    make.add_argument("--out", type=Path, metavar="FILE", help="default: MACHINE.results.json")
    for name, said in (("check", "may this file be taken?"), ("add", "take it into results/")):
        commands.add_parser(name, help=said).add_argument("file", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(main())
