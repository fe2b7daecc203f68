"""What the report, the pages and the picture say of question 4's blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks import bench_factorial, factorial_summary, report
from benchmarks.factorial_summary import BEST_HEADER, EFFECT_HEADER
from benchmarks.pictures import factorial, look
from benchmarks.results import Gain

SMALL = "decode R=256 K=20, pipelined, 2 ms"
LARGE = "logits 256 x 128256 fp32, synchronous, 30 ms"


def gain(metric: str, block: str, arm: str, baseline: str, ratio: float, **more: Any) -> Gain:
    values: dict[str, Any] = {
        "unit": "seconds",
        "arm_value": ratio * 1e-3,
        "baseline_value": 1e-3,
        "low": ratio - 0.01,
        "high": ratio + 0.01,
        "bound": None,
        "verdict": "faster" if ratio < 0.99 else "slower" if ratio > 1.01 else "cannot tell",
        "pairs": 6,
        "machine": "a box",
        "commit": "c" * 40,
        "modelled": False,
        **more,
    }
    return Gain(4, block, arm, baseline, metric, ratio=ratio, **values)


def effects(small: float, large: float) -> list[Gain]:
    """Give every effect on both blocks, all alike."""
    found = []
    for comparison in bench_factorial.COMPARISONS:
        arm, baseline = comparison.split(" / ")
        for block, ratio in ((SMALL, small), (LARGE, large)):
            found.append(gain(factorial_summary.EFFECT, block, arm, baseline, ratio))
    return found


def each(block: str, **ratios: float) -> list[Gain]:
    names = {"spin": "dual-pinned-spin-batched", "default": factorial_summary.DEFAULT}
    return [
        gain(factorial_summary.EACH, block, names[name], "original", ratio)
        for name, ratio in ratios.items()
    ]


def test_a_ratio_that_is_not_above_zero_has_no_part_in_the_mean() -> None:
    (table,) = factorial_summary.tables([*effects(0.5, 1.25), *effects(0.0, -1.0)])
    assert {dict(zip(table.header, row, strict=True))["blocks"] for row in table.rows} == {"2"}


def test_effects_are_averaged_over_blocks_with_their_best_and_worst() -> None:
    (table,) = factorial_summary.tables(effects(0.5, 1.25))
    assert table.header == EFFECT_HEADER
    assert len(table.rows) == len(bench_factorial.COMPARISONS)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row["effect"] == "dual / single"
    assert row["mean ratio"] == "0.791"  # geometric: the root of 0.5 x 1.25
    assert row["best block"] == f"0.5 ({SMALL})"
    assert row["worst block"] == f"1.25 ({LARGE})"
    assert (row["faster"], row["slower"], row["blocks"]) == ("1", "1", "2")


def test_the_default_is_as_good_as_the_best_where_intervals_overlap_and_only_there() -> None:
    rows = [*each(SMALL, spin=0.90, default=0.91), *each(LARGE, spin=0.80, default=0.85)]
    (table,) = factorial_summary.tables(rows)
    assert table.header == BEST_HEADER
    assert table.rows == [
        (SMALL, "dual-pinned-spin-batched", "0.9 [0.89, 0.91]", "0.91 [0.9, 0.92]", "yes"),
        (LARGE, "dual-pinned-spin-batched", "0.8 [0.79, 0.81]", "0.85 [0.84, 0.86]", "no"),
    ]


def test_a_row_without_a_ratio_is_in_no_table() -> None:
    rows = [replace(row, ratio=None, low=None, high=None) for row in effects(0.5, 0.5)]
    assert factorial_summary.tables(rows) == []


def test_report_and_readme_show_the_tables_and_not_hundreds_of_rows() -> None:
    rows = [*effects(0.5, 1.25), *each(SMALL, spin=0.90, default=0.91)]
    for text in (report.as_text(rows), report.as_markdown(rows)):
        assert "4. Over all blocks" in text
        assert "4. The best policy of each block" in text
        assert text.count(SMALL) == len(bench_factorial.COMPARISONS) + 1
    counted = [row for row in rows if row.metric == factorial_summary.EFFECT]
    assert list(factorial_summary.telling(rows)) == counted


def test_the_picture_says_the_mean_of_each_axis_and_needs_all_of_them() -> None:
    with look.style():
        drawn = factorial.draw(effects(0.5, 0.5))
        assert drawn is not None
        assert "over 2 loops: a second stream 50" in drawn.message
        assert "Pinned memory: 50" in drawn.alt
        only = [row for row in effects(0.5, 0.5) if row.arm != "batched"]
        assert factorial.draw(only) is None
