"""What is known of a machine, for its card on the start page."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import clocks
from benchmarks.pages.errors import PagesError

#: Facts that are shown, in this order, and what they are called. Others are not shown.
LABELS = {
    "cuda_device": "GPU",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "python": "Python",
    "link": "link to the GPU",
    "clock_sm": "clock of the multiprocessors",
    "clock_memory": "clock of the memory",
    "clock_reasons": "reasons of the clocks",
    "temperature": "temperature",
    "ecc": "ECC",
    "mig": "MIG",
    "gpu_virtualisation": "GPU's virtualisation",
    "persistence": "persistence mode",
    "cpu": "processor",
    "cpus": "processors",
    "cpus_usable": "of them usable",
    "host": "host",
    "governor": "frequency governor",
    "numa_nodes": "NUMA nodes",
    "memory": "memory",
    "kernel": "kernel",
    "arch": "architecture",
}

#: Facts whose values are written out.
_SPOKEN = {"host": {"vm": "virtual machine", "bare": "bare metal"}}


@dataclass(frozen=True)
class Machine:
    """One machine at its newest run.

    Attributes
    ----------
    name : str
    facts : dict of str to str
        Label to value, in the order of :data:`LABELS`.
    device : str
        The GPU's name, or that there is none.
    warnings : tuple of str
        Why the run is to be discarded, where the GPU's own record says so.
    """

    name: str
    facts: dict[str, str] = field(default_factory=dict)
    device: str = "no GPU"
    warnings: tuple[str, ...] = ()


def read(folder: Path, commit: str) -> Machine:
    """Read a machine's folder for the run of one commit.

    Raises
    ------
    PagesError
        ``machine.json`` or the facts are cut or no table of texts.
    """
    fields = _texts(folder / "machine.json", _content(folder / "machine.json"))
    runs = _runs(folder / f"facts-{commit[:8]}.jsonl")
    before, after = runs[-1]
    known = {key: value for key, value in fields.items() if value}
    merged = _with_link({**known, **before, **after})
    shown = {
        label: _value(key, before, after, merged[key])
        for key, label in LABELS.items()
        if key in merged
    }
    device = merged.get("cuda_device") or merged.get("gpu") or Machine.device
    if share := max(clocks.share_at_power_limit(*run) for run in runs):
        shown["at its power limit"] = f"{share:.0%} of the run"
    warnings = [reason for run in runs for reason in clocks.judge_clocks(*run).reasons]
    return Machine(folder.name, shown, device, tuple(dict.fromkeys(warnings)))


def _value(key: str, before: dict[str, str], after: dict[str, str], value: str) -> str:
    """Give a fact, or both where it was another one after the run."""
    spoken = _SPOKEN.get(key, {}).get(value, value)
    if key in before and key in after and before[key] != after[key]:
        return f"{before[key]} before, {after[key]} after"
    return spoken


def _with_link(facts: dict[str, str]) -> dict[str, str]:
    generation, width = facts.get("pcie_gen_max"), facts.get("pcie_width_max")
    if not generation:
        return facts
    now = facts.get("pcie_gen_now", generation)
    at = "" if now == generation else f", at generation {now} when read"
    return {**facts, "link": f"PCIe {generation} × {(width or '?').rstrip('x')}{at}"}


def _runs(path: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Read what the machine was before and after each run that the commit's rows are of.

    At least one: empty where nobody noted it.
    """
    runs: list[tuple[dict[str, str], dict[str, str]]] = []
    for line in _content(path).splitlines() if path.exists() else ():
        if line.strip():
            record = _texts(path, line)
            if record.pop("when", "") == "after" and runs:
                runs[-1] = (runs[-1][0], record)
            else:
                runs.append((record, {}))
    return runs or [({}, {})]


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PagesError(f"{path} cannot be read: {error}; measure again: `make bench`") from error


def _texts(path: Path, content: str) -> dict[str, str]:
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PagesError(f"{path} is cut or no JSON: {error}; measure again") from error
    if not isinstance(table, dict):
        raise PagesError(f"{path} holds no table of facts; measure again: `make bench`")
    return {str(key): str(value) for key, value in table.items()}
