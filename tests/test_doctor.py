"""The doctor sees what ails a box, knows its profile, and recommends what the model finds best."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
import torch

from asyncout import CopyPolicy
from asyncout.doctor import command, findings, speeds, validation, workloads
from asyncout.doctor.box import VirtualBox
from asyncout.doctor.checks import run_checks
from asyncout.doctor.command import COULD_NOT_LOOK, FINE, SOMETHING_IS_OFF, Patient, main
from asyncout.doctor.drawing import svg
from asyncout.doctor.examination import examine
from asyncout.doctor.fitting import fit_profile
from asyncout.doctor.lines import fit_line, fit_slope
from asyncout.doctor.links import EFFICIENCY, LINKS
from asyncout.doctor.predicting import candidates, predict_all
from asyncout.doctor.recommending import GOALS, TIES, recommend
from asyncout.doctor.speeds import measure_speeds
from asyncout.doctor.validation import Validation
from asyncout.doctor.what_if import WORTH_SHARE, answer, curves
from asyncout.errors import DeviceUnavailableError, ProfileError
from asyncout.virtual import CostProfile, VirtualMachine
from benchmarks import names
from benchmarks.devices import virtual_device
from benchmarks.workloads import WORKLOADS

#: Most that a recovered cost may differ from the one it was made with: sums of floats only.
RECOVERED = 1e-6

HEALTHY_FACTS = {
    "gpu": "Some GPU",
    "host": "bare",
    "pcie_gen_now": "5",
    "pcie_gen_max": "5",
    "pcie_width_now": "16x",
    "pcie_width_max": "16x",
    "clock_reasons": "",
    "gpu_confidential": "off",
}

SMALL = ("--bytes", "4096", "--tensors", "2")


@pytest.fixture(autouse=True)
def few_runs(monkeypatch) -> None:
    """Virtual time has no noise: fewer runs and smaller copies say the same."""
    monkeypatch.setattr(speeds, "RUNS", 3)
    monkeypatch.setattr(speeds, "SIZES", (4 << 10, 1 << 20, 16 << 20))


def patient(box: Callable[[], Any] = VirtualBox, **facts: str) -> Patient:
    return Patient(box=box, facts=lambda: {**HEALTHY_FACTS, **facts})


def box_of(**profile: float) -> VirtualBox:
    return VirtualBox(VirtualMachine(CostProfile.load().replace(**profile)))


class HoldingMachine(VirtualMachine):
    """Pinned memory is to be had, and copies hold the host nevertheless."""

    def copy_into_host(self, *arguments: Any) -> None:
        super().copy_into_host(*arguments)
        self.synchronize()


def without_pinned() -> VirtualBox:
    return VirtualBox(VirtualMachine(pinned_available=False))


def holding() -> VirtualBox:
    return VirtualBox(HoldingMachine())


def spinning() -> VirtualBox:
    return box_of(block_cpu_s=1.0)


# --- what is off ---------------------------------------------------------------------------


def test_on_a_healthy_box_every_check_holds() -> None:
    assert all(check.holds for check in run_checks(VirtualBox()).values())


@pytest.mark.parametrize(
    ("box", "fails"),
    [
        (without_pinned, {"pinned_memory", "asynchronous_copy"}),
        (holding, {"asynchronous_copy"}),
        (spinning, {"blocking_flag"}),
        (lambda: VirtualBox(batched=False), {"batched_call"}),
        (lambda: VirtualBox(same_stream=True), {"separate_stream"}),
    ],
)
def test_each_fault_fails_its_check_and_no_other(box, fails: set[str]) -> None:
    assert {name for name, check in run_checks(box()).items() if not check.holds} == fails


@pytest.mark.parametrize(
    ("box", "name"),
    [
        (without_pinned, "pinned_memory"),
        (holding, "copies_hold_the_host"),
        (spinning, "blocking_flag"),
        (lambda: VirtualBox(batched=False), "batched_call"),
        (lambda: VirtualBox(same_stream=True), "same_stream"),
    ],
)
def test_each_failed_check_is_one_finding(box, name: str) -> None:
    (finding,) = findings.find(HEALTHY_FACTS, run_checks(box()))
    assert finding.name == name


@pytest.mark.parametrize(
    ("facts", "name", "says"),
    [
        ({"host": "vm"}, "virtual_machine", "virtual machine"),
        ({"wsl": "yes"}, "wsl", "Windows Subsystem"),
        ({"gpu_confidential": "on"}, "confidential_computing", "submit='thread'"),
        ({"host_confidential": "TDX"}, "confidential_computing", "submit='thread'"),
        ({"pcie_gen_now": "1"}, "pcie_generation", "generation 1 of 5"),
        ({"pcie_width_now": "8x"}, "pcie_width", "8x wide, of 16x"),
        (
            {"clock_reasons": "clocks_event_reason_sw_thermal_slowdown"},
            "throttled",
            "sw thermal slowdown",
        ),
        (
            {"cpu_affinity": "0-7", "gpu_cpus": "8-15", "gpu_numa_node": "1"},
            "numa",
            "numactl -N 1 -m 1",
        ),
    ],
)
def test_each_fact_that_is_off_is_one_finding_in_one_sentence(facts, name, says) -> None:
    (finding,) = findings.find({**HEALTHY_FACTS, **facts}, run_checks(VirtualBox()))
    assert finding.name == name
    assert says in finding.sentence
    assert finding.sentence.endswith(".")
    assert ". " not in finding.sentence


@pytest.mark.parametrize(
    "facts",
    [
        {"clock_reasons": "clocks_event_reason_gpu_idle"},
        {"cpu_affinity": "0-7", "gpu_cpus": "4-15", "gpu_numa_node": "0"},
        {"pcie_gen_now": "5", "pcie_gen_max": "4"},
    ],
)
def test_what_is_as_it_should_be_is_no_finding(facts) -> None:
    assert findings.find({**HEALTHY_FACTS, **facts}, run_checks(VirtualBox())) == []


def test_what_the_facts_do_not_tell_is_said() -> None:
    assert findings.unknown(HEALTHY_FACTS) == []
    assert any("PCIe" in what for what in findings.unknown({"host": "bare"}))


# --- the profile ---------------------------------------------------------------------------


#: What copies into pageable memory cost beside their bytes.
PAGEABLE = {"pageable_copy_s": 9e-6, "pageable_batch_copy_s": 40e-6, "new_page_s": 2e-6}


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_profile_of_a_box_is_recovered_from_probes(factor: float) -> None:
    shipped = CostProfile.load().replace(**PAGEABLE)
    numbers = [f.name for f in dataclasses.fields(shipped) if f.type == "float"]
    holds = factor > 1
    own = shipped.replace(pageable_batch_holds=holds)
    own = own.replace(**{name: getattr(shipped, name) * factor for name in numbers})
    # A base that is wrong in everything: nothing may come from it.
    base = shipped.replace(**{name: getattr(shipped, name) * 7 for name in numbers})
    base = base.replace(pageable_batch_holds=not holds)
    measured = measure_speeds(VirtualBox(VirtualMachine(own)), copies_hold=False)
    found = fit_profile(measured, base, "box", "probes")
    for name in numbers:
        assert getattr(found, name) == pytest.approx(getattr(own, name), rel=RECOVERED), name
    assert found.pageable_batch_holds == holds


def test_without_pinned_copies_their_costs_are_the_bases_and_the_rest_is_measured() -> None:
    base = CostProfile.load()
    own = base.replace(d2h_pageable_bytes_per_s=3e9, block_wake_s=1e-3, **PAGEABLE)
    machine = VirtualMachine(own, pinned_available=False)
    found = fit_profile(measure_speeds(VirtualBox(machine), True), base, "box", "probes")
    assert found.d2h_pageable_bytes_per_s == pytest.approx(3e9, rel=RECOVERED)
    for name, cost in PAGEABLE.items():
        assert getattr(found, name) == pytest.approx(cost, rel=RECOVERED), name
    assert found.block_wake_s == pytest.approx(1e-3, rel=RECOVERED)
    assert found.d2h_pinned_bytes_per_s == base.d2h_pinned_bytes_per_s


def test_lines_weigh_small_and_large_sizes_alike() -> None:
    assert fit_line([(10, 3.0), (1000, 201.0)]) == pytest.approx((1.0, 0.2))
    assert fit_slope([(1, 5.0), (1000, 205.0)], fixed=5.0) == pytest.approx(0.2)
    fixed, _ = fit_line([(1, 1.0), (2, 3.0)])
    assert fixed == 0.0  # no cost is below nothing
    with pytest.raises(ProfileError, match="two different sizes"):
        fit_line([(1, 1.0), (1, 2.0)])
    with pytest.raises(ProfileError, match="take larger sizes"):
        fit_slope([(1, 1.0)], fixed=1.0)


# --- the recommendation --------------------------------------------------------------------

PROFILES = {
    "h200": {},
    "slow to wake": {"block_wake_s": 2e-3, "spin_wake_s": 50e-6},
    "slow link": {"d2h_pinned_bytes_per_s": 5e9, "d2h_pageable_bytes_per_s": 1e9},
}
STEPS = {
    "small": workloads.Workload("small", 4096, 3, 0.5e-3),
    "many": workloads.Workload("many", 1 << 20, 12, 2e-3),
    "large": workloads.Workload("large", 64 << 20, 1, 2e-3),
}


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("step", STEPS)
def test_no_policy_is_better_than_the_recommended_one(profile, step, goal) -> None:
    costs = CostProfile.load().replace(**PROFILES[profile])
    best = recommend(costs, STEPS[step], goal).best
    everything = predict_all(costs, STEPS[step])
    assert len(everything) == 36  # 2 x 2 x 3 x 2 x 2, less those with "single" and "thread"
    equals = everything
    for criterion in GOALS[goal]:
        share, seconds = TIES[criterion]
        values = {p.policy: getattr(p, criterion) for p in equals}
        most = min(values.values()) + max(share * min(values.values()), seconds)
        assert values[best.policy] <= most, criterion
        equals = [p for p in equals if values[p.policy] <= most]


def test_a_large_output_is_copied_on_a_second_stream_into_pinned_memory() -> None:
    advice = recommend(CostProfile.load(), STEPS["large"])
    assert (advice.best.policy.streams, advice.best.policy.memory) == ("dual", "pinned")
    assert advice.best.step_s < advice.naive.step_s / 2


def test_where_copies_hold_the_host_a_worker_thread_is_recommended() -> None:
    advice = recommend(CostProfile.load(), STEPS["large"], copies_hold=True)
    assert advice.best.policy.submit == "thread"
    assert {policy.memory for policy in candidates(copies_hold=True)} == {"pageable"}


def test_predictions_do_not_depend_on_what_was_predicted_before() -> None:
    profile, policy = CostProfile.load(), CopyPolicy(wait="hybrid")
    (alone,) = predict_all(profile, STEPS["many"], [policy])
    among = {p.policy: p for p in predict_all(profile, STEPS["many"])}[policy]
    assert among.step_s == pytest.approx(alone.step_s, rel=1e-9)
    assert among.result_latency_s == pytest.approx(alone.result_latency_s, rel=1e-6)


@pytest.mark.parametrize("name", workloads.SHAPES)
def test_named_workloads_have_the_bytes_and_tensors_of_the_suites(name: str) -> None:
    device = virtual_device()
    step = WORKLOADS[name].build(device)
    with device.times_only():
        output = step.enqueue(step.prepare(), CopyPolicy(copies="per_tensor", wait="spin"))
        output.get_output()
    copies = [record for record in device.machine.history if record.op == "d2h"]
    wanted = workloads.named(name)
    assert (wanted.num_bytes, wanted.tensors) == (
        sum(record.num_bytes for record in copies),
        len(copies),
    )


def test_every_workload_of_the_factorial_is_named() -> None:
    assert set(names.FACTORIAL_WORKLOADS) <= set(workloads.SHAPES)


def test_a_workload_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no workload 'x'; there are 'decode R=1 K=0'"):
        workloads.named("x")
    with pytest.raises(ValueError, match="give at least one tensor"):
        workloads.Workload("w", 1, 2)
    with pytest.raises(ValueError, match="give a time above 0"):
        workloads.Workload("w", 1, 1, 0.0)


# --- the command ---------------------------------------------------------------------------


def test_a_healthy_box_is_fine(capsys) -> None:
    assert main(SMALL, patient()) == FINE
    text = capsys.readouterr().out
    assert "nothing is off" in text
    assert "MODELLED on the virtual device from short probes of this box" in text
    assert "gain to expect (modelled)" in text


def test_what_is_off_counts_unless_it_is_accepted(capsys) -> None:
    assert main(SMALL, patient(host="vm")) == SOMETHING_IS_OFF
    assert "virtual_machine: This is a virtual machine" in capsys.readouterr().out
    assert main([*SMALL, "--accept", "virtual_machine"], patient(host="vm")) == FINE
    assert "virtual_machine (accepted)" in capsys.readouterr().out


def no_gpu() -> Any:
    raise DeviceUnavailableError("torch sees no CUDA device")


def dying() -> VirtualBox:
    box = VirtualBox()
    box.machine.fail_device(RuntimeError("CUDA error: unspecified launch failure"))
    return box


@pytest.mark.parametrize(
    ("box", "why"), [(no_gpu, "sees no CUDA device"), (dying, "unspecified launch failure")]
)
def test_a_box_that_cannot_be_looked_at_says_why_and_what_it_cannot_know(capsys, box, why) -> None:
    assert main(SMALL, patient(box)) == COULD_NOT_LOOK
    text = capsys.readouterr().out
    assert why in text
    assert "cannot tell: bandwidth and latency" in text
    assert "which is NOT this box" in text


def test_without_a_gpu_the_command_says_so_and_makes_no_context() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "-m", "asyncout.doctor", "--json", *SMALL], capture_output=True, text=True
    )
    assert done.returncode == COULD_NOT_LOOK, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["status"] == COULD_NOT_LOOK


def test_importing_the_doctor_makes_no_cuda_context_and_the_library_does_not_import_it() -> None:
    code = (
        "import sys, torch, asyncout\n"
        "assert not [name for name in sys.modules if name.startswith('asyncout.doctor')]\n"
        "import asyncout.doctor.command\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert not [name for name in sys.modules if name.startswith('benchmarks')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


#: Keys of the object that --json prints, whatever was seen.
KEYS = {
    "format",
    "status",
    "why_not",
    "probes_modelled",
    "facts",
    "checks",
    "speeds",
    "findings",
    "unknown",
    "profile",
    "recommendation",
    "model_errors",
}


@pytest.mark.parametrize(
    ("box", "status"), [(VirtualBox, FINE), (without_pinned, SOMETHING_IS_OFF), (no_gpu, 2)]
)
def test_the_object_for_scripts_has_the_same_keys_whatever_was_seen(capsys, box, status) -> None:
    assert main([*SMALL, "--json"], patient(box)) == status
    seen = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert set(seen) == KEYS
    assert (seen["format"], seen["status"]) == (1, status)
    assert (seen["why_not"] is None) == (status != COULD_NOT_LOOK)
    advice = seen["recommendation"]
    assert advice["modelled"] is True
    CopyPolicy(**advice["policy"])  # can be used as it is
    assert advice["predicted"]["step_s"] > 0
    for name in ("step_time_over_original", "step_time_over_naive"):
        assert advice[name] > 0
    for error in seen["model_errors"]:
        assert error["worst_error"] >= error["median_error"] >= 0
    if status != COULD_NOT_LOOK:
        assert set(seen["checks"]) == set(run_checks(VirtualBox()))
        assert set(seen["speeds"]["waits"]) == {"block", "spin", "hybrid"}
    for finding in seen["findings"]:
        assert set(finding) == {"name", "sentence", "accepted"}


def test_the_fitted_profile_can_be_kept_and_used_again(tmp_path, capsys) -> None:
    path = tmp_path / "box.json"
    assert main([*SMALL, "--save-profile", str(path)], patient()) == FINE
    assert CostProfile.load(path).machine == "Some GPU"
    assert main([*SMALL, "--what-if", "--json", "--profile", str(path)]) == FINE
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{\n") :])["profile"]["machine"] == "Some GPU"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "x"), "no workload 'x'"),
        (("--tensors", "2"), "--tensors goes with --bytes"),
        (("--bytes", "8", "--workload", "decode R=1 K=0"), "not both"),
        (("--bytes", "0"), "a byte for each"),
        (("--step-ms", "0"), "give a time above 0"),
        (("--profile", "nowhere"), "no profile 'nowhere'"),
        (("--accept", "x"), "invalid choice"),
    ],
)
def test_a_command_line_without_sense_is_refused(capsys, arguments, message) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments, patient())
    assert refused.value.code == COULD_NOT_LOOK
    assert message in capsys.readouterr().err


def test_the_facts_are_read_while_the_device_is_busy() -> None:
    box, seen = VirtualBox(), []

    def read() -> dict[str, str]:
        done = box.runtime.new_event()
        done.record(box.main)
        seen.append(done.query())
        return HEALTHY_FACTS

    examine(box, CostProfile.load(), read)
    assert seen == [False]


# --- what if -------------------------------------------------------------------------------


def test_links_carry_what_their_specifications_say() -> None:
    rates = {link.name: round(link.raw_bytes_per_s / 1e9, 2) for link in LINKS}
    assert rates == {
        "PCIe 3 x16": 15.75,
        "PCIe 4 x16": 31.51,
        "PCIe 5 x16": 63.02,
        "PCIe 6 x16": 118.0,
        "NVLink-C2C": 450.0,
    }
    assert pytest.approx(55.2 / 63.02, rel=1e-3) == EFFICIENCY


def test_a_pageable_copy_is_no_faster_than_its_link() -> None:
    slow, *_, fast = (link.on(CostProfile.load()) for link in LINKS)
    assert slow.d2h_pageable_bytes_per_s == slow.d2h_pinned_bytes_per_s
    assert fast.d2h_pageable_bytes_per_s == CostProfile.load().d2h_pageable_bytes_per_s


def test_faster_links_and_longer_steps_need_larger_outputs_to_break_even() -> None:
    step = workloads.Workload("w", 8 << 20, 1)
    answers = answer(CostProfile.load(), step, (0.5e-3, 2e-3))
    assert len(answers) == 2 * len(LINKS)
    for lengths in (answers[0::2], answers[1::2]):
        worth = [one.worth_from_bytes for one in lengths]
        assert worth == sorted(worth)
        one_stream = [one.one_stream_s for one in lengths]
        assert one_stream == sorted(one_stream, reverse=True)
        assert all(one.two_streams_s <= one.one_stream_s <= one.naive_s for one in lengths)
    for short, long in zip(answers[0::2], answers[1::2], strict=True):
        assert short.worth_from_bytes <= long.worth_from_bytes
        assert short.fills_step_bytes < long.fills_step_bytes


def test_the_break_even_is_the_least_size_on_the_curve_that_gains_enough() -> None:
    profile, step = CostProfile.load(), workloads.Workload("w", 1 << 20, 1)
    by_link = {one.link: one.worth_from_bytes for one in answer(profile, step, (step.step_s,))}
    for curve in curves(profile, step):
        least = min(size for size, gain in curve.points if gain >= WORTH_SHARE)
        assert by_link[curve.link] == least


def test_what_if_needs_no_gpu_and_labels_its_answers(tmp_path, capsys) -> None:
    picture = tmp_path / "curves.svg"
    assert main([*SMALL, "--what-if", "--svg", str(picture)], patient(no_gpu)) == FINE
    text = capsys.readouterr().out
    assert text.startswith("MODELLED from the profile")
    assert all(link.name in text for link in LINKS)
    drawn = picture.read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)
    assert "(modelled)" in drawn
    assert all(link.name in drawn for link in LINKS)
    assert main([*SMALL, "--what-if", "--json"], patient(no_gpu)) == FINE
    assert json.loads(capsys.readouterr().out)["modelled"] is True


def test_a_name_with_markup_does_not_break_the_picture() -> None:
    from asyncout.doctor.what_if import Curve

    step = workloads.Workload("<&>", 8, 1)
    ElementTree.fromstring(svg([Curve("<a & b>", ((4096, 0.1), (8192, 0.2)))], step))


# --- the model's own error -----------------------------------------------------------------


def test_the_models_errors_are_kept_and_read_back(tmp_path) -> None:
    kept = [Validation("box", "a" * 40, "step time", 16, 0.01, 0.02)]
    assert validation.load(validation.save(kept, tmp_path)) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "format 1"),
        ('{"format": 2}', "format 1"),
        ('{"format": 1, "validations": [{}]}', "must be a list"),
        ('{"format": 1}', "must be a list"),
    ],
)
def test_a_damaged_file_of_errors_is_refused_by_name(tmp_path, text, message) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=rf"damaged\.json.*{message}"):
        validation.load(path)


def test_where_no_error_is_known_the_doctor_says_so(monkeypatch, capsys) -> None:
    monkeypatch.setattr(command.validation, "known", list)
    assert main(SMALL, patient()) == FINE
    assert "the model's error is not known" in capsys.readouterr().out


# --- on a GPU ------------------------------------------------------------------------------


@pytest.mark.gpu
def test_on_a_gpu_the_doctor_sees_a_box_that_the_model_can_be_fitted_to(tmp_path, capsys) -> None:
    path = tmp_path / "box.json"
    accepted = [part for name in findings.names() for part in ("--accept", name)]
    assert main([*SMALL, *accepted, "--json", "--save-profile", str(path)]) == FINE
    seen = json.loads(capsys.readouterr().out)
    assert seen["probes_modelled"] is False
    assert seen["checks"]["separate_stream"]["holds"]
    profile = CostProfile.load(path)
    # No link is a hundred times slower or faster than PCIe 4.
    assert 0.3e9 < profile.d2h_pinned_bytes_per_s < 3e12
    assert all(wait["late_s"] < 0.1 for wait in seen["speeds"]["waits"].values())
