"""Facts of the first visible GPU: through NVML where it is, else from ``nvidia-smi``."""

from __future__ import annotations

import os
import re

from asyncout.doctor.facts.nvidia_smi import smi_facts
from asyncout.doctor.facts.nvml import nvml_facts
from asyncout.doctor.facts.reading import Facts, text_of, without_blanks

#: Words in the names of the reasons that make a GPU slower than it could be.
THROTTLE_WORDS = ("slowdown", "thermal", "power_cap", "power_brake")

_PCI_DEVICES = "/sys/bus/pci/devices"

#: What the kernel calls the NUMA node of a device that has none.
_NO_NODE = "-1"


def gpu_facts() -> Facts:
    """Read the first visible GPU's facts; empty without one.

    Both sources use the same names and words. ``nvidia-smi`` fills in what NVML lacks.
    """
    device = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0].strip()
    found = {**smi_facts(device), **nvml_facts(device)}
    return {**found, **_place(found.get("pci_bus", ""))}


def throttle_reasons(facts: Facts) -> list[str]:
    """List the active clock reasons that mean the GPU was held back."""
    reasons = facts.get("clock_reasons", "").split()
    return [reason for reason in reasons if any(word in reason for word in THROTTLE_WORDS)]


def throttle_counters(facts: Facts) -> dict[str, int]:
    """Give the microseconds, since the driver was loaded, that each such reason held."""
    pairs = (text.split("=") for text in facts.get("clock_counters", "").split())
    return {
        name: int(number) for name, number in pairs if any(word in name for word in THROTTLE_WORDS)
    }


def _place(pci_bus: str) -> Facts:
    """Give the NUMA node that the GPU hangs on, and that node's processors."""
    # NVML writes the domain with eight digits, the kernel with four.
    folder = f"{_PCI_DEVICES}/{re.sub('^0{4}(?=[0-9a-f]{4}:)', '', pci_bus)}"
    node = text_of(f"{folder}/numa_node") if pci_bus else ""
    if node == _NO_NODE:
        return {}
    return without_blanks(
        {"gpu_numa_node": node, "gpu_cpus": text_of(f"{folder}/local_cpulist") if node else ""}
    )
