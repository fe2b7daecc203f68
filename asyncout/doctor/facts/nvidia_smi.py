"""Facts of one GPU as ``nvidia-smi -q -x`` prints them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from asyncout.doctor.facts.reading import NO_REASON, Facts, output_of, without_blanks

#: Fact → where the XML has it; the first path that exists counts, as names differ
#: between drivers.
_PATHS: dict[str, tuple[str, ...]] = {
    "gpu": ("product_name",),
    "pcie_gen_max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "pcie_gen_now": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "pcie_width_now": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "clock_sm": ("clocks/sm_clock",),
    "clock_sm_max": ("max_clocks/sm_clock",),
    "clock_memory": ("clocks/mem_clock",),
    "clock_memory_max": ("max_clocks/mem_clock",),
    "mig": ("mig_mode/current_mig",),
    "ecc": ("ecc_mode/current_ecc",),
    "persistence": ("persistence_mode",),
    "temperature": ("temperature/gpu_temp",),
    "power": ("gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw"),
    "power_limit": ("gpu_power_readings/current_power_limit",),
    "gpu_virtualisation": ("gpu_virtualization_mode/virtualization_mode",),
}
_REASONS_PATHS = ("clocks_event_reasons", "clocks_throttle_reasons")

#: Microseconds for which each reason held since the driver was loaded; new drivers have it.
_COUNTERS_PATH = "clocks_event_reasons_counters"
_UNREADABLE = {"", "N/A", "[N/A]", "Unknown Error", "Requested functionality has been deprecated"}

#: What ``nvidia-smi conf-compute -f`` prints before the state.
_CONFIDENTIAL_LABEL = "CC status"


def smi_facts(device: str) -> Facts:
    """Ask ``nvidia-smi`` for one GPU, by its index or UUID; empty without the program."""
    found = parse_nvidia_smi(output_of(["nvidia-smi", "-q", "-x", "-i", device]))
    if found:
        state = parse_confidential(output_of(["nvidia-smi", "conf-compute", "-f"]))
        found.update(without_blanks({"gpu_confidential": state}))
    return found


def parse_nvidia_smi(xml: str) -> Facts:
    """Pick the facts out of what ``nvidia-smi -q -x`` prints for one GPU."""
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return {}
    gpu = root.find("gpu")
    if gpu is None:
        return {}
    found = {name: _first_text(gpu, paths) for name, paths in _PATHS.items()}
    found["driver"] = _first_text(root, ("driver_version",))
    found["cuda_driver"] = _first_text(root, ("cuda_version",))
    found["pci_bus"] = (gpu.get("id") or "").lower()
    for path in _REASONS_PATHS:
        reasons = gpu.find(path)
        if reasons is not None:
            active = (reason.tag for reason in reasons if (reason.text or "").strip() == "Active")
            found["clock_reasons"] = " ".join(sorted(active)) or NO_REASON
            break
    found["clock_counters"] = _counters(gpu)
    return without_blanks(found)


def _counters(gpu: ElementTree.Element) -> str:
    """Write the counters as "reason=microseconds reason=microseconds"."""
    found = []
    for counter in gpu.findall(f"{_COUNTERS_PATH}/*"):
        number, _, unit = (counter.text or "").strip().partition(" ")
        if number.isdigit() and unit == "us":
            found.append(f"{counter.tag.removeprefix(_COUNTERS_PATH + '_')}={number}")
    return " ".join(sorted(found))


def parse_confidential(text: str) -> str:
    """Give "on" or "off" from what ``nvidia-smi conf-compute -f`` prints; empty if unclear."""
    for line in text.splitlines():
        label, _, state = line.partition(":")
        if label.strip() == _CONFIDENTIAL_LABEL:
            return {"ON": "on", "OFF": "off"}.get(state.strip().upper(), "")
    return ""


def _first_text(element: ElementTree.Element, paths: tuple[str, ...]) -> str:
    for path in paths:
        text = (element.findtext(path) or "").strip()
        if text not in _UNREADABLE:
            return text
    return ""
