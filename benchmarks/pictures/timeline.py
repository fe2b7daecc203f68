"""A picture of a trace: the same steps under two policies, one below the other."""

from __future__ import annotations

from typing import Any

from benchmarks.pictures import look, rows
from benchmarks.pictures.look import Picture
from benchmarks.timeline import HOST, Timeline, Trace

#: Steps that are shown, and the first of them: by then the pipeline is full.
SHOWN, FIRST = 4, 3

#: Inches of a lane and between two policies.
LANE, BETWEEN = 0.32, 0.42

#: How each kind of span looks; later ones are drawn over earlier ones. Hatches say the
#: same as the colours.
LOOKS: dict[str, dict[str, Any]] = {
    "kernel": {"color": "#9aa0a6"},
    "copy": {"color": look.RED, "hatch": "////"},
    "launch": {"color": look.SKY},
    "enqueue": {"color": look.GREEN},
    "get_output": {"color": look.PURPLE},
    "wait": {"color": "#ffffff", "hatch": "...."},
    "convert": {"color": look.PURPLE},
}

LEGEND = {
    "kernel": "kernels",
    "copy": "copy to the host",
    "launch": "host: launches kernels",
    "enqueue": "host: enqueues the output",
    "wait": "host: waits",
    "get_output": "host: get_output beside the wait",
}

#: Hatches and edges, drawn in the ink of what they mark.
EDGE = {"copy": "#7a2e00", "wait": look.GREY}


def draw(trace: Trace, first: int = FIRST, shown: int = SHOWN) -> Picture:
    """Draw steps `first` to `first + shown` of each timeline on one scale.

    Raises
    ------
    TraceError
        A timeline has too few steps.
    """
    cuts = [timeline.steps(first, shown) for timeline in trace.timelines]
    message = _message(cuts, shown)
    if trace.modelled:
        message = f"Modelled: {message}"
        origin = f"MODELLED in virtual time with the profile {trace.device}, not measured"
    else:
        origin = f"measured with torch.profiler on {trace.device}"
    lanes = sum(len(_lanes(cut)) for cut in cuts)
    figure, (axes,) = look.figure(
        message,
        f"{shown} steps of a loop that reads each output while the next step computes, from one "
        "launch to the launch of the step after them. Every bar is one event of the GPU or one "
        "range of the host.",
        origin,
        LANE * lanes + BETWEEN * (len(cuts) + 1) + 0.6,
    )
    at, ticks = 0.0, []
    for cut in cuts:
        at += BETWEEN / LANE
        axes.text(
            0, at - 0.72, f"{cut.label}: {rows.short(cut.duration)}", weight="bold", va="bottom"
        )
        for name, place in _lanes(cut).items():
            _lane(axes, cut, place, at)
            ticks.append((at, name))
            at += 1
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(at - 0.3, -0.2)
    axes.set_xlim(0, max(cut.duration for cut in cuts) * 1e3 * 1.005)
    axes.set_xlabel("milliseconds from the first launch")
    _legend(axes, {span.kind for cut in cuts for span in cut.spans})
    listed = "; ".join(
        f"{cut.label}: {rows.short(cut.duration)}, {_whole_percent(cut.overlap())} of the copying "
        "beside kernels"
        for cut in cuts
    )
    return Picture(
        "timeline",
        figure,
        message,
        f"Timelines of host, main stream and copy stream over {shown} steps. {listed}.",
    )


def _lanes(timeline: Timeline) -> dict[str, str]:
    """Give the lanes' names and the places that they show."""
    main, *others = timeline.streams()
    lanes = {"host": HOST, "main stream": main}
    for number, other in enumerate(others):
        lanes["copy stream" if number == 0 else f"stream {number + 2}"] = other
    return lanes


def _lane(axes: Any, timeline: Timeline, place: str, at: float) -> None:
    for kind, drawn in LOOKS.items():
        bars = [
            (span.start * 1e3, (span.end - span.start) * 1e3)
            for span in timeline.of_kind(kind)
            if span.place == place
        ]
        if bars:
            axes.broken_barh(bars, (at - 0.36, 0.72), **_patch(kind, drawn))


def _patch(kind: str, drawn: dict[str, Any]) -> dict[str, Any]:
    edge = EDGE.get(kind, look.PAPER)
    return {
        "facecolor": drawn["color"],
        "hatch": drawn.get("hatch"),
        "edgecolor": edge,
        "linewidth": 0.4,
    }


def _legend(axes: Any, kinds: set[str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(label=text, **_patch(kind, LOOKS[kind]))
        for kind, text in LEGEND.items()
        if kind in kinds
    ]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, borderaxespad=0
    )


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f}{rows.GAP}%"


def _message(cuts: list[Timeline], shown: int) -> str:
    parts = [f"{rows.short(cut.duration)} ({cut.label})" for cut in cuts]
    text = f"{shown} steps take {' and '.join(parts)}"
    if len(cuts) != 2:
        return text
    before, after = (_whole_percent(cut.overlap()) for cut in cuts)
    return f"{text}; {after} of the copying runs beside kernels instead of {before}"
