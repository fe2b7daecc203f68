"""What this machine is, as plain dicts; what cannot be read is left out.

Nothing here initialises CUDA in the calling process: torch is asked in a process
of its own, the rest comes from ``nvidia-smi`` and the kernel.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

Facts = dict[str, str]

#: Fact → where ``nvidia-smi -q -x`` has it; the first path that exists counts,
#: as names differ between drivers.
_GPU_PATHS: dict[str, tuple[str, ...]] = {
    "gpu": ("product_name",),
    "pcie_gen_max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "pcie_gen_now": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "pcie_width_now": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "clock_sm": ("clocks/sm_clock",),
    "clock_memory": ("clocks/mem_clock",),
    "mig": ("mig_mode/current_mig",),
    "ecc": ("ecc_mode/current_ecc",),
    "persistence": ("persistence_mode",),
    "temperature": ("temperature/gpu_temp",),
    "gpu_virtualisation": ("gpu_virtualization_mode/virtualization_mode",),
}
_REASONS_PATHS = ("clocks_event_reasons", "clocks_throttle_reasons")

#: Microseconds for which each reason held since the driver was loaded; new drivers have it.
_COUNTERS_PATH = "clocks_event_reasons_counters"
_UNREADABLE = {"", "N/A", "[N/A]", "Unknown Error", "Requested functionality has been deprecated"}

#: Words in the names of the reasons that make a GPU slower than it could be.
_THROTTLE_WORDS = ("slowdown", "thermal", "power_cap", "power_brake")

_TORCH_PROBE = """
import json, torch
facts = {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
if torch.cuda.is_available():
    facts["cuda_device"] = torch.cuda.get_device_name(0)
print(json.dumps(facts))
"""

#: Seconds after which a program that should answer at once counts as absent.
_PATIENCE = 60


def collect() -> Facts:
    """Read every fact that this machine gives."""
    return {**host_facts(), **torch_facts(), **gpu_facts()}


def torch_facts() -> Facts:
    """Read torch's version, its CUDA, and ``cuda_device`` if it sees one."""
    return _without_blanks(json.loads(_output([sys.executable, "-c", _TORCH_PROBE]) or "{}"))


def gpu_facts() -> Facts:
    """Read the first visible GPU's facts from ``nvidia-smi``; empty without one."""
    device = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    return parse_nvidia_smi(_output(["nvidia-smi", "-q", "-x", "-i", device]))


def parse_nvidia_smi(xml: str) -> Facts:
    """Pick the facts out of what ``nvidia-smi -q -x`` prints for one GPU."""
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return {}
    gpu = root.find("gpu")
    if gpu is None:
        return {}
    found = {name: _first_text(gpu, paths) for name, paths in _GPU_PATHS.items()}
    found["driver"] = _first_text(root, ("driver_version",))
    for path in _REASONS_PATHS:
        reasons = gpu.find(path)
        if reasons is not None:
            active = (reason.tag for reason in reasons if reason.text == "Active")
            found["clock_reasons"] = " ".join(sorted(active))
            break
    found["clock_counters"] = _counters(gpu)
    return _without_blanks(found)


def _counters(gpu: ElementTree.Element) -> str:
    """Write the counters as "reason=microseconds reason=microseconds"."""
    found = []
    for counter in gpu.findall(f"{_COUNTERS_PATH}/*"):
        number, _, unit = (counter.text or "").strip().partition(" ")
        if number.isdigit() and unit == "us":
            found.append(f"{counter.tag.removeprefix(_COUNTERS_PATH + '_')}={number}")
    return " ".join(sorted(found))


def throttle_reasons(facts: Facts) -> list[str]:
    """List the active clock reasons that mean the GPU was held back."""
    reasons = facts.get("clock_reasons", "").split()
    return [reason for reason in reasons if any(word in reason for word in _THROTTLE_WORDS)]


def throttle_counters(facts: Facts) -> dict[str, int]:
    """Give the microseconds, since the driver was loaded, that each such reason held."""
    pairs = (text.split("=") for text in facts.get("clock_counters", "").split())
    return {
        name: int(number) for name, number in pairs if any(word in name for word in _THROTTLE_WORDS)
    }


def host_facts() -> Facts:
    """Read the host's processor, memory, kernel and what it runs on."""
    cpuinfo = _text("/proc/cpuinfo")
    found = {
        "arch": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count() or ""),
        "cpus_usable": str(_usable_cpus()),
        "cpu": _cpuinfo_field(cpuinfo, "model name"),
        "host": _virtual_or_bare(cpuinfo),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
        "numa_nodes": _text("/sys/devices/system/node/online").strip(),
        "memory": _memory(),
    }
    return _without_blanks(found)


def _virtual_or_bare(cpuinfo: str) -> str:
    flags = _cpuinfo_field(cpuinfo, "flags").split()
    if not flags:
        return ""
    return "vm" if "hypervisor" in flags else "bare"


def _cpuinfo_field(cpuinfo: str, name: str) -> str:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _usable_cpus() -> int | str:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return ""


def _memory() -> str:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return line.partition(":")[2].strip()
    return ""


def _first_text(element: ElementTree.Element, paths: tuple[str, ...]) -> str:
    for path in paths:
        text = (element.findtext(path) or "").strip()
        if text not in _UNREADABLE:
            return text
    return ""


def _without_blanks(facts: Facts) -> Facts:
    return {name: value for name, value in facts.items() if value}


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
