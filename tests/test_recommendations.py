"""The doctor's choices beside measured ones, on blocks whose ratios are known."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from asv.results import Results

from asyncout import ORIGINAL
from asyncout.doctor import workloads
from asyncout.doctor.predicting import predict_all
from asyncout.doctor.recommending import recommend
from asyncout.virtual import CostProfile
from benchmarks import bench_factorial, names
from benchmarks.devices import virtual_device
from benchmarks.fit import command, recommendations
from benchmarks.fit.recommendations import UNITY, Block, Outcome, Ratio, assess, observe, summarise
from benchmarks.grids import factorial
from benchmarks.results import Gain, ResultsError
from benchmarks.workloads import WORKLOADS

PIPELINED = names.block("pooling 256 x 4096 fp32", "pipelined", "2 ms")
SYNCHRONOUS = names.block("pooling 256 x 4096 fp32", "synchronous", "2 ms")

THE_ORIGINAL = factorial.policy_name(ORIGINAL)


@pytest.fixture(scope="module")
def profile() -> CostProfile:
    return CostProfile.load()


def block_of(profile: CostProfile, name: str) -> Block:
    """Give what question 4 would find on a box that is the doctor's model."""
    workload, loop, length = names.block_parts(name)
    step_s = names.STEP_LENGTHS[length]
    predictions = {
        factorial.policy_name(one.policy): one
        for one in predict_all(
            profile, workloads.named(workload, step_s), list(factorial.POLICIES.values())
        )
    }
    steps = factorial.steps_of_sample(step_s)
    times = {
        policy: recommendations.predicted_step_s(one, loop, step_s, profile, steps)
        for policy, one in predictions.items()
    }
    ratios = {policy: time / times[THE_ORIGINAL] for policy, time in times.items()}
    return {policy: Ratio(ratio, ratio, ratio) for policy, ratio in ratios.items()}


def gains_of(name: str, measured: Block, **changes: object) -> list[Gain]:
    """Give a block's rows as the results have them: none of the original's own."""
    return [
        Gain(
            **{  # type: ignore[arg-type]
                "question": 4,
                "workload": name,
                "arm": policy,
                "baseline": factorial.BASELINE,
                "metric": factorial.EACH,
                "unit": "seconds",
                "arm_value": 1e-3 * one.ratio,
                "baseline_value": 1e-3,
                "ratio": one.ratio,
                "low": one.low,
                "high": one.high,
                "bound": None,
                "verdict": "cannot tell",
                "pairs": 12,
                "machine": "box",
                "commit": "c" * 40,
                "modelled": False,
                **changes,
            }
        )
        for policy, one in measured.items()
        if policy != THE_ORIGINAL
    ]


def even(**others: Ratio) -> dict[str, Ratio]:
    """Give a block in which all policies are alike but some, whose dashes are written as _0_."""
    block = dict.fromkeys(factorial.POLICIES, UNITY)
    block.update({policy.replace("_0_", "-"): ratio for policy, ratio in others.items()})
    return block


# --- rows ----------------------------------------------------------------------------------


def test_a_block_has_the_rows_of_the_suite_and_the_original_as_one() -> None:
    rows = gains_of(PIPELINED, even(dual_0_pinned_0_spin_0_batched=Ratio(0.5, 0.4, 0.6)))
    assert {f"{row.arm} / {row.baseline}" for row in rows} == set(bench_factorial.EACH)
    assert bench_factorial.EachPolicy.metric == factorial.EACH
    other_metric = gains_of(PIPELINED, even(), metric=factorial.STEP_TIME)
    modelled = gains_of(SYNCHRONOUS, even(), modelled=True)
    blocks = observe([*rows, *other_metric, *modelled])
    assert list(blocks) == [PIPELINED]
    assert len(blocks[PIPELINED]) == 24
    assert blocks[PIPELINED][THE_ORIGINAL] == UNITY
    assert blocks[PIPELINED]["dual-pinned-spin-batched"] == Ratio(0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no measured rows 'step time of each policy'"),
        (gains_of(PIPELINED, even(), modelled=True), "no measured rows"),
        (gains_of(PIPELINED, even())[:-1], "2 ms: policies missing or unknown: dual-pinned-hybrid"),
        (
            [*gains_of(PIPELINED, even()), *gains_of(SYNCHRONOUS, even(), commit="d" * 40)],
            "of 2: name a machine and a commit",
        ),
        (gains_of(PIPELINED, even(), ratio=None), "has no ratio"),
    ],
)
def test_rows_that_tell_nothing_are_refused_by_name(rows, message) -> None:
    with pytest.raises(ResultsError, match=message):
        observe(rows)


# --- the assessment ------------------------------------------------------------------------


def test_on_a_box_that_is_the_model_the_choice_is_as_good_as_the_best(profile) -> None:
    blocks = {name: block_of(profile, name) for name in (PIPELINED, SYNCHRONOUS)}
    outcomes = assess(profile, blocks)
    assert [(one.block, one.goal) for one in outcomes] == [
        (PIPELINED, "throughput"),
        (SYNCHRONOUS, "latency"),
    ]
    for one in outcomes:
        assert one.is_as_good
        assert one.error == pytest.approx(0, abs=1e-9)
        assert one.predicted < 1


def test_the_choice_is_the_doctors_own_unless_that_has_a_worker_thread(profile) -> None:
    for name in (PIPELINED, SYNCHRONOUS):
        workload, loop, length = names.block_parts(name)
        shape = workloads.named(workload, names.STEP_LENGTHS[length])
        own = recommend(profile, shape, recommendations.GOALS[loop]).best.policy
        (one,) = assess(profile, {name: even()})
        assert one.wants_thread == (own.submit == "thread")
        assert one.wants_thread or one.recommended == factorial.policy_name(own)
        assert one.recommended in factorial.POLICIES


def test_a_thread_that_the_doctor_wants_is_said_and_not_recommended(profile) -> None:
    # Where each call of a copy takes longer than a step, issuing them elsewhere pays.
    slow_calls = profile.replace(call_copy_s=5e-3)
    shape = workloads.named("pooling 256 x 4096 fp32", 2e-3)
    assert recommend(slow_calls, shape).best.policy.submit == "thread"
    (one,) = assess(slow_calls, {PIPELINED: even()})
    assert one.wants_thread
    assert one.recommended in factorial.POLICIES
    assert summarise([one])[0].wants_thread == 1


@pytest.mark.parametrize("workload", ["pooling 256 x 4096 fp32", "logits 256 x 128256 fp32"])
@pytest.mark.parametrize("loop", names.LOOPS)
def test_a_predicted_step_is_that_of_the_suites_loop_on_the_virtual_device(workload, loop) -> None:
    device, step_s = virtual_device(), 2e-3
    step, steps = WORKLOADS[workload].build(device), factorial.steps_of_sample(2e-3)
    policies = [policy for policy in factorial.POLICIES.values() if policy.wait != "hybrid"]
    profile = device.machine.profile
    with device.times_only():
        for one in predict_all(profile, workloads.named(workload, step_s), policies):
            run = partial(
                factorial.LOOPS[loop],
                device,
                step,
                one.policy,
                partial(device.busy, step_s),
                steps,
            )
            run()  # events and blocks of memory are made
            predicted = recommendations.predicted_step_s(one, loop, step_s, profile, steps)
            assert predicted == pytest.approx(run(), rel=1e-3), one.policy


# --- what it comes to ----------------------------------------------------------------------


def outcome(
    measured: Ratio, best: Ratio, is_exact: bool = False, predicted: float = 1.0, **changes: object
) -> Outcome:
    values: dict[str, object] = {
        "block": "b",
        "loop": "pipelined",
        "goal": "throughput",
        "recommended": "x",
        "best": "x" if is_exact else "y",
        "predicted": predicted,
        "measured": measured,
        "best_measured": best,
        "default_measured": UNITY,
        "wants_thread": False,
        **changes,
    }
    return Outcome(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "best", "is_as_good"),
    [
        (Ratio(0.60, 0.55, 0.65), Ratio(0.50, 0.45, 0.56), True),  # intervals overlap
        (Ratio(0.60, 0.57, 0.65), Ratio(0.50, 0.45, 0.56), False),
        (Ratio(0.502, 0.5019, 0.5021), Ratio(0.50, 0.4999, 0.5001), True),  # 0.4 %
        (Ratio(0.503, 0.5029, 0.5031), Ratio(0.50, 0.4999, 0.5001), False),  # 0.6 %
        (UNITY, Ratio(0.8, 0.7, 1.1), True),  # the original's preset was recommended
    ],
)
def test_as_good_is_what_cannot_be_told_apart_or_hardly_costs(measured, best, is_as_good) -> None:
    assert outcome(measured, best).is_as_good is is_as_good


def test_a_summary_counts_and_names_the_worst_blocks() -> None:
    best = Ratio(0.5, 0.5, 0.5)
    outcomes = [
        outcome(best, best, is_exact=True, predicted=0.5, block="exact"),
        outcome(Ratio(0.501, 0.501, 0.501), best, predicted=0.4008, block="good"),
        outcome(Ratio(0.8, 0.8, 0.8), best, predicted=0.88, block="bad"),
        outcome(UNITY, UNITY, loop="synchronous", goal="latency", is_exact=True),
    ]
    pipelined, synchronous = summarise(outcomes)
    assert (pipelined.loop, pipelined.blocks, pipelined.exact, pipelined.as_good) == (
        "pipelined",
        3,
        1,
        2,
    )
    assert pipelined.median_regret == pytest.approx(0.002)
    assert pipelined.worst_regret == pytest.approx(0.6)
    assert pipelined.worst_regret_block == "bad"
    assert pipelined.median_error == pytest.approx(0.1)
    assert pipelined.worst_error == pytest.approx(0.2)  # too small a ratio is an error as well
    assert pipelined.worst_error_block == "good"
    # The default is no better than the original here.
    assert (pipelined.default_as_good, pipelined.default_worst_regret) == (0, 1.0)
    assert (synchronous.blocks, synchronous.exact, synchronous.worst_regret) == (1, 1, 0.0)


def test_the_measured_best_may_be_the_original_itself(profile) -> None:
    slower = {policy: Ratio(1.5, 1.4, 1.6) for policy in factorial.POLICIES}
    (one,) = assess(profile, {PIPELINED: {**slower, THE_ORIGINAL: UNITY}})
    assert one.best == THE_ORIGINAL
    assert not one.is_as_good
    assert one.regret == pytest.approx(0.5)


# --- the command, on files that asv's own classes wrote ------------------------------------


def save(folder: Path, blocks: dict[str, Block]) -> None:
    place = folder / "box"
    place.mkdir()
    (place / "machine.json").write_text(json.dumps({"machine": "box", "version": 1}))
    saved = Results({"machine": "box"}, {}, "c" * 40, 1, "3.12", "env", {})
    comparisons = bench_factorial.EACH
    arms = [
        [blocks[name][one.split(" / ")[0]].ratio] * 8 if name in blocks else None
        for name in names.BLOCKS
        for one in comparisons
    ]
    for method, samples in (
        ("track_arm", arms),
        ("track_baseline", [None if arm is None else [1.0] * 8 for arm in arms]),
    ):
        key = f"bench_factorial.EachPolicy.{method}"
        saved._results[key] = [None if values is None else values[0] for values in samples]
        saved._samples[key] = samples
        saved._benchmark_params[key] = [list(map(repr, names.BLOCKS)), list(map(repr, comparisons))]
        saved._stats[key] = [None] * len(samples)
    saved.save(str(folder))


def test_the_command_tells_and_keeps_what_it_found(tmp_path, capsys, profile) -> None:
    save(tmp_path, {name: block_of(profile, name) for name in (PIPELINED, SYNCHRONOUS)})
    file = tmp_path / "probed.profile"
    profile.replace(machine="a box").to_json(file)
    arguments = ["--machine", "box", "--results", str(tmp_path), "--recommendations"]
    assert command.main([*arguments, "--profile", str(file), "--save"]) == 0
    text = capsys.readouterr().out
    assert "box at cccccccc" in text
    assert "the doctor's profile: probed.profile, of a box: " in text
    assert "pipelined loop, goal throughput" in text
    assert "synchronous loop, goal latency" in text
    assert "predicted (MODELLED)" in text
    assert "of 1 blocks" in text
    line = json.loads((tmp_path / "box" / "recommendations.jsonl").read_text())
    assert (line["machine"], line["commit"]) == ("box", "c" * 40)
    assert line["profile"]["origin"] == "probed.profile"  # no path of this machine
    assert line["profile"]["machine"] == "a box"
    assert [one["loop"] for one in line["summary"]] == list(names.LOOPS)
    assert {one["block"] for one in line["blocks"]} == {PIPELINED, SYNCHRONOUS}
    assert all(one["is_as_good"] and abs(one["error"]) < 1e-9 for one in line["blocks"])
    assert line["blocks"][0]["measured"]["ratio"] == pytest.approx(line["blocks"][0]["predicted"])
    assert command.main([*arguments, "--profile", str(file), "--save"]) == 0  # asv's reader is fine
    assert len((tmp_path / "box" / "recommendations.jsonl").read_text().splitlines()) == 2


def test_without_a_profile_the_shipped_one_of_the_machine_is_asked_for(tmp_path, capsys) -> None:
    save(tmp_path, {PIPELINED: even()})
    arguments = ["--machine", "box", "--results", str(tmp_path), "--recommendations"]
    assert command.main(arguments) == 1
    assert "no profile 'box-fitted': shipped are" in capsys.readouterr().err
    assert command.main([*arguments, "--commit", "ffff"]) == 1
    assert "no results of commit 'ffff'" in capsys.readouterr().err
