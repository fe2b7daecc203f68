"""A small project with results for the tests of the pages and of contributions.

A git repository of a few commits whose results were written by hand: two machines with a
GPU, one without, a step in one benchmark at :data:`STEP`, and modelled rows. The figures
are made up, for tests only.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contributions.figures import COLUMNS

ROOT = Path(__file__).resolve().parent.parent

#: Benchmarks whose rows are written, by asv's names of their classes.
CLASSES = (
    "bench_streams.StepTime",
    "bench_streams.StepTimeModelled",
    "bench_waits.WakeUp",
    "bench_waits.WakeUpModelled",
)
METHODS = ("track_arm", "track_baseline", "track_ratio", "track_bound")

#: Commits, and the first one at which the arm of the first class is slower, by the factor.
COMMITS, STEP, SLOWER = 14, 8, 1.5

#: Commit date of the first, seconds; the others follow each a day later.
FIRST_DATE, DAY = 1_750_000_000, 86_400

#: Samples of a cell.
SAMPLES = 9

#: The machines: GPU, baseline in seconds, arm over baseline. No GPU: modelled rows only.
MACHINES: Mapping[str, tuple[str | None, float, float]] = {
    "box-a": ("NVIDIA Alpha", 2e-3, 0.5),
    "box-b": ("NVIDIA Beta", 3e-3, 0.9),
    "nogpu-x86-2": (None, 2e-3, 0.8),
}


def make(folder: Path, machines: tuple[str, ...] = tuple(MACHINES)) -> Path:
    """Make the project in an empty folder; give the folder."""
    _git(folder, "init", "--quiet", "--initial-branch=main")
    hashes = [commit(folder, index) for index in range(COMMITS)]
    (folder / "asv.conf.json").write_text(json.dumps(_configuration()))
    results = folder / "results"
    results.mkdir()
    (results / "benchmarks.json").write_text(json.dumps(listed()))
    for machine in machines:
        write_machine(results / machine, MACHINES[machine][0])
        for index, made in enumerate(hashes):
            save(results / machine, result(machine, made, index))
    return folder


def commit(folder: Path, index: int) -> str:
    """Make one commit; give its hash."""
    date = f"{FIRST_DATE + index * DAY} +0000"
    dated = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    # What a commit's message says must reach the pages as text.
    message = f"Change {index} <b>bold</b> & \"quoted\" <script>alert('{index}')</script>"
    _git(folder, "commit", "--quiet", "--allow-empty", "-m", message, **dated)
    return _git(folder, "rev-parse", "HEAD")


def write_machine(folder: Path, gpu: str | None) -> None:
    """Write what asv knows of a machine."""
    folder.mkdir(parents=True)
    fields = {**machine_fields(folder.name), "version": 1}
    (folder / "machine.json").write_text(json.dumps(fields))


def machine_fields(machine: str) -> dict[str, str]:
    return {
        "arch": "x86_64", "cpu": "Some(R) Processor", "machine": machine, "num_cpu": "8",
        "os": "Linux", "ram": "",
    }  # fmt: skip


def facts_lines(machine: str, **more: str) -> str:
    """Give the text of a facts file."""
    gpu = MACHINES[machine][0]
    facts = {"cpu": "Some(R) Processor", "cpus": "8", "torch": "2.11.0", **more}
    if gpu is not None:
        facts |= {"cuda_device": gpu, "pcie_gen_max": "5", "pcie_width_max": "16x"}
    return "".join(json.dumps({"when": when, **facts}) + "\n" for when in ("before", "after"))


def result(machine: str, made: str, index: int) -> dict[str, Any]:
    """Give the contents of one of asv's result files."""
    gpu, seconds, factor = MACHINES[machine]
    rows: dict[str, Any] = {}
    for name in CLASSES:
        modelled = name.endswith("Modelled")
        if gpu is None and not modelled:
            continue
        slower = SLOWER if name == CLASSES[0] and index >= STEP else 1.0
        rows |= _rows(name, seconds, factor * slower, index)
    return {
        "commit_hash": made,
        "env_name": "inherit-py3.12-torch2.11.0",
        "date": (FIRST_DATE + index * DAY) * 1000,
        "params": {**machine_fields(machine), "python": "3.12", "torch": "2.11.0"},
        "python": "3.12",
        "requirements": {"torch": "2.11.0"},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": rows,
        "durations": {"<setup_cache bench_streams:12>": 1.5},
        "version": 2,
    }


def save(folder: Path, data: Mapping[str, Any]) -> Path:
    """Write a result file and its facts; give the file."""
    made = data["commit_hash"][:8]
    path = folder / f"{made}-{data['env_name']}.json"
    path.write_text(json.dumps(data))
    (folder / f"facts-{made}.jsonl").write_text(facts_lines(folder.name))
    return path


def listed() -> dict[str, Any]:
    """Give asv's list of the benchmarks that are written here."""
    table = json.loads((ROOT / "results" / "benchmarks.json").read_text())
    kept = {name: table[name] for name in _names() if name in table}
    return {**kept, "version": table["version"]}


def publish(project: Path, folder: Path) -> int:
    """Have asv publish the project into a folder."""
    import sys

    command = [sys.executable, "-m", "asv", "publish", "--no-pull", "--html-dir", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr)
    return done.returncode


def _names() -> list[str]:
    return [f"{name}.{method}" for name in CLASSES for method in METHODS]


def _rows(name: str, seconds: float, factor: float, index: int) -> dict[str, Any]:
    table = listed()
    params = table[f"{name}.track_arm"]["params"]
    cells = len(params[0]) * len(params[1])
    wobble = 1 + 1e-4 * (index % 3)
    baseline = [
        [seconds * wobble * (1 + cell / 10 + 1e-4 * sample) for sample in range(SAMPLES)]
        for cell in range(cells)
    ]
    arm = [[factor * value for value in some] for some in baseline]
    ratio = [
        [a / b for a, b in zip(one, other, strict=True)]
        for one, other in zip(arm, baseline, strict=True)
    ]
    rows = {
        f"{name}.{method}": _row(params, samples)
        for method, samples in (
            ("track_arm", arm),
            ("track_baseline", baseline),
            ("track_ratio", ratio),
        )
    }
    if f"{name}.track_bound" in table:
        rows[f"{name}.track_bound"] = [[0.4] * cells, params, "1", 1, 0.1]
    return rows


def _row(params: list[list[str]], samples: list[list[float]]) -> list[Any]:
    values = [median(some) for some in samples]
    low, high = [min(some) for some in samples], [max(some) for some in samples]
    ones, counts = [1] * len(samples), [len(some) for some in samples]
    return [values, params, "1", 1, 0.1, low, high, low, high, ones, counts, samples]


def _configuration() -> dict[str, Any]:
    own = {
        line.split('"')[1]: line.split('"')[3]
        for line in (ROOT / "asv.conf.json").read_text().splitlines()
        if '"project_url"' in line or '"show_commit_url"' in line
    }
    return {
        "version": 1, "project": "asyncout", "repo": ".", "dvcs": "git", "branches": ["main"],
        "results_dir": "results", "html_dir": ".asv/html", "benchmark_dir": "benchmarks",
        "env_dir": ".asv/env", "regressions_thresholds": {".*": 0.1}, **own,
    }  # fmt: skip


def _git(folder: Path, *arguments: str, **variables: str) -> str:
    who = {
        f"GIT_{role}_{what}": "someone"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environ = {**os.environ, **who, **variables}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
