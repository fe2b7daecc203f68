"""The suites: their cells on the virtual device, where answers are known, and what asv sees."""

from __future__ import annotations

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asv_runner.discovery import disc_benchmarks

from asyncout import ORIGINAL
from asyncout.virtual import VirtualMachine
from benchmarks import (
    bench_contention,
    bench_factorial,
    bench_library,
    bench_memory,
    bench_streams,
    bench_waits,
    measure,
    names,
    suite,
)
from benchmarks.devices import (
    AllocationError,
    NoDeviceError,
    VirtualDevice,
    cuda_device,
    without_allocations,
)
from benchmarks.grids import (
    contention,
    factorial,
    library,
    memory,
    plans,
    streams,
    waits,
)
from benchmarks.measure import PairedSamples
from benchmarks.rows import Row
from benchmarks.runner import mode
from benchmarks.workloads import WORKLOADS, SampledStep

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    bench_streams: streams,
    bench_memory: memory,
    bench_waits: waits,
    bench_factorial: factorial,
    bench_library: library,
    bench_contention: contention,
}


def rows_of(question, **environment) -> dict:
    return suite._by_key(plans.measure_question(question, VirtualDevice()))


@pytest.fixture(scope="module")
def full_rows():
    patch = pytest.MonkeyPatch()
    patch.setenv(mode.VARIABLE, "full")
    found = {question: rows_of(question) for question in MODULES.values()}
    patch.undo()
    return found


def ratio(row: Row) -> float:
    return measure.compare(row.samples).ratio


# --- known answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", names.STREAMS)
def test_two_streams_come_close_to_the_bound_and_never_below(full_rows, name: str) -> None:
    row = full_rows[streams][(streams.STEP_TIME, name, "two streams / one stream")]
    assert row.bound is not None
    # Filling and draining the pipeline is a tenth of ten steps at most.
    assert row.bound - 0.005 < ratio(row) < row.bound + 0.1 * (1 - row.bound) + 0.01


def test_one_stream_exposes_the_whole_copy(full_rows) -> None:
    share = full_rows[streams][
        (streams.EXPOSED_SHARE, "routed experts 8192 x 60 x 8", "two streams / one stream")
    ]
    assert share.samples.baseline[0] == pytest.approx(1, abs=0.05)
    assert share.samples.arm[0] < 0.2


def test_only_pageable_copies_hold_the_host(full_rows) -> None:
    row = full_rows[memory][(memory.HOST_HELD, "1 MiB", "pinned / pageable")]
    assert min(row.samples.baseline) > 1e-3
    assert max(row.samples.arm) < 1e-4


def test_waits_wake_and_burn_as_the_profile_says(full_rows) -> None:
    profile = VirtualMachine().profile
    wake = full_rows[waits][(waits.WAKE_UP, "5 ms", "spin / block")]
    assert wake.samples.arm[0] == pytest.approx(profile.spin_wake_s, abs=3e-6)
    assert wake.samples.baseline[0] == pytest.approx(profile.block_wake_s, abs=3e-6)
    burnt = full_rows[waits][(waits.CPU_SHARE, "5 ms", "hybrid / spin")]
    assert burnt.samples.baseline[0] == pytest.approx(1, abs=0.01)
    assert burnt.samples.arm[-1] < 0.2


def test_the_preset_costs_the_host_the_same_calls_as_the_original(full_rows) -> None:
    for name in names.OUTPUTS:
        row = full_rows[library][(library.ENQUEUE, name, f"{library.PRESET} / original")]
        assert ratio(row) == pytest.approx(1, abs=0.001)
        fast = full_rows[library][(library.ENQUEUE, name, f"{library.FAST} / original")]
        assert ratio(fast) < 0.5


def test_a_blocks_effects_are_those_of_the_least_squares(full_rows) -> None:
    from benchmarks.effects import estimate

    name = factorial.NAMES[4]
    (cell,) = factorial.cells(VirtualDevice(), name)
    samples = plans.run_arms(VirtualDevice(), cell)
    by_levels = {
        tuple(getattr(policy, factor) for factor in names.FACTORS): samples[arm]
        for arm, policy in factorial.POLICIES.items()
    }
    rows = {row.comparison: row for row in cell.rows(samples)}
    effects = estimate(names.FACTORS, by_levels)
    assert len(effects) == 5 + 9
    for effect in effects:
        if effect.is_interaction:
            (a, b), before = effect.levels, effect.references[1]
            found = rows[f"{a} with {b} / {a} with {before}"]
        else:
            found = rows[f"{effect.levels[0]} / {effect.references[0]}"]
        assert ratio(found) == pytest.approx(effect.ratio, rel=1e-6)


def test_a_block_knows_what_pays_there(full_rows) -> None:
    def effect(name: str, comparison: str) -> float:
        return ratio(full_rows[factorial][(factorial.STEP_TIME, name, comparison)])

    large = "logits 256 x 128256 fp32, synchronous, 30 ms"
    small = "decode R=1024 K=0, synchronous, 0.5 ms"
    assert effect(large, "pinned / pageable") < 0.95
    assert effect(small, "default / original") < 0.9
    pipelined = "decode R=256 K=20, pipelined, 2 ms"
    assert effect(pipelined, "dual / single") < 1
    assert effect(pipelined, "spin / block") <= 1


def test_the_blocks_of_the_full_mode_have_every_level_as_often_as_others() -> None:
    assert len(factorial.NAMES) == names.PART
    assert set(factorial.NAMES) <= set(factorial.NIGHTLY_NAMES)
    for place, levels in ((1, names.LOOPS), (2, tuple(names.STEP_LENGTHS))):
        counts = [
            sum(n.rsplit(", ", 2)[place] == level for n in factorial.NAMES) for level in levels
        ]
        assert max(counts) - min(counts) <= 1
    assert {n.rsplit(", ", 2)[0] for n in factorial.NAMES} == set(names.FACTORIAL_WORKLOADS)


def test_the_night_measures_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mode.VARIABLE, "nightly")
    assert plans._names(factorial) == names.BLOCKS
    assert plans._names(waits) == waits.NAMES


def test_an_offload_in_the_same_direction_is_in_the_way_and_chunks_are_no_help(full_rows) -> None:
    def effect(comparison: str) -> float:
        name = names.OFFLOADS[0]
        return ratio(full_rows[contention][(contention.READY, name, comparison)])

    assert effect("same direction / alone") > 100
    assert effect("other direction / alone") < 1.5
    # As on the H200: the engine stays with the stream of the chunks.
    assert 1 < effect("same direction, chunked / same direction") < 1.2


# --- workloads and the original ---------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_arrives_and_a_changed_value_is_noticed(name: str) -> None:
    device = VirtualDevice()
    step = WORKLOADS[name].build(device)
    result = step.enqueue(step.prepare(), ORIGINAL).get_output()
    step.verify(result)
    assert step.num_bytes > 0
    if isinstance(step, SampledStep):
        result.sampled_token_ids[0][0] += 1
    else:
        result.pooler_output[0] = result.pooler_output[0] + 1
    with pytest.raises(AssertionError, match="what arrived is not what was sent"):
        step.verify(result)


@pytest.mark.parametrize(
    "name", [n for n in WORKLOADS if n.split()[0] not in ("pooling", "logits", "routed")]
)
def test_the_preset_does_on_the_device_what_the_original_does(name: str) -> None:
    histories = []
    for construct in ("enqueue_original", "enqueue"):
        device = VirtualDevice()
        step = WORKLOADS[name].build(device)
        arguments = (ORIGINAL,) if construct == "enqueue" else ()
        output = getattr(step, construct)(step.prepare(), *arguments)
        step.verify(output.get_output())
        device.synchronize()
        kinds = [
            (record.op, record.stream, record.num_bytes)
            for record in device.machine.history
            if record.op != "free"
        ]
        copied = sorted(kind for kind in kinds if kind[0] == "d2h")
        histories.append(([kind for kind in kinds if kind[0] != "d2h"], copied))
    assert histories[0] == histories[1]


def test_without_a_gpu_measured_rows_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NoDeviceError, match=r"torch .* CUDA"):
        cuda_device()
    said: list[str] = []
    monkeypatch.setattr("benchmarks.runner.progress.report", said.append)
    monkeypatch.setenv(mode.VARIABLE, "smoke")
    cache = suite.collect("waits")
    assert cache[False] == {}
    assert len(cache[True]) > 0
    assert said[0].startswith("measured rows are n/a: torch")
    assert any(line == "question 3, modelled: 1 ms" for line in said)


def test_a_region_that_allocates_is_run_again_and_refused_in_the_end() -> None:
    class Allocating(VirtualDevice):
        counts = iter([0, 1, 1, 1])

        def host_allocations(self) -> int:
            return next(self.counts)

    runs: list[int] = []
    assert without_allocations(Allocating(), lambda: runs.append(1) or len(runs)) == 2
    device = Allocating()
    device.counts = iter(range(100))
    with pytest.raises(AllocationError, match="in each of 4 runs"):
        without_allocations(device, lambda: None)


# --- what asv sees ----------------------------------------------------------------------------


def classes(module) -> list[type[suite.Grid]]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, suite.Grid) and not name.startswith("_")
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_parameters_are_the_rows_that_the_grid_gives(module, full_rows) -> None:
    rows = full_rows[MODULES[module]]
    for grid in classes(module):
        assert grid.question == MODULES[module].QUESTION
        if not grid.modelled:
            continue
        here = {key[1:] for key in rows if key[0] == grid.metric}
        # These tests run in smoke mode, in which question 4 declares fewer blocks.
        workloads = names.BLOCKS_FULL if module is bench_factorial else grid.params[0]
        declared = {(w, c) for w in workloads for c in grid.params[1]}
        assert here, grid
        assert here <= declared
        if module not in (bench_library, bench_factorial):
            assert {w for w, _ in declared} - {w for w, _ in here} <= {
                "256 MiB",
                *names.STREAMS_REAL,
            }


@pytest.mark.parametrize(
    ("chosen", "blocks"),
    [
        ("smoke", names.BLOCKS_QUICK),
        ("quick", names.BLOCKS_FULL),
        ("full", names.BLOCKS_FULL),
        ("nightly", names.BLOCKS),
    ],
)
def test_question_4_declares_the_blocks_of_its_mode(chosen: str, blocks: tuple[str, ...]) -> None:
    code = (
        "from benchmarks import bench_factorial as b; print(*b.EachPolicy.params[0], sep=chr(10))"
    )
    environment = {**os.environ, mode.VARIABLE: chosen}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert tuple(done.stdout.splitlines()) == blocks, done.stderr


def test_quick_names_are_among_the_full_ones() -> None:
    for grid in MODULES.values():
        assert set(grid.QUICK_NAMES) <= set(grid.NAMES)
        assert len(grid.QUICK_NAMES) < len(grid.NAMES)


def test_every_modelled_class_says_so_in_its_name() -> None:
    for module in MODULES:
        for grid in classes(module):
            assert grid.__name__.endswith("Modelled") == grid.modelled


def test_asv_finds_the_questions_and_no_base_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = {benchmark.name for benchmark in disc_benchmarks(str(ROOT / "benchmarks"))}
    assert "bench_streams.StepTime.track_ratio" in found
    assert "bench_waits.WakeUpModelled.track_arm" in found
    assert not [name for name in found if not name.startswith("bench_")]


def test_listing_the_benchmarks_imports_neither_torch_nor_the_library() -> None:
    modules = [f"benchmarks.{path.stem}" for path in (ROOT / "benchmarks").glob("bench_*.py")]
    assert len(modules) > len(MODULES)
    code = (
        f"import sys, {', '.join(modules)}; "
        "print([m for m in ('torch', 'asyncout') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_row_becomes_samples_in_order_and_a_missing_one_is_not_a_number() -> None:
    grid = bench_streams.StepTime()
    samples = PairedSamples((2.0, 1.0, 3.0), (4.0, 4.0, 4.0))
    row = Row("step time", "w", "c", samples, bound=0.25)
    cache = {False: {("step time", "w", "c"): row}, True: {}}
    assert grid.track_arm(cache, "w", "c") == {"samples": [2.0, 1.0, 3.0], "number": 1}
    assert grid.track_baseline(cache, "w", "c")["samples"] == [4.0, 4.0, 4.0]
    assert grid.track_ratio(cache, "w", "c")["samples"] == [0.5, 0.25, 0.75]
    assert grid.track_bound(cache, "w", "c") == 0.25
    for method in (grid.track_arm, grid.track_baseline, grid.track_ratio, grid.track_bound):
        assert math.isnan(method(cache, "other", "c"))
    below = Row("step time", "w", "c", PairedSamples((1.0,), (-1.0,)))
    assert math.isnan(grid.track_ratio({False: {("step time", "w", "c"): below}}, "w", "c"))
