"""Facts of one GPU through NVML (nvidia-ml-py), in the words that ``nvidia-smi`` has for them.

In milliseconds and without a process of its own; where the package or the driver's
library is missing there are none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from asyncout.doctor.facts.reading import NO_REASON, Facts, without_blanks

#: Bits of NVML's clock event reasons, with the names that ``nvidia-smi`` gives them.
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}

#: nvml.h: NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU.
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

#: nvml.h: nvmlGpuVirtualizationMode_t.
_VIRTUALISATION = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}

_ON_OR_OFF = {0: "Disabled", 1: "Enabled"}


def nvml_facts(device: str) -> Facts:
    """Ask NVML for one GPU, by its index or UUID; empty without it."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # not installed, no driver, or another package of that name
        return {}
    try:
        if device.isdigit():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(device))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(device)
        return without_blanks({name: _ask(ask, nvml, handle) for name, ask in _QUESTIONS.items()})
    except Exception:
        return {}
    finally:
        nvml.nvmlShutdown()


def _ask(ask: Callable[[Any, Any], str], nvml: Any, handle: Any) -> str:
    """Put one question; empty where this GPU or this version of NVML has no answer."""
    try:
        return ask(nvml, handle)
    except Exception:  # NVMLError, or a function that this version lacks
        return ""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _reasons(nvml: Any, handle: Any) -> str:
    current = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if current is None:  # before driver 535
        current = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    bits = current(handle)
    active = sorted(f"clocks_event_reason_{name}" for bit, name in REASONS.items() if bits & bit)
    return " ".join(active) or NO_REASON


def _confidential(nvml: Any, _handle: Any) -> str:
    # The binding changed from a filled-in argument to a returned value.
    try:
        state = nvml.nvmlSystemGetConfComputeState()
    except TypeError:
        return ""
    feature = getattr(state, "ccFeature", state)
    return {0: "off", 1: "on"}.get(feature, "")


def _cuda_driver(nvml: Any, _handle: Any) -> str:
    version = nvml.nvmlSystemGetCudaDriverVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


_QUESTIONS: dict[str, Callable[[Any, Any], str]] = {
    "gpu": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "driver": lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()),
    "cuda_driver": _cuda_driver,
    "pci_bus": lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId).lower(),
    "pcie_gen_max": lambda nvml, gpu: str(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
    "pcie_gen_now": lambda nvml, gpu: str(nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
    "pcie_width_max": lambda nvml, gpu: f"{nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)}x",
    "pcie_width_now": lambda nvml, gpu: f"{nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)}x",
    "clock_sm": lambda nvml, gpu: f"{nvml.nvmlDeviceGetClockInfo(gpu, _CLOCK_SM)} MHz",
    "clock_sm_max": lambda nvml, gpu: f"{nvml.nvmlDeviceGetMaxClockInfo(gpu, _CLOCK_SM)} MHz",
    "clock_memory": lambda nvml, gpu: f"{nvml.nvmlDeviceGetClockInfo(gpu, _CLOCK_MEMORY)} MHz",
    "clock_memory_max": lambda nvml, gpu: (
        f"{nvml.nvmlDeviceGetMaxClockInfo(gpu, _CLOCK_MEMORY)} MHz"
    ),
    "clock_reasons": _reasons,
    "mig": lambda nvml, gpu: _ON_OR_OFF[nvml.nvmlDeviceGetMigMode(gpu)[0]],
    "ecc": lambda nvml, gpu: _ON_OR_OFF[nvml.nvmlDeviceGetEccMode(gpu)[0]],
    "persistence": lambda nvml, gpu: _ON_OR_OFF[nvml.nvmlDeviceGetPersistenceMode(gpu)],
    "temperature": lambda nvml, gpu: f"{nvml.nvmlDeviceGetTemperature(gpu, _TEMPERATURE_GPU)} C",
    "power": lambda nvml, gpu: f"{nvml.nvmlDeviceGetPowerUsage(gpu) / 1000:.2f} W",
    "power_limit": lambda nvml, gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.2f} W",
    "gpu_virtualisation": lambda nvml, gpu: _VIRTUALISATION[
        nvml.nvmlDeviceGetVirtualizationMode(gpu)
    ],
    "gpu_confidential": _confidential,
}
