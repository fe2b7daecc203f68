"""A machine's name and fields say what it is, and stay the same from run to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.runner import facts, machine
from benchmarks.runner.errors import MachineNameError

NVIDIA_SMI = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>580.159.03</driver_version>
  <gpu id="00000000:00:04.0">
    <product_name>NVIDIA H200</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <pci><pci_gpu_link_info>
      <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>N/A</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width></link_widths>
    </pci_gpu_link_info></pci>
    <{reasons}>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_hw_slowdown>{slowdown}</clocks_event_reason_hw_slowdown>
    </{reasons}>
  </gpu>
</nvidia_smi_log>
"""

H200 = {
    "cuda_device": "NVIDIA H200",
    "pcie_gen_max": "5",
    "host": "vm",
    "cpus": "16",
    "cpu": "Some CPU",
    "arch": "x86_64",
    "kernel": "Linux 6.18.44",
    "memory": "31 GiB",
}


def nvidia_smi(reasons: str = "clocks_event_reasons", slowdown: str = "Not Active") -> str:
    return NVIDIA_SMI.replace("{reasons}", reasons).replace("{slowdown}", slowdown)


def test_a_gpu_machine_is_named_after_gpu_link_host_and_processors() -> None:
    assert machine.default_name(H200) == "h200-pcie5-vm16"


def test_a_machine_without_gpu_says_so() -> None:
    assert machine.default_name({"arch": "x86_64", "cpus": "2"}) == "nogpu-x86-2"


def test_parts_that_are_unknown_are_left_out_of_the_name() -> None:
    assert machine.default_name({"cuda_device": "NVIDIA H200"}) == "h200-cpu"


@pytest.mark.parametrize(
    ("product", "short"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_product_names_lose_the_maker_and_keep_the_rest(product: str, short: str) -> None:
    assert machine.short_gpu_name(product) == short


def test_a_new_kernel_or_memory_size_does_not_split_the_graphs() -> None:
    later = {**H200, "kernel": "Linux 7.0.1", "memory": "255 GiB"}
    assert machine.asv_fields("m", later) == machine.asv_fields("m", H200)


def test_registering_a_machine_keeps_every_field_and_the_other_machines(tmp_path: Path) -> None:
    machine.register(machine.asv_fields("first", H200), home=tmp_path)
    machine.register(machine.asv_fields("second", {}), home=tmp_path)
    stored = json.loads((tmp_path / ".asv-machine.json").read_text())
    assert stored["first"] == machine.asv_fields("first", H200)
    assert stored["second"]["machine"] == "second"


def test_facts_that_nvidia_smi_does_not_know_are_absent() -> None:
    found = facts.parse_nvidia_smi(nvidia_smi())
    assert found["gpu"] == "NVIDIA H200"
    assert found["driver"] == "580.159.03"
    assert found["pcie_gen_max"] == "5"
    assert "pcie_gen_now" not in found
    assert "ecc" not in found


@pytest.mark.parametrize("text", ["", "not xml", "<nvidia_smi_log></nvidia_smi_log>"])
def test_no_gpu_gives_no_facts(text: str) -> None:
    assert facts.parse_nvidia_smi(text) == {}


@pytest.mark.parametrize("reasons", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_a_slowdown_is_throttling_on_old_and_new_drivers(reasons: str) -> None:
    found = facts.parse_nvidia_smi(nvidia_smi(reasons, slowdown="Active"))
    assert facts.throttle_reasons(found) == ["clocks_event_reason_hw_slowdown"]


def test_an_idle_gpu_is_not_throttled() -> None:
    assert facts.throttle_reasons(facts.parse_nvidia_smi(nvidia_smi())) == []


def test_host_facts_hold_no_blank_value() -> None:
    found = facts.host_facts()
    assert found["python"]
    assert all(found.values())


@pytest.mark.parametrize("name", ["../../x", "X", ".hidden", "nul", "a" * 65, "a/b"])
def test_a_name_that_leaves_its_folder_or_is_none_everywhere_is_refused(name: str) -> None:
    with pytest.raises(MachineNameError, match="is no name of a machine"):
        machine.chosen_name(name, {})


def test_a_name_that_is_asked_for_is_taken_and_else_the_default() -> None:
    assert machine.chosen_name("h200-mine_2.0", {}) == "h200-mine_2.0"
    assert machine.chosen_name(None, {"cpus": "2"}) == machine.chosen_name("", {"cpus": "2"})
