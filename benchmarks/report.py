"""The table of gains: ``python -m benchmarks.report``.

Reads what ``asv run`` has saved in ``results/`` and shows, for each question and
workload, both times, their ratio with its interval, the bound and the verdict.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from benchmarks import factorial_summary, names
from benchmarks.results import Gain, ResultsError, read
from benchmarks.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent

QUESTIONS = {
    1: "One stream or two?",
    2: "Pinned or pageable memory?",
    3: "Block or spin while waiting?",
    4: "What does each axis do in a step loop?",
    5: "What does the library itself cost?",
    6: "What does an offload do to an output?",
}

#: Keys of ``--json``, in their order.
JSON_KEYS = (
    "question",
    "workload",
    "arm",
    "baseline",
    "metric",
    "unit",
    "arm_value",
    "baseline_value",
    "ratio",
    "low",
    "high",
    "verdict",
    "machine",
    "commit",
    "modelled",
)

#: What stands around the table in the README.
README_BEGIN, README_END = "<!-- gains -->", "<!-- /gains -->"

#: Metrics that the README leaves out: they say again what another one says.
NOT_IN_README = ("exposed share of the copy",)

#: Characters of a commit's hash that are shown.
SHORT_HASH = 8

#: What ends a table's cell, or begins a link, a picture or code there.
MARKUP = re.compile(r"[|\[\]!`\\]")

HOW_TO_READ = (
    "ratio: arm over baseline, pair by pair, with its 95 % interval; under 1 is a gain. "
    "bound: the least ratio that there could be. In question 4 a change within "
    f"{100 * names.LEAST_EFFECT:g} % is no verdict."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the command line asks for; give the exit status.

    0: printed; 1: there are no such results, or they cannot be read; 2: the README's
    table is not the one of these results.
    """
    options = _parser().parse_args(arguments)
    try:
        gains = read(options.results, options.machine, options.commit)
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(as_json(gains))
        return 0
    if options.readme is not None:
        return _update_readme(options.readme, gains, options.check)
    print(as_text(gains))
    return 0


def as_json(gains: Sequence[Gain]) -> str:
    """Give a list of objects with the keys in :data:`JSON_KEYS`."""
    rows = [{key: getattr(gain, key) for key in JSON_KEYS} for gain in gains]
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False)


def as_text(gains: Sequence[Gain]) -> str:
    """Give tables for a terminal: one per machine, measured or modelled, and question."""
    parts = [HOW_TO_READ]
    for (machine, commit, modelled), rows in _by_run(gains):
        kind = "MODELLED in virtual time" if modelled else "measured"
        parts.append(f"\n{machine}, commit {commit[:SHORT_HASH]}, {kind}")
        for question, some in groupby(rows, key=lambda gain: gain.question):
            if question == factorial_summary.QUESTION:
                for table in factorial_summary.tables(list(some)):
                    parts.append(f"\n  {table.title}")
                    parts += [f"    {line}" for line in _aligned(table.header, table.rows)]
                continue
            parts.append(f"\n  {question}. {QUESTIONS[question]}")
            parts += [f"    {line}" for line in _aligned(HEADER, [_cells(gain) for gain in some])]
        if targets := _targets(rows):
            parts.append(f"\n  {TARGETS_TITLE}")
            parts += [f"    {line}" for line in _aligned(TARGETS_HEADER, targets)]
    return "\n".join(parts)


def as_markdown(gains: Sequence[Gain]) -> str:
    """Give a table for the README: measured rows, by machine and question."""
    parts = []
    for (machine, commit, modelled), rows in _by_run([_escaped(gain) for gain in gains]):
        if modelled:
            continue
        parts.append(f"Measured on `{machine}` at commit `{commit[:SHORT_HASH]}`. {HOW_TO_READ}\n")
        for question, some in groupby(rows, key=lambda gain: gain.question):
            if question == factorial_summary.QUESTION:
                for table in factorial_summary.tables(list(some)):
                    parts.append(f"**{table.title}**\n")
                    parts += [*_markdown_table(table.header, table.rows), ""]
                continue
            parts.append(f"**{question}. {QUESTIONS[question]}**\n")
            shown = [_cells(gain) for gain in some if gain.metric not in NOT_IN_README]
            parts += [*_markdown_table(HEADER, shown), ""]
        if targets := _targets(rows):
            parts += [f"**{TARGETS_TITLE}**\n", *_markdown_table(TARGETS_HEADER, targets), ""]
    return "\n".join(parts).rstrip()


HEADER = ("metric", "workload", "arm", "", "baseline", "", "ratio", "bound", "verdict")


TARGETS_TITLE = "The default policy's targets"
TARGETS_HEADER = ("metric", "workload", "ratio", "at most", "", "the limit")


def _targets(gains: Sequence[Gain]) -> list[tuple[str, ...]]:
    """Give a row for each target that was measured in a run."""
    if any(gain.modelled for gain in gains):
        return []
    by_key = {(g.metric, g.workload, g.arm, g.baseline): g.ratio for g in gains}
    rows = []
    for target in TARGETS:
        key = (target.metric, target.workload, target.arm, target.baseline)
        if (ratio := by_key.get(key)) is not None:
            is_reached = ratio <= target.ratio
            said = "reached" if is_reached else "missed"
            limit = "" if is_reached else target.limit
            rows.append(
                (target.metric, target.workload, f"{ratio:.3g}", f"{target.ratio:g}", said, limit)
            )
    return rows


def _escaped(gain: Gain) -> Gain:
    """Give a gain whose texts from the results file mean nothing to Markdown."""
    workload, arm, baseline = (
        MARKUP.sub(r"\\\g<0>", text) for text in (gain.workload, gain.arm, gain.baseline)
    )
    return replace(gain, workload=workload, arm=arm, baseline=baseline)


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _cells(gain: Gain) -> tuple[str, ...]:
    return (
        gain.metric,
        gain.workload,
        gain.arm,
        human(gain.arm_value, gain.unit),
        gain.baseline,
        human(gain.baseline_value, gain.unit),
        gain.figures,
        "" if gain.bound is None else f"{gain.bound:.3g}",
        gain.verdict,
    )


def human(value: float, unit: str) -> str:
    """Write a value in a unit that suits its size."""
    if unit == "bytes":
        return f"{value / (1 << 20):.4g} MiB"
    if unit != "seconds":
        return f"{value:.3g}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {name}"
    return f"{value / 1e-9:.3g} ns"


def _by_run(gains: Sequence[Gain]) -> list[tuple[tuple[str, str, bool], list[Gain]]]:
    def run(gain: Gain) -> tuple[str, str, bool]:
        return gain.machine, gain.commit, gain.modelled

    ordered = sorted(gains, key=lambda gain: (*run(gain), gain.question))
    return [(key, list(rows)) for key, rows in groupby(ordered, key=run)]


def _aligned(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _update_readme(path: Path, gains: Sequence[Gain], check: bool) -> int:
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        print(f"error: {path} has no {README_BEGIN} ... {README_END}", file=sys.stderr)
        return 1
    updated = f"{before}{begin}\n{as_markdown(gains)}\n{end}{after}"
    if not check:
        path.write_text(updated, encoding="utf-8")
        return 0
    if updated != text:
        print(f"error: the table in {path} is not the one of these results", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="asv's folder")
    parser.add_argument("--machine", metavar="NAME", help="only this machine")
    parser.add_argument("--commit", metavar="HASH", help="this commit; default: the newest")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help="write the table into a file's markers"
    )
    parser.add_argument(
        "--check", action="store_true", help="with --readme: write nothing, compare"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
