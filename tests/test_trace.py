"""Traces: read as torch.profiler writes them, modelled where there is no GPU, and drawn."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from asyncout.virtual import CostProfile
from benchmarks import timeline, trace
from benchmarks.pictures import look, rows
from benchmarks.pictures import timeline as picture
from benchmarks.timeline import Timeline, TraceError

STEP_US, COPY_US = 1000.0, 200.0


def event(category: str, name: str, start: float, length: float, **arguments: Any) -> dict:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "pid": 1,
            "tid": 1, "args": arguments}  # fmt: skip


def section(label: str, begin: float, streams: int, steps: int = 9) -> list[dict]:
    """Make the events of a loop as torch.profiler names them: copies on stream 7, or on 20."""
    period = STEP_US + (COPY_US if streams == 1 else 0)
    events = [event("user_annotation", f"policy: {label}", begin, steps * period + 500)]
    for step in range(steps):
        at = begin + 10 + step * period
        events += [
            event("user_annotation", "launch", at, 20),
            event("cuda_runtime", "cudaLaunchKernel", at + 1, 5),
            event("user_annotation", "asyncout.enqueue", at + 20, 60),
            event("user_annotation", "asyncout.get_output", at + 80, period - 90),
            event("user_annotation", "asyncout.wait", at + 90, period - 130),
            event("user_annotation", "asyncout.convert", at + period - 40, 20),
            event("kernel", "gemm", at + 5, STEP_US - 4, stream=7, device=0),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", at + STEP_US + 5, COPY_US - 6,
                  stream=7 if streams == 1 else 20, bytes=1 << 20),
            event("gpu_user_annotation", "launch", at, 900),
        ]  # fmt: skip
    return events


@pytest.fixture
def data() -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
            event("kernel", "warm-up", 0, 50, stream=7),
            *section("one stream", 1000, streams=1),
            *section("two streams", 20000, streams=2),
        ],
    }


# --- reading ----------------------------------------------------------------------------------


def test_sections_hold_their_own_events_by_kind_and_place(data) -> None:
    found = timeline.parse(data)
    assert (found.modelled, found.device) == (False, "NVIDIA H200")
    one, two = found.timelines
    assert (one.label, two.label) == ("one stream", "two streams")
    assert (one.streams(), two.streams()) == (["stream 7"], ["stream 7", "stream 20"])
    for found_timeline in (one, two):
        for kind in ("launch", "enqueue", "get_output", "wait", "convert", "kernel", "copy"):
            assert len(found_timeline.of_kind(kind)) == 9
    assert two.of_kind("copy")[0].end - two.of_kind("copy")[0].start == pytest.approx(194e-6)


def test_steps_are_cut_from_launch_to_launch(data) -> None:
    one, two = (found.steps(3, 4) for found in timeline.parse(data).timelines)
    assert one.duration == pytest.approx(4 * 1200e-6)
    assert two.duration == pytest.approx(4 * 1000e-6)
    assert min(span.start for span in two.spans) == 0
    with pytest.raises(TraceError, match="'one stream' has 9 steps; 10 are needed to show 4 of"):
        timeline.parse(data).timelines[0].steps(5, 4)


def test_overlap_is_the_share_of_copying_beside_kernels(data) -> None:
    one, two = (found.steps(3, 4) for found in timeline.parse(data).timelines)
    assert one.overlap() == 0
    assert two.overlap() > 0.9
    assert Timeline("no copies", ()).overlap() == 0


def test_what_torchs_own_profiler_writes_is_read(tmp_path) -> None:
    marker = trace.ProfilerRanges()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        marker.range_push("policy: here")
        for name in ("launch", "asyncout.enqueue", "asyncout.get_output"):
            marker.range_push(name)
            torch.ones(8).sum()
            marker.range_pop()
        marker.range_pop()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    data = timeline.load(tmp_path / "trace.json")
    for read in (data, trace._only_sections(data)):
        (found,) = timeline.parse(read).timelines
        assert found.label == "here"
        assert [span.kind for span in found.spans] == ["launch", "enqueue", "get_output"]
        assert all(span.end > span.start for span in found.spans)


def test_events_outside_the_sections_are_left_out_of_the_file(data) -> None:
    kept = trace._only_sections(data)
    assert len(kept["traceEvents"]) == len(data["traceEvents"]) - 1
    assert timeline.parse(kept) == timeline.parse(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"traceEvents": [', "is no whole trace"),
        (gzip.compress(b"[]")[:-9], "is no whole trace"),
        (b"[]", "no trace of torch.profiler"),
        (b'{"traceEvents": [{"ph": "X"}, 3]}', "no trace of torch.profiler"),
        (b'{"traceEvents": []}', "no range whose name begins with 'policy: '"),
    ],
)
def test_cut_and_foreign_traces_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / ("trace.json.gz" if content.startswith(b"\x1f") else "trace.json")
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        timeline.parse(timeline.load(path))
    with pytest.raises(TraceError, match="cannot read"):
        timeline.load(tmp_path / "nowhere.json")


def test_a_trace_comes_back_as_it_was_written(data, tmp_path) -> None:
    before = timeline.parse(data)
    for name in ("trace.json", "trace.json.gz"):
        timeline.save(timeline.write(before), tmp_path / name)
        after = timeline.parse(timeline.load(tmp_path / name))
        assert (after.modelled, after.device) == (before.modelled, before.device)
        for old, new in zip(before.timelines, after.timelines, strict=True):
            assert new.label == old.label
            cut_old, cut_new = old.steps(2, 3), new.steps(2, 3)
            assert [s.kind for s in cut_new.spans] == [s.kind for s in cut_old.spans]
            assert cut_new.duration == pytest.approx(cut_old.duration)
    first = (tmp_path / "trace.json.gz").read_bytes()
    timeline.save(timeline.write(before), tmp_path / "trace.json.gz")
    assert (tmp_path / "trace.json.gz").read_bytes() == first


# --- drawing ----------------------------------------------------------------------------------


def test_a_measured_trace_is_drawn_with_its_lanes_and_its_message(data, tmp_path) -> None:
    with look.style():
        drawn = picture.draw(timeline.parse(data))
    message = drawn.message.replace(rows.GAP, " ")
    assert message.startswith("4 steps take 4.8 ms (one stream) and 4 ms (two streams); 100 %")
    assert message.endswith(" of the copying runs beside kernels instead of 0 %")
    (axes,) = drawn.figure.axes
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["host", "main stream", "host", "main stream", "copy stream"]
    shown = " ".join(text.get_text() for text in drawn.figure.texts)
    assert "measured with torch.profiler on NVIDIA H200" in shown
    assert "MODELLED" not in shown
    assert all(path.stat().st_size > 10_000 for path in look.save(drawn, tmp_path))


def test_every_kind_of_span_looks_different_also_without_colour() -> None:
    drawn = {kind: picture._patch(kind, picture.LOOKS[kind]) for kind in picture.LEGEND}
    hatches = {kind: patch["hatch"] for kind, patch in drawn.items()}
    assert hatches["copy"] != hatches["kernel"]
    assert hatches["wait"] not in (None, hatches["copy"])
    assert len({(patch["facecolor"], patch["hatch"]) for patch in drawn.values()}) == len(drawn)


# --- the virtual device -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def modelled() -> dict[str, Any]:
    return trace.record_modelled(trace.WORKLOAD, CostProfile.load())


def test_the_virtual_device_gives_the_same_picture_labelled_as_modelled(modelled) -> None:
    found = timeline.parse(modelled)
    assert found.modelled
    assert [one.label for one in found.timelines] == list(trace.POLICIES)
    for one in found.timelines:
        assert len(one.of_kind("launch")) == len(one.of_kind("enqueue")) == trace.STEPS
        assert len(one.of_kind("wait")) == len(one.of_kind("kernel")) == trace.STEPS
    with look.style():
        drawn = picture.draw(found)
    assert drawn.message.startswith("Modelled: 4 steps take")
    shown = " ".join(text.get_text() for text in drawn.figure.texts)
    assert "MODELLED in virtual time with the profile h200-pcie5-vm16, not measured" in shown


def test_one_stream_copies_between_kernels_and_two_copy_beside_them(modelled) -> None:
    one, two = (
        found.steps(picture.FIRST, picture.SHOWN) for found in timeline.parse(modelled).timelines
    )
    assert (len(one.streams()), len(two.streams())) == (1, 2)
    assert one.overlap() < 0.01
    assert two.overlap() > 0.99
    assert two.duration == pytest.approx(picture.SHOWN * trace.COMPUTE_S, rel=0.01)
    copy = one.of_kind("copy")[0]
    assert one.duration > picture.SHOWN * (trace.COMPUTE_S + copy.end - copy.start) * 0.99


def test_ranges_are_off_again_after_a_trace(modelled) -> None:
    from asyncout import ranges

    assert not ranges._plain


def test_the_command_writes_trace_and_picture(tmp_path, capsys) -> None:
    workload = "decode R=64 K=20"
    assert trace.main(["--out", str(tmp_path), "--modelled", "--workload", workload]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "trace.json.gz",
        "timeline.svg",
        "timeline.png",
    }
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["modelled"]
    assert capsys.readouterr().out.startswith("Modelled: 4 steps take")


@pytest.mark.gpu
def test_on_a_gpu_the_trace_is_the_profilers_own(tmp_path) -> None:
    assert trace.main(["--out", str(tmp_path)]) == 0
    found = timeline.parse(timeline.load(tmp_path / trace.TRACE_FILE))
    assert not found.modelled
    one, two = (part.steps(picture.FIRST, picture.SHOWN) for part in found.timelines)
    for part in (one, two):
        for kind in ("launch", "enqueue", "wait", "kernel", "copy"):
            assert part.of_kind(kind), (part.label, kind)
    assert len(one.streams()) == 1
    assert two.overlap() > one.overlap()
