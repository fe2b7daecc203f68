"""What a machine is told by its facts, whoever knows them; what nobody knows is absent."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from asyncout.doctor import facts
from asyncout.doctor.facts import gpu, host, nvidia_smi, nvml


class FakeNvml:
    """NVML of one GPU that knows no ECC, power or place."""

    def __init__(self, **missing: Any) -> None:
        self.shut = False
        self.asked: list[Any] = []
        answers = {
            "nvmlDeviceGetName": b"NVIDIA H200",
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlSystemGetCudaDriverVersion": 13000,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetClockInfo": 345,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x40,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetTemperature": 39,
            "nvmlDeviceGetVirtualizationMode": 1,
            "nvmlSystemGetConfComputeState": SimpleNamespace(ccFeature=0),
            **missing,
        }
        for name, answer in answers.items():
            if answer is not None:
                setattr(self, name, lambda *_, answer=answer: answer)

    def nvmlInit(self) -> None:
        self.shut = False

    def nvmlShutdown(self) -> None:
        self.shut = True

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self.asked.append(index)
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetEccMode(self, _handle: str) -> Any:
        raise RuntimeError("not supported")


@pytest.fixture
def fake(monkeypatch) -> FakeNvml:
    module = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "smi_facts", lambda _device: {})
    return module


def test_nvml_says_what_nvidia_smi_would_in_the_same_words(fake) -> None:
    found = facts.gpu_facts()
    assert found["gpu"] == "NVIDIA H200"
    assert found["cuda_driver"] == "13.0"
    assert (found["pcie_gen_now"], found["pcie_width_now"]) == ("1", "8x")
    assert (found["pcie_gen_max"], found["pcie_width_max"]) == ("5", "16x")
    assert (found["clock_sm"], found["clock_sm_max"]) == ("345 MHz", "1980 MHz")
    assert (found["mig"], found["persistence"]) == ("Disabled", "Enabled")
    assert (found["gpu_virtualisation"], found["gpu_confidential"]) == ("Pass-Through", "off")
    assert facts.throttle_reasons(found) == ["clocks_event_reason_hw_thermal_slowdown"]
    assert fake.shut


def test_what_nvml_cannot_answer_is_absent(fake) -> None:
    found = facts.gpu_facts()
    assert "ecc" not in found  # not supported by the GPU
    assert "power" not in found  # not in this version of the binding
    assert all(found.values())


def test_an_older_binding_is_asked_by_its_own_names(monkeypatch, fake) -> None:
    old = FakeNvml(
        nvmlDeviceGetCurrentClocksEventReasons=None,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x4,
        nvmlSystemGetConfComputeState=None,
    )
    monkeypatch.setitem(sys.modules, "pynvml", old)
    found = facts.gpu_facts()
    assert facts.throttle_reasons(found) == ["clocks_event_reason_sw_power_cap"]
    assert "gpu_confidential" not in found


def test_the_first_visible_gpu_is_asked_by_index_or_uuid(monkeypatch, fake) -> None:
    for visible in ("2,0", "GPU-12ab"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        facts.gpu_facts()
    assert fake.asked == [2, "GPU-12ab"]


def test_without_nvml_and_nvidia_smi_a_gpu_has_no_facts(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.nvml_facts("0") == {}


def test_nvidia_smi_fills_in_what_nvml_lacks(monkeypatch, fake) -> None:
    monkeypatch.setattr(gpu, "smi_facts", lambda _device: {"ecc": "Enabled", "gpu": "another"})
    found = facts.gpu_facts()
    assert (found["ecc"], found["gpu"]) == ("Enabled", "NVIDIA H200")


@pytest.mark.parametrize(
    ("text", "state"),
    [("CC status: OFF\n", "off"), ("CC status: ON", "on"), ("CC status: ?", ""), ("", "")],
)
def test_confidential_computing_is_on_off_or_unknown(text: str, state: str) -> None:
    assert nvidia_smi.parse_confidential(text) == state


def test_processors_are_written_as_the_kernel_writes_them_and_read_back() -> None:
    assert host.ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert host.numbers_in("0-2,5,7-8") == {0, 1, 2, 5, 7, 8}
    assert host.numbers_in("") == set()


def test_the_facts_say_which_processors_may_be_used() -> None:
    found = facts.host_facts()
    assert len(host.numbers_in(found["cpu_affinity"])) == int(found["cpus_usable"])
