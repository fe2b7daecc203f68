"""Timelines of real or modelled steps, read from and written as Chrome traces.

torch.profiler writes such traces and Perfetto opens them. A trace holds *sections*, one
per policy, each inside a host range of its own. Pure: no device, no drawing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Name of a section's range, before the policy's label.
SECTION = "policy: "

#: Host ranges that a timeline shows, by the names in the trace. The launch of a step's
#: kernels is the loop's, the others are the library's own.
LAUNCH = "launch"
HOST_RANGES = {
    LAUNCH: "launch",
    "asyncout.enqueue": "enqueue",
    "asyncout.get_output": "get_output",
    "asyncout.wait": "wait",
    "asyncout.convert": "convert",
}

#: Kind of span of each category of device events.
DEVICE_CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "kernel"}

#: Category of host ranges in torch's traces.
RANGE_CATEGORY = "user_annotation"

#: Where host spans are.
HOST = "host"

#: Traces count in microseconds.
MICROSECOND = 1e-6

#: Time between two sections of a written trace, in seconds: a gap that is seen.
SECTION_GAP_S = 1e-3


class TraceError(ValueError):
    """A trace is cut, foreign, or lacks what is to be drawn; the message says which."""


@dataclass(frozen=True)
class Span:
    """Something that took time.

    Attributes
    ----------
    kind : str
        "kernel", "copy", or one of :data:`HOST_RANGES`' values.
    name : str
    place : str
        "host", or a stream's name.
    start, end : float
        Seconds on one clock for host and device.
    """

    kind: str
    name: str
    place: str
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What happened under one policy.

    Attributes
    ----------
    label : str
        The policy, in words.
    spans : tuple of Span
        By their start.
    length : float or None
        Seconds that a cut covers; None for what was not cut.
    """

    label: str
    spans: tuple[Span, ...]
    length: float | None = None

    def of_kind(self, *kinds: str) -> list[Span]:
        """Give the spans of some kinds."""
        return [span for span in self.spans if span.kind in kinds]

    def streams(self) -> list[str]:
        """List the streams: the one with most kernel time first."""
        busy: dict[str, float] = {}
        for span in self.of_kind("kernel", "copy"):
            weight = span.end - span.start if span.kind == "kernel" else 0.0
            busy[span.place] = busy.get(span.place, 0.0) + weight
        return sorted(busy, key=lambda name: -busy[name])

    def steps(self, first: int, count: int) -> Timeline:
        """Cut out some steps: from one launch to the launch after the last of them.

        Times are counted from the first launch; what reaches over an end is cut there.

        Raises
        ------
        TraceError
            There are too few launches.
        """
        launches = self.of_kind("launch")
        if len(launches) <= first + count:
            raise TraceError(
                f"{self.label!r} has {len(launches)} steps; {first + count + 1} are needed to show "
                f"{count} of them from number {first}"
            )
        begin, end = launches[first].start, launches[first + count].start
        inside = [
            Span(
                span.kind,
                span.name,
                span.place,
                max(span.start, begin) - begin,
                min(span.end, end) - begin,
            )
            for span in self.spans
            if span.end > begin and span.start < end
        ]
        return Timeline(self.label, tuple(inside), end - begin)

    @property
    def duration(self) -> float:
        """Seconds that it covers: a cut's length, or from 0 to the last end."""
        if self.length is not None:
            return self.length
        return max((span.end for span in self.spans), default=0.0)

    def overlap(self) -> float:
        """Give the share of the copies' time during which a kernel runs too."""
        kernels = _merged(self.of_kind("kernel"))
        copies = _merged(self.of_kind("copy"))
        total = sum(end - start for start, end in copies)
        both = sum(
            max(0.0, min(end, stop) - max(start, begin))
            for start, end in copies
            for begin, stop in kernels
        )
        return both / total if total else 0.0


@dataclass(frozen=True)
class Trace:
    """A trace's timelines, and where they come from.

    Attributes
    ----------
    timelines : tuple of Timeline
    modelled : bool
    device : str
        Name of the GPU, or of the model's profile.
    """

    timelines: tuple[Timeline, ...]
    modelled: bool
    device: str


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Give the times covered by spans as ranges that do not touch."""
    merged: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if merged and span.start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.start, span.end))
    return merged


# --- files ------------------------------------------------------------------------------------


def load(path: Path) -> Any:
    """Read a trace's JSON, packed (``.gz``) or not.

    Raises
    ------
    TraceError
        There is no such file, or it is cut or foreign.
    """
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        return json.loads(text)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    except (ValueError, EOFError) as error:
        raise TraceError(f"{path} is no whole trace: {error}") from error


def save(data: Any, path: Path) -> None:
    """Write a trace's JSON, packed when the name says so; the same bytes for the same data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, separators=(",", ":")).encode("utf-8")
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def parse(data: Any) -> Trace:
    """Read the sections of a trace that torch.profiler or :func:`write` made.

    Raises
    ------
    TraceError
        It is no such trace, or has no section.
    """
    try:
        events = [event for event in data["traceEvents"] if event.get("ph") == "X"]
        sections = [
            event
            for event in events
            if event.get("cat") == RANGE_CATEGORY and event["name"].startswith(SECTION)
        ]
        timelines = tuple(_section(section, events) for section in sections)
        modelled = bool(data.get("modelled", False))
        devices = data.get("deviceProperties") or [{}]
        device = str(devices[0].get("name", "GPU"))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise TraceError(f"this is no trace of torch.profiler: {error!r}") from error
    if not timelines:
        raise TraceError(
            f"the trace has no range whose name begins with {SECTION!r}: make it with "
            "`python -m benchmarks.trace`"
        )
    return Trace(timelines, modelled, device)


def _section(section: Any, events: Sequence[Any]) -> Timeline:
    begin, end = section["ts"], section["ts"] + section["dur"]
    spans = []
    for event in events:
        if not begin <= event["ts"] < end:
            continue
        category, name = event.get("cat", ""), event["name"]
        if category in DEVICE_CATEGORIES:
            kind, place = DEVICE_CATEGORIES[category], f"stream {event['args']['stream']}"
        elif category == RANGE_CATEGORY and name in HOST_RANGES:
            kind, place = HOST_RANGES[name], HOST
        else:
            continue
        start = float(event["ts"]) * MICROSECOND
        spans.append(Span(kind, name, place, start, start + float(event["dur"]) * MICROSECOND))
    spans.sort(key=lambda span: (span.start, -span.end))
    return Timeline(section["name"].removeprefix(SECTION), tuple(spans))


def write(trace: Trace) -> dict[str, Any]:
    """Give a trace as JSON that Perfetto opens and :func:`parse` reads."""
    categories = {kind: category for category, kind in reversed(DEVICE_CATEGORIES.items())}
    names = {kind: name for name, kind in HOST_RANGES.items()}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "host"}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": trace.device}},
    ]
    offset = 0.0
    for timeline in trace.timelines:
        first = min((span.start for span in timeline.spans), default=0.0)
        last = max((span.end for span in timeline.spans), default=0.0)
        events.append(
            _event(RANGE_CATEGORY, SECTION + timeline.label, 0, 0, offset, last - first, {})
        )
        for span in timeline.spans:
            start, seconds = offset + span.start - first, span.end - span.start
            if span.place == HOST:
                events.append(_event(RANGE_CATEGORY, names[span.kind], 0, 0, start, seconds, {}))
                continue
            stream = int(span.place.removeprefix("stream "))
            events.append(
                _event(categories[span.kind], span.name, 1, stream, start, seconds,
                       {"stream": stream})
            )  # fmt: skip
        offset += last - first + SECTION_GAP_S
    return {
        "modelled": trace.modelled,
        "deviceProperties": [{"id": 0, "name": trace.device}],
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }


def _event(
    category: str, name: str, pid: int, tid: int, start: float, seconds: float, args: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        # Nanoseconds are the finest that a trace shows.
        "ts": round(start / MICROSECOND, 3),
        "dur": round(seconds / MICROSECOND, 3),
        "args": args,
    }
