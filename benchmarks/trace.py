"""Traces real steps under two policies: ``python -m benchmarks.trace``.

Writes a trace that Perfetto (ui.perfetto.dev) and Chrome open, and a picture of it. On a
GPU the trace is torch.profiler's own; without one, or with ``--modelled``, it is that of
the virtual device, and says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from asyncout import DEFAULT, CopyPolicy
from asyncout.virtual import CostProfile, VirtualMachine
from benchmarks import devices, timeline
from benchmarks.devices import BenchDevice, VirtualDevice
from benchmarks.kernels import DecodeLoad
from benchmarks.pictures import look
from benchmarks.pictures import timeline as picture
from benchmarks.timeline import HOST, HOST_RANGES, LAUNCH, Span, Timeline, Trace
from benchmarks.workloads import WORKLOADS, Step

#: The policies that are shown, by their labels: everything on one stream, and the default.
POLICIES = {
    "one stream, blocking wait": CopyPolicy(
        streams="single", memory="pinned", wait="block", copies="per_tensor"
    ),
    "default policy": DEFAULT,
}

#: An output whose copy is large enough to be seen beside a step, and is one that engines have.
WORKLOAD = "routed experts 8192 x 60 x 8"

#: Kernel time of a step, seconds: a small model's, so that copy and kernels fit one picture.
COMPUTE_S = 1e-3

#: Steps in each section: those before the shown ones, the shown ones, and two more.
STEPS = picture.FIRST + picture.SHOWN + 2

#: Steps that run before anything is traced: memory is allocated, the hybrid wait has learned.
WARM_UP_STEPS = 24

TRACE_FILE = "trace.json.gz"


class Marker(Protocol):
    """Opens and closes ranges, as the library's own ranges need it."""

    def range_push(self, msg: str) -> Any:
        """Open a range inside those that are open."""

    def range_pop(self) -> Any:
        """Close the range that was opened last."""


@contextmanager
def library_ranges(marker: Marker) -> Iterator[None]:
    """Have the library's own ranges inside this block."""
    # Here, not above: asv imports this module beside commits that have no ranges.
    from asyncout import disable_nvtx, enable_nvtx

    enable_nvtx(marker)
    try:
        yield
    finally:
        disable_nvtx()


class ProfilerRanges:
    """Ranges in torch.profiler's trace, for one thread."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def range_push(self, msg: str) -> None:
        """Open a range."""
        opened = torch.profiler.record_function(msg)
        opened.__enter__()
        self._open.append(opened)

    def range_pop(self) -> None:
        """Close the range that was opened last."""
        self._open.pop().__exit__(None, None, None)


class ClockRanges:
    """Ranges as spans on a device's clock, for one thread.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: list[tuple[str, float]] = []
        self.spans: list[Span] = []

    def range_push(self, msg: str) -> None:
        """Open a range."""
        self._open.append((msg, self._clock()))

    def range_pop(self) -> None:
        """Close the range that was opened last; keep it if timelines show it."""
        name, start = self._open.pop()
        if name in HOST_RANGES:
            self.spans.append(Span(HOST_RANGES[name], name, HOST, start, self._clock()))


def run_loop(
    device: BenchDevice,
    step: Step,
    policy: CopyPolicy,
    load: Callable[[], None],
    marker: Marker,
) -> None:
    """Run :data:`STEPS` steps that are read one later, with a range around each launch.

    The library's own ranges are there when its caller has enabled them.
    """
    pending = None
    for _ in range(STEPS):
        marker.range_push(LAUNCH)
        load()
        marker.range_pop()
        output = step.enqueue(step.prepare(), policy)
        if pending is not None:
            pending.get_output()
        pending = output
    pending.get_output()
    device.synchronize()


def record_modelled(workload: str, profile: CostProfile) -> dict[str, Any]:
    """Trace the virtual device; give the trace as JSON."""
    timelines = []
    for label, policy in POLICIES.items():
        device = VirtualDevice(VirtualMachine(profile))
        step = WORKLOADS[workload].build(device)
        marker = ClockRanges(device.clock)

        def load(device: VirtualDevice = device) -> None:
            device.busy(COMPUTE_S)

        with device.times_only():
            for _ in range(WARM_UP_STEPS // STEPS + 1):
                run_loop(device, step, policy, load, marker)
            marker.spans.clear()
            began = device.clock()
            with library_ranges(marker):
                run_loop(device, step, policy, load, marker)
        spans = [*marker.spans, *_device_spans(device, began)]
        spans.sort(key=lambda span: (span.start, -span.end))
        timelines.append(Timeline(label, tuple(spans)))
    return timeline.write(Trace(tuple(timelines), modelled=True, device=profile.machine))


def _device_spans(device: VirtualDevice, began: float) -> list[Span]:
    kinds = {"kernel": "kernel", "d2h": "copy", "h2d": "copy"}
    streams: dict[str, str] = {}
    spans = []
    for record in device.machine.history:
        if record.op in kinds and record.start >= began and record.end > record.start:
            place = streams.setdefault(record.stream, f"stream {len(streams) + 1}")
            spans.append(Span(kinds[record.op], record.name, place, record.start, record.end))
    return spans


def record_measured(workload: str) -> dict[str, Any]:
    """Trace the GPU with torch.profiler; give the trace as JSON."""
    device = devices.cuda_device()
    step = WORKLOADS[workload].build(device)
    # One launch: the profiler makes each cost so much that a step of single ones lasts as
    # long on the host as on the device, and nothing of the next step is there to copy beside.
    load = DecodeLoad(COMPUTE_S).captured()
    marker = ProfilerRanges()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        library_ranges(marker),
        torch.profiler.profile(
            activities=activities,
            acc_events=True,  # torch warns of what only matters to several cycles
        ) as profiler,
    ):
        for label, policy in POLICIES.items():
            # Inside the profile: its own first events are slow.
            for _ in range(WARM_UP_STEPS // STEPS + 1):
                run_loop(device, step, policy, load, marker)
            marker.range_push(timeline.SECTION + label)
            run_loop(device, step, policy, load, marker)
            marker.range_pop()
    with tempfile.TemporaryDirectory(prefix="asyncout-trace-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        data: dict[str, Any] = timeline.load(path)
    return _only_sections(data)


def _only_sections(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out the events of the warm-up, and what a profile says of its own machine."""
    events = data["traceEvents"]
    ends = [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X" and str(event.get("name", "")).startswith(timeline.SECTION)
    ]
    kept = [
        event
        for event in events
        if event.get("ph") == "M" or any(a <= event.get("ts", -1) < b for a, b in ends)
    ]
    names = {"schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds"}
    shown = {name: value for name, value in data.items() if name in names}
    return {**shown, "modelled": False, "traceEvents": kept}


def main(arguments: Sequence[str] | None = None) -> int:
    """Trace, write and draw; give the exit status.

    0: written; 1: it could not be traced or drawn, and stderr says why.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.modelled or not torch.cuda.is_available():
            data = record_modelled(options.workload, CostProfile.load())
        else:
            data = record_measured(options.workload)
        trace = timeline.parse(data)
        timeline.save(data, options.out / TRACE_FILE)
        with look.style():
            drawn = picture.draw(trace)
            paths = look.save(drawn, options.out)
    except (timeline.TraceError, look.PictureError, devices.NoDeviceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(drawn.message)
    for path in (options.out / TRACE_FILE, *paths):
        print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder, such as results/NAME/pictures"
    )
    parser.add_argument(
        "--workload", choices=sorted(WORKLOADS), default=WORKLOAD, help=f"default: {WORKLOAD}"
    )
    parser.add_argument(
        "--modelled", action="store_true", help="the virtual device, also where there is a GPU"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
