"""The gate's table for a terminal, and the same as an object for JSON."""

from __future__ import annotations

from typing import Any

from benchmarks.gate import verdicts
from benchmarks.gate.rounds import Result
from benchmarks.gate.verdicts import Judgement

#: Times are shown in microseconds: what is compared lasts from a few to some thousand.
MICRO = 1e6

#: Metrics that are no times.
SHARES = ("CPU burnt per wait",)

HEADINGS = ("metric", "workload", "base", "head", "ratio", "interval", "counts from", "verdict")

#: Said wherever modelled figures are shown.
MODELLED_NOTE = (
    "modelled, not measured: each commit's device calls on its own virtual device. What Python\n"
    "itself costs is not in the model, so a change of it is not seen here; use a GPU for that."
)


def as_text(result: Result) -> str:
    """Give the table, what it rests on, and why rows have no verdict."""
    kind = "MODELLED on the" if result.modelled else "measured on"
    lines = [f"{kind} {result.device}; ratio = head over base, less is better"]
    rows = [HEADINGS, *(_cells(judgement) for judgement in result.judgements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(line.rstrip())
    lines.append(
        f"intervals of {result.confidence:.2%} each, so that all {len(result.judgements)} hold "
        f"with {1 - verdicts.FALSE_ALARM:.0%}; a change counts beyond the share in 'counts from'"
    )
    if result.modelled:
        lines.append(MODELLED_NOTE)
    reasons = {j.reason: j.verdict for j in result.judgements if j.reason}
    if result.failure:
        reasons.setdefault(result.failure, "ended early")
    lines += [f"{verdict}: {reason}" for reason, verdict in reasons.items()]
    return "\n".join(lines)


def _cells(judgement: Judgement) -> tuple[str, ...]:
    metric = judgement.metric
    if judgement.ratio is None or judgement.low is None or judgement.high is None:
        figures: tuple[str, ...] = ("-", "-", "-", "-")
    else:
        figures = (
            _value(metric.name, judgement.base),
            _value(metric.name, judgement.head),
            f"{judgement.ratio:.3f}",
            f"[{judgement.low:.3f}, {judgement.high:.3f}]",
        )
    effect = f"{metric.min_effect:.0%}"
    return (metric.name, metric.workload, *figures, effect, judgement.verdict)


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if name in SHARES else f"{value * MICRO:.1f} µs"


def as_object(result: Result) -> dict[str, Any]:
    """Give what the table shows, unrounded."""
    return {
        "device": result.device,
        "modelled": result.modelled,
        "confidence": result.confidence,
        "failure": result.failure,
        "status": verdicts.exit_status(result.judgements, result.failure),
        "rows": [
            {
                "metric": judgement.metric.name,
                "workload": judgement.metric.workload,
                "min_effect": judgement.metric.min_effect,
                "verdict": judgement.verdict,
                "base": judgement.base,
                "head": judgement.head,
                "ratio": judgement.ratio,
                "low": judgement.low,
                "high": judgement.high,
                "blocks": judgement.blocks,
                "pairs": judgement.pairs,
                "reason": judgement.reason,
            }
            for judgement in result.judgements
        ],
    }
