"""The gate: its status in each case, its statistics, and a planted commit from end to end."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate import builds, command, false_alarms, rounds, statuses, table, verdicts, worker
from benchmarks.gate.catalogue import PROBES, Metric, Probe, metrics_of
from benchmarks.gate.dialogue import Dialogue
from benchmarks.gate.errors import BuildError, GateError
from benchmarks.gate.rounds import BASE, HEAD
from benchmarks.gate.verdicts import FAILED, LOST, NOT_AVAILABLE, Judgement
from benchmarks.measure import CANNOT_TELL, FASTER, SLOWER, PairedSamples, SampleCountError
from benchmarks.planted import branch
from benchmarks.planted.plants import LATE_WAKE_UP, SLOW_ENQUEUE
from benchmarks.runner import commands

pytestmark = pytest.mark.commands

FAKE = Path(__file__).with_name("fake_worker.py")
TWO = (
    Probe("output", "w", (Metric("enqueue", "w", 0.05), Metric("get", "w", 0.05, False))),
    Probe("timing", "w", (Metric("timing", "w", 0.05),)),
)
METRIC = Metric("enqueue", "w", 0.05)


def gate(base: dict | None = None, head: dict | None = None, **options) -> rounds.Result:
    """Run the gate on fake workers."""
    wanted = {BASE: base or {}, HEAD: head or {}}

    def start(side: str) -> Dialogue:
        arguments = [sys.executable, "-S", str(FAKE), side, json.dumps(wanted[side])]
        return Dialogue(f"the {side}'s worker", arguments, FAKE.parent, commands.environ())

    return rounds.compare(start, TWO, **options)


def status(result: rounds.Result) -> int:
    return verdicts.exit_status(result.judgements, result.failure)


def verdicts_of(result: rounds.Result) -> list[str]:
    return [judgement.verdict for judgement in result.judgements]


# --- the status in each case --------------------------------------------------------------------


def test_a_slower_commit_gives_status_1() -> None:
    result = gate(head={"factor": 1.3})
    assert verdicts_of(result) == [SLOWER] * 3
    assert status(result) == 1
    assert result.judgements[0].ratio == pytest.approx(1.3)
    assert "slower" in table.as_text(result)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, CANNOT_TELL), (0.7, FASTER)])
def test_a_commit_that_is_not_slower_gives_status_0(factor: float, verdict: str) -> None:
    result = gate(head={"factor": factor})
    assert verdicts_of(result) == [verdict] * 3
    assert status(result) == 0


def test_a_change_within_the_least_effect_is_no_verdict() -> None:
    assert verdicts_of(gate(head={"factor": 1.04})) == [CANNOT_TELL] * 3


@pytest.mark.parametrize("when", ["greet", "settle", "open", "visit", "close"])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_worker_that_dies_gives_status_2_and_its_last_words(side: str, when: str) -> None:
    arguments = {side: {"dies": when}}
    if when == "greet":
        with pytest.raises(GateError, match=r"status 7 when asked to 'greet'.*\n.*off the bus"):
            gate(**arguments)
        return
    result = gate(**arguments)
    assert status(result) == 2
    assert set(verdicts_of(result)) == {FAILED}
    assert f"the {side}'s worker ended with status 7" in result.failure
    assert "off the bus" in table.as_text(result)


def test_a_worker_that_hangs_is_ended_and_gives_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "VISIT_TIMEOUT_S", 0.3)
    result = gate(head={"hangs": "visit"})
    assert status(result) == 2
    assert "did not answer 'visit' in 0.3 s and was ended" in result.failure


def test_an_answer_that_cannot_be_read_gives_status_2() -> None:
    result = gate(base={"babbles": "visit"})
    assert status(result) == 2
    assert "gave no answer to 'visit' but b'not JSON'" in result.failure


def test_a_feature_that_the_base_lacks_is_not_available_and_no_failure() -> None:
    result = gate(base={"lacks": [0]})
    assert verdicts_of(result) == [NOT_AVAILABLE, NOT_AVAILABLE, CANNOT_TELL]
    assert status(result) == 0
    assert "n/a: base: ImportError: no such name" in table.as_text(result)


def test_what_one_side_cannot_open_the_other_does_not_hold(tmp_path: Path) -> None:
    notes = tmp_path / "head"
    gate(base={"lacks": [0]}, head={"opened": str(notes)})
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert ["open", 0] in told
    assert all(
        then == ["close", probe] for (_, probe), then in zip(told[::2], told[1::2], strict=True)
    )


def test_a_feature_that_the_head_alone_lacks_is_lost_and_gives_status_2() -> None:
    result = gate(head={"lacks": [1]})
    assert verdicts_of(result) == [CANNOT_TELL, CANNOT_TELL, LOST]
    assert status(result) == 2


def test_nothing_measured_gives_status_2() -> None:
    result = gate(base={"lacks": [0, 1]}, head={"lacks": [0, 1]})
    assert set(verdicts_of(result)) == {NOT_AVAILABLE}
    assert status(result) == 2
    assert verdicts.exit_status([]) == 2


def test_wrong_bytes_give_status_2_unless_something_else_is_slower() -> None:
    assert status(gate(head={"breaks": [0]})) == 2
    assert verdicts_of(gate(head={"breaks": [0]})) == [FAILED, FAILED, CANNOT_TELL]
    assert status(gate(head={"breaks": [0], "factor": 1.3})) == 1


def test_a_missing_device_is_an_error_of_its_own() -> None:
    with pytest.raises(GateError, match=r"the base's worker has no device.*no CUDA device"):
        gate(base={"no_device": True}, head={"no_device": True})


def test_workers_on_different_devices_are_refused() -> None:
    with pytest.raises(GateError, match="one worker found a GPU and the other did not"):
        gate(base={"virtual": True})


def test_both_workers_of_a_pair_share_a_processor_and_a_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds.os, "sched_getaffinity", lambda _: {5, 3})
    notes = {side: tmp_path / side for side in rounds.SIDES}
    gate(**{side: {"notes": str(path)} for side, path in notes.items()})
    base, head = ([json.loads(line) for line in p.read_text().splitlines()] for p in notes.values())
    assert base == head
    places, paces = zip(*base, strict=True)
    assert places == tuple([3, 5] * len(places))[: len(places)]
    assert len(set(paces)) == len(paces) == rounds.plan_for(False, 3).processes


def test_without_a_choice_of_processors_the_system_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rounds.os, "sched_getaffinity")
    notes = tmp_path / "notes"
    gate(base={"notes": str(notes)})
    assert {json.loads(line)[0] for line in notes.read_text().splitlines()} == {None}


def test_a_worker_that_cannot_take_its_processor_is_named() -> None:
    with pytest.raises(
        GateError, match=r"the head's worker could not measure on processor \d+: OS"
    ):
        gate(head={"unsettled": True})


def test_a_worker_keeps_to_its_processor_and_to_the_pace_it_is_given() -> None:
    class Device:
        modelled = False
        cycles_per_second = 0.0

        def calibrate(self) -> float:
            return 7e8

    def settle() -> tuple[list[dict], set[int], float]:
        one = worker.Worker()
        one._device = Device()
        cpu = max(os.sched_getaffinity(0))
        answers = [one.settle(cpu, pace) for pace in (None, 2e9)]
        return answers, os.sched_getaffinity(0) ^ {cpu}, one._device.cycles_per_second

    with ThreadPoolExecutor(1) as thread:  # which keeps the processor to itself
        answers, elsewhere, pace = thread.submit(settle).result()
    assert answers == [{"cycles_per_second": 7e8}, {"cycles_per_second": 2e9}]
    assert not elsewhere
    assert pace == 2e9


def test_a_run_that_would_not_end_in_time_gives_status_2() -> None:
    result = gate(time_limit_s=0.0)
    assert status(result) == 2
    assert "0 s do not suffice: 1 of" in result.failure


def test_modelled_rows_need_one_pair_of_processes_and_leave_out_what_is_not_modelled() -> None:
    result = gate(base={"virtual": True}, head={"virtual": True, "factor": 1.3})
    assert [(j.metric.name, j.verdict) for j in result.judgements] == [
        ("enqueue", SLOWER),
        ("timing", SLOWER),
    ]
    assert "MODELLED" in table.as_text(result)
    assert table.MODELLED_NOTE in table.as_text(result)


# --- statistics -----------------------------------------------------------------------------------


def test_the_chances_of_all_metrics_add_up_to_the_false_alarm_at_most() -> None:
    assert verdicts.corrected_confidence(1) == pytest.approx(0.95)
    assert verdicts.corrected_confidence(12) == pytest.approx(1 - 0.05 / 12)
    assert verdicts.blocks_needed(0.95) == 6
    assert verdicts.blocks_needed(verdicts.corrected_confidence(12)) == 9


@pytest.mark.parametrize("spare", [0, 1])
def test_many_equal_metrics_rarely_alarm_and_would_often_without_the_correction(
    spare: int,
) -> None:
    # Each pair of processes has an offset of its own, which more pairs do not cancel.
    metrics, runs = 12, 300
    metric = Metric("m", "w", min_effect=0.0)
    corrected = verdicts.corrected_confidence(metrics)
    count = verdicts.blocks_needed(corrected, spare)
    random = np.random.default_rng(spare)
    alarms = {corrected: 0, 0.95: 0}
    for _ in range(runs):
        offsets = random.lognormal(0.0, 0.03, (metrics, count, 1))
        arms = offsets * random.lognormal(0.0, 0.05, (metrics, count, 6))
        blocks = [
            [PairedSamples(tuple(pairs), (1.0,) * 6) for pairs in one_metric] for one_metric in arms
        ]
        for confidence in alarms:
            found = [verdicts.judge(metric, one, confidence).verdict for one in blocks]
            alarms[confidence] += SLOWER in found
    assert alarms[corrected] / runs < 0.05
    assert alarms[0.95] / runs > 0.10


def test_a_block_counts_once_however_many_pairs_it_has() -> None:
    # Pairs of two processes only: a thousand of them are no more than two blocks.
    blocks = [PairedSamples((1.2,) * 500, (1.0,) * 500)] * 2
    with pytest.raises(SampleCountError):
        verdicts.judge(METRIC, blocks, 0.95)


def test_one_odd_pair_of_processes_neither_makes_nor_hides_a_verdict() -> None:
    confidence = verdicts.corrected_confidence(12)
    count = verdicts.blocks_needed(confidence, spare=1)
    usual, odd = PairedSamples((1.3,), (1.0,)), PairedSamples((0.8,), (1.0,))
    assert verdicts.judge(METRIC, [usual] * (count - 1) + [odd], confidence).verdict == SLOWER
    usual, odd = PairedSamples((1.0,), (1.0,)), PairedSamples((9.0,), (1.0,))
    assert verdicts.judge(METRIC, [usual] * (count - 1) + [odd], confidence).verdict == CANNOT_TELL


def test_slower_outranks_whatever_failed() -> None:
    rows = [Judgement(METRIC, FAILED), Judgement(METRIC, SLOWER), Judgement(METRIC, FASTER)]
    assert verdicts.exit_status(rows) == 1


def test_a_run_that_ended_early_is_not_green_even_if_all_was_measured() -> None:
    measured = [Judgement(METRIC, CANNOT_TELL)]
    assert verdicts.exit_status(measured) == 0
    assert verdicts.exit_status(measured, "a worker died while it was closed") == 2
    assert verdicts.exit_status([Judgement(METRIC, SLOWER)], "a worker died") == 1


def test_the_catalogue_names_each_metric_once() -> None:
    found = metrics_of(PROBES, modelled=False)
    assert len({(metric.name, metric.workload) for metric in found}) == len(found)
    assert set(metrics_of(PROBES, modelled=True)) < set(found)


# --- the command ----------------------------------------------------------------------------------


def test_a_commit_that_is_not_there_gives_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--base", "no-such-commit"]) == 2
    printed = capsys.readouterr()
    assert "names no commit" in printed.err
    assert "could not measure" in printed.err


def test_an_error_that_nobody_expected_gives_status_2_and_not_pythons_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(command, "compare_commits", fail)
    monkeypatch.setattr(builds, "resolve", lambda _, name: name)
    assert command.main([]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def make_repository(folder: Path, pyproject: str) -> Path:
    """Make a branch main, and one commit more on the present one, work."""
    folder.mkdir()
    git(folder, "init", "-q", "--initial-branch=main")
    commit_file(folder, "pyproject.toml", pyproject)
    git(folder, "switch", "-qc", "work")
    git(folder, "commit", "-qm", "one more", "--allow-empty")
    return folder


def commit_file(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", name)


def git(folder: Path, *arguments: str) -> None:
    named = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*named, *arguments], cwd=folder, check=True)


@pytest.mark.parametrize("base", ["work", "HEAD"])
def test_a_commit_is_not_compared_with_itself(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> None:
        raise AssertionError("nothing is to be built")

    monkeypatch.setattr(builds, "environment_for", build)
    repository = make_repository(tmp_path / "r", "")
    (repository / "pyproject.toml").write_text("changed, and not committed")
    assert command.main(["--base", base], repository) == 2
    said = capsys.readouterr().err
    assert f"measured nothing: base and head ({base} and HEAD) are the same commit" in said
    assert "name another BASE, or commit the changes in pyproject.toml" in said


def test_a_commit_that_cannot_be_built_gives_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository(tmp_path / "r", "this is no TOML")
    assert command.main([], repository) == 2
    assert "cannot be built; the last that was said" in capsys.readouterr().err
    with pytest.raises(BuildError):  # a build that failed is not kept as one that is there
        builds.environment_for(repository, builds.resolve(repository, "main"))


def test_a_commit_without_the_library_gives_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[project]\nname = "other"\nversion = "1"\n[tool.setuptools]\npackages = []\n'
    repository = make_repository(tmp_path / "r", text)
    assert command.main([], repository) == 2
    assert "asyncout is not installed in" in capsys.readouterr().err


#: Runs the gate's command as ``python -m benchmarks.gate`` does, on results that need no worker.
GUARDED = """
import sys
from benchmarks.gate import __main__, builds, command, rounds, statuses, verdicts
from benchmarks.gate.catalogue import Metric
row = verdicts.Judgement(Metric("enqueue", "w", 0.05), sys.argv.pop())
builds.resolve = lambda _, name: name
command.compare_commits = lambda *_: rounds.Result([row], "a fake", False, 0.95)
sys.exit(statuses.guarded(__main__.load))
"""


def run_guarded(verdict: str, **options) -> subprocess.CompletedProcess[bytes]:
    arguments = [sys.executable, "-c", GUARDED, verdict]
    # The buffer of an output that is no terminal is written at Python's end at the latest.
    environ = {**commands.environ(), "PYTHONUNBUFFERED": ""}
    return subprocess.run(arguments, cwd=commands.PROJECT, env=environ, **options)


def test_two_gates_at_once_build_a_commit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "r", "")
    commit = builds.resolve(repository, "main")
    second_does: queue.Queue[str] = queue.Queue()
    flock, built = builds.fcntl.flock, []

    def lock(file: object, operation: int) -> None:
        if operation == fcntl.LOCK_EX:  # without LOCK_NB: it waits
            second_does.put("waits")
        flock(file, operation)

    def wheel(*_: object) -> Path:
        if not built:
            built.append("by the first")
            threads.append(ThreadPoolExecutor(1))
            others.append(threads[0].submit(builds.environment_for, repository, commit))
            assert second_does.get(timeout=60) == "waits"
        else:
            built.append("by the second")
            second_does.put("builds")
        return tmp_path / "no.whl"

    threads: list[ThreadPoolExecutor] = []
    others: list[Future] = []
    monkeypatch.setattr(builds.fcntl, "flock", lock)
    monkeypatch.setattr(builds, "_wheel", wheel)
    monkeypatch.setattr(builds, "_run", lambda *_: None)
    environment = builds.environment_for(repository, commit)
    assert others[0].result(timeout=60) == environment
    threads[0].shutdown()
    assert built == ["by the first"]
    assert environment.python.exists()


def test_a_lock_whose_gate_is_gone_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "r", "")
    commit = builds.resolve(repository, "main")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builds, "_wheel", fail)
        with pytest.raises(KeyboardInterrupt):
            builds.environment_for(repository, commit)
    monkeypatch.setattr(builds, "_wheel", lambda *_: tmp_path)
    monkeypatch.setattr(builds, "_run", lambda *_: None)
    assert builds.environment_for(repository, commit).python.exists()


@pytest.mark.parametrize(("verdict", "status"), [(CANNOT_TELL, 0), (SLOWER, 1), (FAILED, 2)])
def test_the_guard_keeps_the_status(verdict: str, status: int) -> None:
    assert run_guarded(verdict, capture_output=True).returncode == status


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("verdict", [CANNOT_TELL, FAILED])
def test_an_output_that_takes_nothing_gives_status_2(stream: str, verdict: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run_guarded(verdict, **{stream: full})
    # Nothing is said on the standard error output when all went well.
    said_nothing = stream == "stderr" and verdict == CANNOT_TELL
    assert done.returncode == (0 if said_nothing else 2)


def test_a_pipe_that_nobody_reads_gives_status_2() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = run_guarded(CANNOT_TELL, stdout=theirs, stderr=subprocess.PIPE)
    finally:
        os.close(theirs)
    assert done.returncode == 2
    assert b"BrokenPipeError" in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_what_is_left_in_the_buffer_gives_status_2_when_it_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert statuses.guarded(lambda: lambda: print("said, and not written") or 0) == 2


def test_a_command_that_cannot_be_imported_gives_status_2_and_not_pythons_1(
    tmp_path: Path,
) -> None:
    package = tmp_path / "benchmarks" / "gate"
    package.mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "statuses.py"):
        (package / name).write_bytes((commands.PROJECT / "benchmarks/gate" / name).read_bytes())
    (package.parent / "__init__.py").touch()
    (package / "command.py").write_text("this is no Python\n")
    arguments = [sys.executable, "-m", "benchmarks.gate"]
    done = subprocess.run(arguments, cwd=tmp_path, env=commands.environ(), capture_output=True)
    assert done.returncode == 2
    assert b"SyntaxError" in done.stderr


@pytest.mark.parametrize("status", [0, 1, 2])
def test_make_exits_with_the_gates_status(tmp_path: Path, status: int) -> None:
    write_makefile(tmp_path, f"sh -c 'exit {status}'")

    def heed_quit() -> None:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell's background job ignores it

    done = subprocess.run(["make", "gate"], cwd=tmp_path, capture_output=True, preexec_fn=heed_quit)
    assert done.returncode == status


@pytest.mark.parametrize("name", ["BASE", "HEAD"])
def test_make_takes_no_empty_name_for_the_default(tmp_path: Path, name: str) -> None:
    write_makefile(tmp_path, "echo ran")
    unset = {key: value for key, value in os.environ.items() if key not in ("BASE", "HEAD")}
    by_environment = run_make(tmp_path, [], {**unset, name: ""})
    by_argument = run_make(tmp_path, [f"{name}="], unset)
    for done in (by_environment, by_argument):
        assert done.returncode == 2
        assert f"{name} is given but empty" in done.stderr
        assert "ran" not in done.stdout
    assert f"--{name.lower()} abc" in run_make(tmp_path, [f"{name}=abc"], unset).stdout
    assert run_make(tmp_path, [], unset).stdout.strip() == "ran -m benchmarks.gate"


def write_makefile(folder: Path, run: str) -> None:
    """Write the gate's own recipe, with another command to run."""
    makefile = (commands.PROJECT / "Makefile").read_text()
    recipe = makefile[makefile.index("gate: $(READY)") :].partition("\n\n")[0]
    (folder / "Makefile").write_text(f"RUN := {run}\n{recipe}\n")


def run_make(
    folder: Path, arguments: list[str], environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    # Not a part of the make that may run the tests: that exports its ARGS as well.
    environ = {
        key: value for key, value in environ.items() if not key.startswith("MAKE") and key != "ARGS"
    }
    make = ["make", "gate", *arguments]
    return subprocess.run(make, cwd=folder, env=environ, capture_output=True, text=True)


# --- what is started ends -------------------------------------------------------------------------


class Held:
    """A FIFO that tells whether somebody still has it open, who may be nobody's child.

    Attributes
    ----------
    path : Path
        To be opened for writing by what has to end.
    """

    #: Seconds until a process counts as one that goes on; a killed one is gone at once.
    PATIENCE_S = 10

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._ours = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def was_let_go(self) -> bool:
        """Whether it was opened, and all who had it open have ended."""
        readable, _, _ = select.select([self._ours], [], [], self.PATIENCE_S)
        return bool(readable) and os.read(self._ours, 1) == b""

    def close(self) -> None:
        os.close(self._ours)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    one = Held(tmp_path / "held")
    yield one
    one.close()


@pytest.fixture
def terminations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """What a SIGTERM calls that the gate does not take; else it would end the tests."""

    def not_taken(*_: object) -> None:
        raise AssertionError("the gate did not take SIGTERM")

    before = signal.signal(signal.SIGTERM, not_taken)
    # A shell's background job, which the tests may be, ignores this one.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield not_taken
    signal.signal(signal.SIGTERM, before)
    signal.signal(signal.SIGINT, interrupts)


def test_a_terminated_gate_ends_its_workers_and_what_they_started(
    held: Held,
    terminations: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {"holds": str(held.path), "terminates": "visit"}
    monkeypatch.setattr(command, "compare_commits", lambda *_: gate(head=wanted))
    monkeypatch.setattr(builds, "resolve", lambda _, name: name)
    assert command.main([]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert held.was_let_go()
    assert signal.getsignal(signal.SIGTERM) is terminations


def test_a_terminated_gate_ends_a_build_and_what_it_started(
    held: Held, terminations: Callable[..., None], tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "r", '[project]\nname = "hangs"\nversion = "1"\n')
    setup = f"""
import os, signal, time
held = os.open({str(held.path)!r}, os.O_WRONLY)
os.kill({os.getpid()}, signal.SIGTERM)
time.sleep(60)
"""
    commit_file(repository, "setup.py", setup)
    assert command.main(["--base", "work", "--head", "main"], repository) == 130
    assert held.was_let_go()


def test_what_a_dead_worker_started_ends_with_it(held: Held) -> None:
    result = gate(base={"holds": str(held.path), "dies": "visit"})
    assert "ended with status 7" in result.failure
    assert held.was_let_go()


def test_both_workers_are_ended_when_ending_the_first_is_interrupted_too() -> None:
    told = []

    class Interrupted:
        def __init__(self, side: str) -> None:
            self.side = side

        def send(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

        def kill(self) -> None:
            told.append(("kill", self.side))

        def close(self) -> None:
            told.append(("close", self.side))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rounds.compare(Interrupted, TWO)
    assert told == [("kill", BASE), ("kill", HEAD), ("close", HEAD), ("close", BASE)]


# --- from end to end, on the virtual device -------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A clone with the present commit, an unchanged one, and one with both plants."""
    folder = tmp_path_factory.mktemp("gate") / "clone"
    begin = branch.clone(commands.PROJECT, folder)
    made = branch.make_commits(folder, [None, SLOW_ENQUEUE, LATE_WAKE_UP])
    return folder, [begin.commit, made[0].commit, made[2].commit]


def test_a_planted_commit_is_slower_in_what_was_planted_and_in_nothing_else(
    planted: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (begin, _, slow) = planted
    arguments = ["--device", "virtual", "--json", str(tmp_path / "j")]
    assert command.main(["--base", begin, "--head", slow, *arguments], folder) == 1
    rows = json.loads((tmp_path / "j").read_text())["rows"]
    slower = {row["metric"] for row in rows if row["verdict"] == SLOWER}
    assert {"enqueue", "wake-up latency"} <= slower <= {"enqueue", "wake-up latency", "step time"}
    enqueue = [row["ratio"] for row in rows if row["metric"] == "enqueue"]
    assert enqueue == [pytest.approx(1.3, abs=0.01)] * 3
    assert "gate: SLOWER" in capsys.readouterr().out


def test_an_unchanged_commit_gives_status_0(
    planted: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (begin, unchanged, _) = planted
    arguments = ["--base", begin, "--head", unchanged, "--device", "virtual"]
    assert command.main(arguments, folder) == 0
    assert "gate: nothing is slower" in capsys.readouterr().out


def test_a_demanded_gpu_that_is_not_there_gives_status_2(
    planted: tuple[Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder, (begin, unchanged, _) = planted
    arguments = ["--base", begin, "--head", unchanged, "--device", "gpu"]
    assert command.main(arguments, folder) == 2
    assert "has no device to measure on" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["json", "table"])
def test_a_table_that_cannot_be_kept_or_printed_gives_status_2(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = gate()
    monkeypatch.setattr(command, "compare_commits", lambda *_: result)
    monkeypatch.setattr(builds, "resolve", lambda _, name: name)
    arguments = ["--base", "a", "--head", "b"]
    assert command.main([*arguments, "--json", str(tmp_path / "j")]) == 0
    if fault == "table":
        monkeypatch.setattr(command.table, "as_text", lambda _: 1 / 0)
        assert command.main(arguments) == 2
    else:
        assert command.main([*arguments, "--json", str(tmp_path / "none" / "j")]) == 2
    assert "could not measure" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_commit_against_itself_is_measured_on_the_gpu(
    planted: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # One pair of processes instead of many: it shows that all can be measured, not the noise.
    plan = rounds.Plan(processes=1, blocks=13, pairs=1, warm=1, counted=1)
    monkeypatch.setattr(rounds, "plan_for", lambda modelled, metrics: plan)
    folder, (begin, unchanged, _) = planted
    arguments = ["--base", begin, "--head", unchanged, "--device", "gpu"]
    command.main([*arguments, "--json", str(tmp_path / "j")], folder)
    found = json.loads((tmp_path / "j").read_text())
    assert not found["modelled"]
    assert found["failure"] == ""
    assert {row["verdict"] for row in found["rows"]} <= set(verdicts.MEASURED)


def test_runs_of_a_commit_against_itself_add_up_in_a_file(
    planted: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, (begin, _, _) = planted
    path = tmp_path / "results" / "alarms.jsonl"
    arguments = ["--commit", begin, "--device", "virtual", "--output", str(path), "--times", "1"]
    assert false_alarms.main(arguments, folder) == 0
    assert false_alarms.main(arguments, folder) == 0
    found, runs = false_alarms.read(path)
    assert (found["runs"], found["runs_with_alarm"], len(runs)) == (2, 0, 2)


# --- the file of false alarms ---------------------------------------------------------------------


def run_of(result: rounds.Result, commit: str = "c" * 40) -> dict:
    return false_alarms.describe(result, commit, 1.0)


def test_alarms_are_counted_by_run_and_by_metric(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    false_alarms.add(path, run_of(gate()))
    false_alarms.add(path, run_of(gate(head={"factor": 1.3})))
    found, runs = false_alarms.read(path)
    assert (found["runs"], found["runs_with_alarm"]) == (2, 1)
    assert runs[1]["alarms"] == ["enqueue, w", "get, w", "timing, w"]
    assert "1 of 2 runs called it slower" in false_alarms.as_text(found)


def interrupted_in_the_second_run(stop: Callable[[], None]) -> Callable[..., rounds.Result]:
    runs = iter([gate()])

    def compare(*_: object) -> rounds.Result:
        for result in runs:
            return result
        stop()
        raise AssertionError("it goes on")

    return compare


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_count_gives_status_130_and_keeps_the_runs_so_far(
    number: signal.Signals,
    terminations: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compare = interrupted_in_the_second_run(lambda: signal.raise_signal(number))
    monkeypatch.setattr(command, "compare_commits", compare)
    monkeypatch.setattr(builds, "resolve", lambda *_: "c" * 40)
    path = tmp_path / "a.jsonl"
    assert false_alarms.main(["--times", "3", "--output", str(path)]) == 130
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "Traceback" not in said
    assert false_alarms.read(path)[0]["runs"] == 1
    assert signal.getsignal(signal.SIGTERM) is terminations


def test_a_file_that_cannot_be_written_whole_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    run = run_of(gate())
    false_alarms.add(path, run)
    write = Path.write_text

    def cut(self: Path, text: str, **options: str) -> None:
        write(self, text[:40], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", cut)
        with pytest.raises(KeyboardInterrupt):
            false_alarms.add(path, run)
    assert false_alarms.read(path)[0]["runs"] == 1
    false_alarms.add(path, run)
    assert false_alarms.read(path)[0]["runs"] == 2
    assert [found.name for found in tmp_path.iterdir()] == ["a.jsonl"]


def test_runs_of_another_commit_and_edited_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    result = gate()
    false_alarms.add(path, run_of(result))
    with pytest.raises(false_alarms.ResultFileError, match="another commit, device or method"):
        false_alarms.add(path, run_of(result, "d" * 40))
    text = path.read_text()
    for damaged in (text[:-40], text.replace('"runs": 1', '"runs": 9'), "{}\n", ""):
        path.write_text(damaged)
        with pytest.raises(false_alarms.ResultFileError):
            false_alarms.read(path)
