"""Contributions: what is made is taken, and each way to spoil one is refused with its reason."""

from __future__ import annotations

import codecs
import copy
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_factorial, names
from benchmarks.contributions import __main__, add, bundle, check, known, texts
from benchmarks.contributions.errors import REASONS, RefusedError
from benchmarks.contributions.known import Known
from benchmarks.runner.errors import RepositoryError
from tests import pages_project

MACHINE = "box-a"
ARM, BASELINE, RATIO, BOUND = (
    f"bench_streams.StepTime.track_{method}" for method in ("arm", "baseline", "ratio", "bound")
)

#: Places in one of asv's rows.
RESULT, PARAMS, VERSION, STARTED, DURATION, CI_LOW, Q25 = 0, 1, 2, 3, 4, 5, 7
NUMBER, REPEAT, SAMPLES = 9, 10, 11

#: Texts that mean something to a page, a terminal or a shell.
HOSTILE = (
    "<script>x</script>",
    "a&b",
    'a"b',
    "a'b",
    "a`b`",
    "a\\b",
    "\x1b[2J",
    "a\nb",
    "é",
    "a" * 201,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages_project.make(tmp_path_factory.mktemp("project"), (MACHINE, "nogpu-x86-2"))


@pytest.fixture(scope="module")
def here(project: Path) -> Known:
    return known.read(project)


@pytest.fixture
def folder(project: Path, tmp_path: Path) -> Path:
    """A machine's folder with the results of two commits, which a test may spoil."""
    target = tmp_path / "results" / MACHINE
    target.mkdir(parents=True)
    source = project / "results" / MACHINE
    kept = sorted(source.glob("*-inherit-*"))[:2]
    facts = [source / f"facts-{path.name[:8]}.jsonl" for path in kept]
    for path in (source / "machine.json", *kept, *facts):
        shutil.copy(path, target)
    return target


def pack(folder: Path) -> Path:
    """Make the file, also of what would be refused."""
    path = folder.parent.parent / "sent.json"
    bundle.write(bundle.collect(folder), path)
    return path


def first(folder: Path) -> Path:
    return sorted(folder.glob("*-inherit-*"))[0]


def spoil(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file; the change may give another value to be written."""
    data = json.loads(path.read_text())
    changed = change(data)
    path.write_text(json.dumps(data if changed is None else changed))


def refused(path: Path, here: Known) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check.check(path, here)
    assert caught.value.reason in REASONS
    assert str(caught.value).startswith(f"refused ({caught.value.reason}): ")
    assert str(caught.value).isprintable()
    return caught.value


# What is good


def test_what_is_made_is_taken_and_can_be_read_by_the_report(folder, here, tmp_path) -> None:
    path = pack(folder)
    found = check.check(path, here)
    assert len(found.commits) == 2
    assert found.measured == found.modelled > 0
    target = tmp_path / "taken"
    new = add.add(found, target)
    assert sorted(p.name for p in new) == sorted(p.name for p in folder.iterdir())
    for taken in new:
        assert taken.read_text() == (folder / taken.name).read_text()
    assert add.add(found, target) == []  # the same again changes nothing


def test_the_committed_results_would_be_taken(tmp_path) -> None:
    results = pages_project.ROOT / "results"
    for machine in sorted(path.parent for path in results.glob("*/machine.json")):
        path = tmp_path / "sent.json"
        bundle.write(bundle.collect(machine), path)
        units = known_units(results)
        files = [json.loads(p.read_text()) for p in machine.glob("*-*.json")]
        commits = {data["commit_hash"]: data["date"] for data in files}
        here = Known(units, commits, known.grids())
        assert len(check.check(path, here).commits) == len(commits)


def known_units(results: Path) -> dict[str, str]:
    table = json.loads((results / "benchmarks.json").read_text())
    return {name: b["unit"] for name, b in table.items() if isinstance(b, dict)}


def test_a_machine_without_a_gpu_may_contribute_its_modelled_rows(project, here, tmp_path) -> None:
    path = tmp_path / "sent.json"
    bundle.write(bundle.collect(project / "results" / "nogpu-x86-2"), path)
    found = check.check(path, here)
    assert found.measured == 0
    assert found.modelled > 0


def test_what_was_not_measured_and_what_has_no_ratio_is_taken(folder, here) -> None:
    def change(data: Any) -> None:
        exposed(data)
        rows = [data["results"][of_exposed(name)] for name in (ARM, BASELINE, RATIO)]
        for row in rows:
            row[RESULT][0] = math.nan
            empty(row, 0)
        _, baseline, ratio = rows
        baseline[SAMPLES][1][0] = -1e-9
        baseline[CI_LOW][1] = baseline[Q25][1] = -1e-9
        ratio[RESULT][1] = math.nan
        empty(ratio, 1)

    spoil(first(folder), change)
    assert check.check(pack(folder), with_exposed(here))


def of_exposed(name: str) -> str:
    return name.replace("StepTime", "ExposedTime")


def exposed(data: Any) -> None:
    """Add a class whose samples are differences: the figures of the one that is there."""
    for name in (ARM, BASELINE, RATIO):
        data["results"][of_exposed(name)] = copy.deepcopy(data["results"][name])


def with_exposed(here: Known) -> Known:
    return replace(here, units={**here.units, **{of_exposed(n): u for n, u in here.units.items()}})


def empty(row: list[Any], cell: int) -> None:
    """Leave a cell as asv does one that was not measured."""
    for column in range(CI_LOW, SAMPLES + 1):
        row[column][cell] = None


@pytest.mark.parametrize("value", [0.0, -1e-3, 1e-320])
def test_only_a_difference_may_have_an_arm_that_is_not_above_zero(
    folder, here, value: float
) -> None:
    def change(data: Any, names: Callable[[str], str] = str) -> None:
        """Change the smallest sample of the arm, and with it what is said of it."""
        for name in (ARM, RATIO):
            row = data["results"][names(name)]
            row[SAMPLES][0][0] = row[CI_LOW][0] = row[Q25][0] = value
        row[SAMPLES][0][0] = value / data["results"][names(BASELINE)][SAMPLES][0][0]
        row[CI_LOW][0] = row[Q25][0] = row[SAMPLES][0][0]

    results = first(folder)
    whole = results.read_text()
    spoil(results, exposed)
    spoil(results, lambda data: change(data, of_exposed))
    assert check.check(pack(folder), with_exposed(here))
    results.write_text(whole)
    spoil(results, change)
    assert refused(pack(folder), here).reason == "figures"


def test_a_baseline_that_is_not_above_zero_is_refused_without_a_ratio_too(folder, here) -> None:
    def change(data: Any) -> None:
        row = data["results"][BASELINE]
        row[SAMPLES][0][0] = row[CI_LOW][0] = row[Q25][0] = -1e-9
        data["results"][RATIO][RESULT][0] = math.nan
        empty(data["results"][RATIO], 0)

    spoil(first(folder), change)
    assert refused(pack(folder), here).reason == "figures"


def test_pictures_and_reports_stay_out_of_the_file(folder) -> None:
    (folder / "REPORT.md").write_text("x")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "streams.svg").write_text("<svg onload='x'/>")
    assert all(texts.file_name(name) for name in bundle.collect(folder).files)
    assert len(bundle.collect(folder).files) == 5


# Cut, foreign, edited


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_cut_file_is_refused(folder, here, share: float) -> None:
    path = pack(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert refused(path, here).reason == "cut"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "foreign"),
        (b"[1, 2]", "foreign"),
        (b"\x1f\x8b\x08\x00", "foreign"),
        (b'{"coffee": 1}', "foreign"),
        (b'{"format": "asyncout results", "version": 2}', "version"),
        (b'{"format": "asyncout results", "version": 1, "files": {}}', "schema"),
        (b'{"format": "\xff"}', "cut"),
        (b'{"a": 1, "a": 2}', "schema"),
        (b'{"a": ' + b"[" * 100_000, "schema"),
        (b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}", "schema"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, here, content: bytes, reason: str) -> None:
    path = tmp_path / "sent.json"
    path.write_bytes(content)
    assert refused(path, here).reason == reason


def test_a_file_that_is_not_there_is_refused(tmp_path, here) -> None:
    assert refused(tmp_path / "no.json", here).reason == "unreadable"


def test_an_edited_file_is_refused_by_its_checksums(folder, here) -> None:
    path = pack(folder)
    name = first(folder).name

    def edit(data: Any) -> None:
        data["files"][name] = data["files"][name].replace("0.1", "0.2", 1)

    spoil(path, edit)
    assert refused(path, here).reason == "changed"

    path = pack(folder)
    spoil(path, lambda data: data["files"].pop(name) and None)
    assert refused(path, here).reason == "changed"

    def mend(data: Any) -> None:  # the checksum of the file, but not of the list
        edit(data)
        data["sha256"][name] = hashlib.sha256(data["files"][name].encode()).hexdigest()

    path = pack(folder)
    spoil(path, mend)
    assert refused(path, here).reason == "changed"

    path = pack(folder)
    spoil(path, lambda data: data.update(machine="box-b"))
    assert refused(path, here).reason == "changed"


def test_of_too_large_a_file_no_more_is_read_than_shows_it(folder, here, monkeypatch) -> None:
    path = pack(folder)
    monkeypatch.setattr(bundle, "LARGEST", path.stat().st_size)
    assert check.check(path, here)

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size == bundle.LARGEST + 1
            return b"{" * size

    monkeypatch.setattr(bundle, "LARGEST", 99)
    monkeypatch.setattr(Path, "open", lambda self, mode: Endless())
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("all of it was read"))
    assert refused(path, here).reason == "too large"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_unread(tmp_path, here, monkeypatch, kind: str) -> None:
    path = tmp_path / "sent.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    for name in ("open", "read_bytes"):
        monkeypatch.setattr(Path, name, lambda self, *mode: pytest.fail("it was opened"))
    assert refused(path, here).reason == "unreadable"


def test_a_mark_of_utf_8_before_the_text_is_no_part_of_it(folder, here) -> None:
    path = pack(folder)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert check.check(path, here)


def test_too_many_files_are_refused(folder, here) -> None:
    path = pack(folder)
    many = {f"facts-{i:08x}.jsonl": "" for i in range(bundle.MOST_FILES + 1)}
    spoil(path, lambda data: data.update(files=many))
    assert refused(path, here).reason == "too large"


# Paths and names


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.json", "/etc/passwd", "a/b.json", "..\\b.json", "machine.json/x", ".git",
        "benchmarks.json", "aaaaaaaa-env.json\n", "aaaaaaaa-../x.json", "x.py", "", "facts-x.jsonl",
        "pictures", "REPORT.md", "machine.json ", "aaaaaaaa-.json", "AAAAAAAA-env.json",
    ],
)  # fmt: skip
def test_a_name_that_is_no_results_files_is_refused(folder, here, name: str) -> None:
    path = pack(folder)
    spoil(path, lambda data: data["files"].update({name: "{}"}))
    assert refused(path, here).reason == "path"


@pytest.mark.parametrize(
    "name",
    ["", "..", ".", "../x", "a/b", "A", "a b", "con", "nul.x", "-", "a.", "<b>", "x" * 65, 1],
)
def test_a_machine_name_that_is_no_folders_is_refused(folder, here, name: Any) -> None:
    path = pack(folder)
    spoil(path, lambda data: data.update(machine=name))
    assert refused(path, here).reason == "machine"
    with pytest.raises(RefusedError):
        texts.machine_name(name)


def test_a_link_in_the_results_folder_is_not_written_through(folder, here, tmp_path) -> None:
    found = check.check(pack(folder), here)
    target, outside = tmp_path / "taken", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / MACHINE).symlink_to(outside)
    with pytest.raises(RefusedError, match="is a link"):
        add.add(found, target)
    assert list(outside.iterdir()) == []


def test_results_that_are_there_are_never_overwritten(folder, here, tmp_path) -> None:
    found = check.check(pack(folder), here)
    target = tmp_path / "taken"
    add.add(found, target)
    spoil(first(target / MACHINE), lambda data: data.update(durations={}))
    before = {path: path.read_text() for path in (target / MACHINE).iterdir()}
    with pytest.raises(RefusedError) as caught:
        add.add(found, target)
    assert caught.value.reason == "exists"
    assert before == {path: path.read_text() for path in (target / MACHINE).iterdir()}
    (target / MACHINE / "machine.json").write_text("{}")
    with pytest.raises(RefusedError) as caught:
        add.add(found, target)
    assert caught.value.reason == "machine"


def second_environment(folder: Path) -> Path:
    """Write another result of the first commit, as of another environment."""
    data = json.loads(first(folder).read_text())
    path = folder / f"{data['commit_hash'][:8]}-zz.json"
    path.write_text(json.dumps({**data, "env_name": "zz"}))
    return path


def test_a_second_result_of_a_commit_that_is_there_is_not_added(folder, here, tmp_path) -> None:
    target = tmp_path / "taken"
    add.add(check.check(pack(folder), here), target)
    before = {path: path.read_text() for path in (target / MACHINE).iterdir()}
    second_environment(folder)
    first(folder).unlink()
    assert len(list(folder.glob("*-zz.json"))) == 1
    with pytest.raises(RefusedError, match="is of the same commit") as caught:
        add.add(check.check(pack(folder), here), target)
    assert caught.value.reason == "exists"
    assert before == {path: path.read_text() for path in (target / MACHINE).iterdir()}


def test_two_results_of_one_commit_are_refused(folder, here) -> None:
    second_environment(folder)
    assert refused(pack(folder), here).reason == "exists"


# Texts


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_means_something_to_a_page_or_a_terminal_is_refused(
    folder, here, text: str
) -> None:
    machine = folder / "machine.json"
    whole = machine.read_text()
    spoil(machine, lambda data: data.update(cpu=text))
    assert refused(pack(folder), here).reason == "text"
    machine.write_text(whole)

    facts = sorted(folder.glob("facts-*"))[0]
    facts.write_text(pages_project.facts_lines(MACHINE, kernel=text))
    assert refused(pack(folder), here).reason == "text"
    facts.write_text(pages_project.facts_lines(MACHINE))

    results = first(folder)
    whole = results.read_text()

    def rename(data: Any) -> None:
        for name in (ARM, BASELINE, RATIO, BOUND):
            data["results"][name][PARAMS][0][0] = f"'{text}'"

    spoil(results, rename)
    assert refused(pack(folder), here).reason == "text"
    results.write_text(whole)
    spoil(results, lambda data: data["durations"].update({text: 1.0}))
    assert refused(pack(folder), here).reason == "text"


def test_half_a_character_is_refused(folder, here) -> None:
    path = pack(folder)
    spoil(path, lambda data: data["files"].update({first(folder).name: "\ud800"}))
    assert refused(path, here).reason == "text"


# What a file says of its machine, its commit and its benchmarks


def few_pairs(data: Any) -> None:
    """Leave a cell the pair in the middle alone."""
    for name in (ARM, BASELINE, RATIO):
        row = data["results"][name]
        row[SAMPLES][0] = [row[RESULT][0]]
        for column in range(CI_LOW, SAMPLES):
            row[column][0] = None


def shorter(data: Any, name: str) -> None:
    """Take the last workload from a benchmark; its class has one comparison."""
    row = data["results"][name]
    row[PARAMS] = [row[PARAMS][0][:-1], row[PARAMS][1]]
    row[RESULT].pop()


CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "another machine": ("machine", lambda d: d["params"].update(machine="box-b")),
    "another processor": ("machine", lambda d: d["params"].update(cpu="Other")),
    "a variable": ("schema", lambda d: d.update(env_vars={"LD_PRELOAD": "x"})),
    "a requirement": ("text", lambda d: d["requirements"].update({"<b>": "1"})),
    "another environment": ("path", lambda d: d.update(env_name="other")),
    "another commit's name": ("path", lambda d: d.update(commit_hash="a" * 40)),
    "no commit": ("schema", lambda d: d.update(commit_hash="HEAD")),
    "another date": ("changed", lambda d: d.update(date=d["date"] + 1000)),
    "another version": ("version", lambda d: d.update(version=1)),
    "a key more": ("schema", lambda d: d.update(more=1)),
    "a column more": ("schema", lambda d: d["result_columns"].append("more")),
    "no results": ("figures", lambda d: d.update(results={})),
    "results that are a list": ("schema", lambda d: d.update(results=[])),
    "a list": ("schema", lambda d: [1]),
    "an unknown benchmark": ("benchmark", lambda d: d["results"].update({"bench_x.Y": []})),
    "no ratio": ("schema", lambda d: d["results"].pop(RATIO) and None),
    "no baseline": ("schema", lambda d: d["results"].pop(BASELINE) and None),
    "a row that is a table": ("schema", lambda d: d["results"].update({ARM: {}})),
    "a row that is too long": ("schema", lambda d: d["results"][ARM].extend([None] * 5)),
    "a profile": ("schema", lambda d: d["results"][ARM].append("eJw=")),
    "no version of a benchmark": ("schema", lambda d: set_(d, ARM, VERSION, None)),
    "a start that is a list": ("schema", lambda d: set_(d, ARM, STARTED, [])),
    "a start that is a text": ("schema", lambda d: set_(d, ARM, STARTED, "")),
    "a start that is a table": ("schema", lambda d: set_(d, ARM, STARTED, {})),
    "a start that is false": ("schema", lambda d: set_(d, ARM, STARTED, False)),
    "a duration that is a list": ("schema", lambda d: set_(d, ARM, DURATION, [])),
    "no parameters": ("schema", lambda d: set_(d, ARM, PARAMS, None)),
    "other parameters": ("schema", lambda d: d["results"][ARM][PARAMS][0].reverse()),
    "no axis": ("schema", lambda d: axes(d, lambda params: [], 1)),
    "one axis": ("schema", lambda d: axes(d, lambda params: params[:1])),
    "a third axis": ("schema", lambda d: axes(d, lambda params: [*params, ["'a'"]])),
    "an axis without parameters": ("schema", lambda d: axes(d, lambda params: [[], params[1]], 0)),
    "an unknown workload": ("benchmark", lambda d: name_in(d, 0, "decode R=0 K=0")),
    "another class's workload": ("benchmark", lambda d: name_in(d, 0, "5 ms")),
    "an unknown comparison": ("benchmark", lambda d: name_in(d, 1, "one stream / no stream")),
    "no comparison": ("benchmark", lambda d: name_in(d, 1, "two streams")),
    "a link": ("benchmark", lambda d: name_in(d, 0, "[a](https://x.y)")),
    "a bar": ("benchmark", lambda d: name_in(d, 0, "a | b")),
    "a workload twice": ("schema", lambda d: name_in(d, 0, "decode R=256 K=20")),
    "too few values": ("schema", lambda d: d["results"][ARM][RESULT].pop() and None),
    "a value that is a text": ("schema", lambda d: cell(d, ARM, RESULT, "fast")),
    "a value that is true": ("schema", lambda d: cell(d, ARM, RESULT, True)),
    "an endless value": ("figures", lambda d: cell(d, ARM, RESULT, math.inf)),
    "a huge whole number": ("figures", lambda d: cell(d, ARM, RESULT, 10**400)),
    "a value of an hour": ("figures", lambda d: cell(d, ARM, RESULT, 3600.0)),
    "a value that is no median": ("figures", lambda d: cell(d, ARM, RESULT, 1e-3 * 1.0001)),
    "a value without samples": ("figures", lambda d: cell(d, RATIO, SAMPLES, None)),
    "samples without a value": ("figures", lambda d: cell(d, ARM, RESULT, None)),
    "samples that are a text": ("schema", lambda d: cell(d, ARM, SAMPLES, "many")),
    "no sample": ("schema", lambda d: cell(d, ARM, SAMPLES, [])),
    "too many samples": ("too large", lambda d: cell(d, ARM, SAMPLES, [1e-3] * 30_000)),
    "a sample that is no number": ("figures", lambda d: sample(d, ARM, math.nan)),
    "an edited sample": ("figures", lambda d: sample(d, ARM, 0.999e-3)),
    "an edited ratio": ("figures", lambda d: sample(d, RATIO, 0.4999)),
    "an arm without a baseline": ("figures", lambda d: no_samples(d, BASELINE)),
    "a sample too few": ("figures", lambda d: fewer(d, BASELINE)),
    "a ratio to nothing": ("figures", lambda d: sample(d, BASELINE, -1e-9)),
    "a statistic without samples": ("figures", lambda d: statistic(d, 0.1)),
    "a statistic that is a text": ("figures", lambda d: statistic(d, "<script>")),
    "a statistic that is a list": ("figures", lambda d: statistic(d, [[]])),
    "a statistic that is false": ("figures", lambda d: statistic(d, False)),
    "a quartile out of range": ("figures", lambda d: cell(d, ARM, Q25, 1e-4)),
    "an interval above its value": ("figures", lambda d: cell(d, ARM, CI_LOW, 1.0)),
    "another count": ("figures", lambda d: cell(d, ARM, REPEAT, 1000)),
    "several calls": ("figures", lambda d: cell(d, ARM, NUMBER, 10)),
    "too few pairs": ("figures", few_pairs),
    "a bound of fewer cells": ("schema", lambda d: shorter(d, BOUND)),
    "a bound above one": ("figures", lambda d: cell(d, BOUND, RESULT, 1.5)),
    "a bound of nothing": ("figures", lambda d: cell(d, BOUND, RESULT, 0.0)),
}  # fmt: skip


def name_in(data: Any, axis: int, text: str) -> None:
    """Name the first workload or comparison of a class otherwise, everywhere alike."""
    for name in (ARM, BASELINE, RATIO, BOUND):
        data["results"][name][PARAMS][axis][0] = f"'{text}'"


def axes(data: Any, change: Callable[[Any], Any], cells: int | None = None) -> None:
    """Change a class's axes, everywhere alike, and keep so many of its cells."""
    for name in (ARM, BASELINE, RATIO, BOUND):
        row = data["results"][name]
        row[PARAMS] = change(row[PARAMS])
        for column in (RESULT, *range(CI_LOW, len(row))):
            row[column] = row[column][:cells]


def set_(data: Any, name: str, column: int, value: Any) -> None:
    data["results"][name][column] = value


def cell(data: Any, name: str, column: int, value: Any) -> None:
    data["results"][name][column][0] = value


def sample(data: Any, name: str, value: float) -> None:
    """Change the sample at the edge, so that the median stays as it is."""
    data["results"][name][SAMPLES][0][0] = value
    for column in (CI_LOW, Q25):
        data["results"][name][column][0] = data["results"][name][RESULT][0]


def no_samples(data: Any, name: str) -> None:
    cell(data, name, SAMPLES, None)
    cell(data, name, RESULT, None)


def statistic(data: Any, value: Any) -> None:
    """Give a bound, which has no samples, a statistic."""
    row = data["results"][BOUND]
    cells = len(row[RESULT])
    row.extend([None] * (CI_LOW - len(row)))
    row.append([value] + [None] * (cells - 1))


def fewer(data: Any, name: str) -> None:
    """Take a sample from either end, so that the median stays as it is."""
    some = data["results"][name][SAMPLES][0]
    del some[0], some[-1]
    cell(data, name, REPEAT, len(some))


@pytest.mark.parametrize("change", CHANGES)
def test_a_results_file_that_was_edited_by_hand_is_refused(folder, here, change: str) -> None:
    """Its checksums are right: whoever edits can make them anew."""
    reason, edit = CHANGES[change]
    spoil(first(folder), edit)
    assert refused(pack(folder), here).reason == reason


def test_an_older_commits_results_are_checked_as_the_newest_are(folder, here) -> None:
    older = min(
        folder.glob("*-inherit-*"),
        key=lambda path: here.commits[json.loads(path.read_text())["commit_hash"]],
    )
    whole = older.read_text()
    for change in (
        "a bound of fewer cells",
        "too few pairs",
        "no axis",
        "one axis",
        "a third axis",
        "an unknown workload",
        "a link",
    ):
        reason, edit = CHANGES[change]
        spoil(older, edit)
        assert refused(pack(folder), here).reason == reason
        older.write_text(whole)


def test_what_a_nightly_run_has_is_known_in_any_mode() -> None:
    found = known.grids()["bench_factorial.PolicyStepTime"]
    assert found.workloads == set(names.BLOCKS)
    assert found.comparisons == set(bench_factorial.COMPARISONS)


def test_every_known_comparison_is_an_arm_and_a_baseline() -> None:
    grids = known.grids()
    assert known.FORMER.keys() <= grids.keys()
    for grid in grids.values():
        assert all(len(text.split(" / ")) == 2 for text in grid.comparisons)


def test_a_commit_that_is_not_on_main_is_refused(folder, here) -> None:
    commits = dict(here.commits)
    commits.pop(json.loads(first(folder).read_text())["commit_hash"])
    assert refused(pack(folder), replace(here, commits=commits)).reason == "commit"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.update(machine="box-b"), "machine"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(more="x"), "schema"),
        (lambda d: d.update(ram=16), "schema"),
        (lambda d: [d], "schema"),
    ],
)
def test_another_machines_file_is_refused(folder, here, change, reason: str) -> None:
    spoil(folder / "machine.json", change)
    assert refused(pack(folder), here).reason == reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "schema"),
        ("[1]\n[2]\n", "schema"),
        ('{"when": "before"', "cut"),
        ('{"when": "after"}\n{"when": "before"}\n', "schema"),
        ('{"when": "before", "A b": "x"}\n{"when": "after"}\n', "text"),
        ('{"when": "before", "gpu": 1}\n{"when": "after"}\n', "schema"),
        (
            json.dumps({"when": "before", **{f"f{i}": "" for i in range(101)}})
            + '\n{"when": "after"}\n',
            "too large",
        ),
    ],
)
def test_facts_that_are_none_are_refused(folder, here, content: str, reason: str) -> None:
    sorted(folder.glob("facts-*"))[0].write_text(content)
    assert refused(pack(folder), here).reason == reason


def test_facts_of_a_commit_without_results_are_refused(folder, here) -> None:
    (folder / "facts-00000000.jsonl").write_text(pages_project.facts_lines(MACHINE))
    assert refused(pack(folder), here).reason == "path"


def test_a_file_without_results_or_machine_is_refused(folder, here) -> None:
    path = pack(folder)
    kept = {"machine.json": (folder / "machine.json").read_text()}
    bundle.write(bundle.Bundle(MACHINE, kept), path)
    assert refused(path, here).reason == "figures"
    bundle.write(bundle.Bundle(MACHINE, {}), path)
    assert refused(path, here).reason == "machine"


# The command


def test_the_command_makes_checks_and_adds(project, tmp_path, capsys) -> None:
    path = tmp_path / "sent.json"
    assert __main__.main(["make", MACHINE, "--out", str(path)], project) == 0
    assert "is ready to be sent" in capsys.readouterr().out
    other = tmp_path / "other"
    shutil.copytree(project, other)
    shutil.rmtree(other / "results" / MACHINE)
    assert __main__.main(["check", str(path)], other) == 0
    assert "good: box-a: commits" in capsys.readouterr().out
    assert not (other / "results" / MACHINE).exists()
    assert __main__.main(["add", str(path)], other) == 0
    assert "new: " in capsys.readouterr().out
    path.write_bytes(path.read_bytes()[:-20])
    assert __main__.main(["add", str(path)], other) == 1
    assert "error: refused (cut)" in capsys.readouterr().err


def test_what_would_be_refused_is_not_made(project, tmp_path, capsys) -> None:
    other = tmp_path / "other"
    shutil.copytree(project, other)
    spoil(first(other / "results" / MACHINE), CHANGES["an edited ratio"][1])
    path = tmp_path / "sent.json"
    assert __main__.main(["make", MACHINE, "--out", str(path)], other) == 1
    assert "refused (figures)" in capsys.readouterr().err
    assert not path.exists()
    assert __main__.main(["make", "no-such-box"], other) == 1
    assert "has no results" in capsys.readouterr().err


def test_a_checkout_without_history_says_so(tmp_path, project) -> None:
    with pytest.raises(RepositoryError, match="no git checkout"):
        known.read(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(project, other)
    (other / "results" / "benchmarks.json").unlink()
    with pytest.raises(RepositoryError, match=r"benchmarks\.json is missing"):
        known.read(other)
