"""Facts of the host: processors and who may use them, memory, kernel, and what it runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from asyncout.doctor.facts.reading import Facts, text_of, without_blanks

#: Folder of the kernel's view of the processors.
_CPUS = "/sys/devices/system/cpu"

#: Devices that a guest has only under confidential computing, by its kind.
_CONFIDENTIAL_GUESTS = {"/dev/tdx_guest": "TDX", "/dev/sev-guest": "SEV-SNP"}

#: Word in the kernel's release that tells the Windows Subsystem for Linux.
_WSL_WORD = "microsoft"


def host_facts() -> Facts:
    """Read the host's processor, memory, kernel and what it runs on."""
    cpuinfo = text_of("/proc/cpuinfo")
    found = {
        "arch": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count() or ""),
        **_affinity(),
        "cpu": _cpuinfo_field(cpuinfo, "model name"),
        "host": _virtual_or_bare(cpuinfo),
        "hypervisor": _hypervisor(),
        "wsl": "yes" if _WSL_WORD in platform.release().lower() else "",
        "host_confidential": _confidential_guest(),
        "governor": text_of(f"{_CPUS}/cpu0/cpufreq/scaling_governor"),
        "idle_states": _idle_states(),
        "numa_nodes": text_of("/sys/devices/system/node/online"),
        "memory": _memory(),
    }
    return without_blanks(found)


def ranges(numbers: set[int]) -> str:
    """Write a set of numbers as the kernel does: {0, 1, 2, 5} is "0-2,5"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def numbers_in(text: str) -> set[int]:
    """Read what :func:`ranges` and the kernel write."""
    numbers: set[int] = set()
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _affinity() -> Facts:
    """Give the processors that this process may use: how many, and which."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    usable = os.sched_getaffinity(0)
    return {"cpus_usable": str(len(usable)), "cpu_affinity": ranges(usable)}


def _virtual_or_bare(cpuinfo: str) -> str:
    flags = _cpuinfo_field(cpuinfo, "flags").split()
    if not flags:
        return ""
    return "vm" if "hypervisor" in flags else "bare"


def _hypervisor() -> str:
    """Name what the firmware calls the machine; a virtual one's names its maker."""
    vendor = text_of("/sys/class/dmi/id/sys_vendor")
    product = text_of("/sys/class/dmi/id/product_name")
    return " ".join(part for part in (vendor, product) if part)


def _confidential_guest() -> str:
    return next((kind for path, kind in _CONFIDENTIAL_GUESTS.items() if Path(path).exists()), "")


def _idle_states() -> str:
    """Name the idle states of a processor: deep ones wake late."""
    folders = sorted(Path(_CPUS, "cpu0", "cpuidle").glob("state*"))
    return " ".join(filter(None, (text_of(folder / "name") for folder in folders)))


def _cpuinfo_field(cpuinfo: str, name: str) -> str:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _memory() -> str:
    for line in text_of("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return line.partition(":")[2].strip()
    return ""
