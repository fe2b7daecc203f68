"""Tables of gains and of machines, as HTML."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from benchmarks.pages import links, words
from benchmarks.pages.bars import bar
from benchmarks.pages.machines import Machine
from benchmarks.pages.markup import Markup, join, tag
from benchmarks.report import human
from benchmarks.results import Gain

#: Class of a verdict's mark.
_MARKS = {"faster": "faster", "slower": "slower"}


def comparison_table(gains: Sequence[Gain], benchmarks: Container[str]) -> Markup:
    """Give the rows of one comparison, one workload a row.

    Parameters
    ----------
    gains : sequence of Gain
        Of one machine, metric, arm and baseline.
    benchmarks : container of str
        Names of the benchmarks that asv has graphs of.
    """
    metric, arm, baseline = words.comparison_of(gains[0])
    kind = "modelled" if gains[0].modelled else "measured"
    has_bound = any(gain.bound is not None for gain in gains)
    columns = ["workload", arm, baseline, "change", "ratio and 95 % interval"]
    columns += ["bound"] if has_bound else []
    columns += ["verdict", "over commits"]
    caption = f"{words.capital(metric)}: {arm} against {baseline} ({kind})"
    return table(caption, columns, [_row(gain, has_bound, benchmarks) for gain in gains])


def machine_comparison(gains: Sequence[Gain], machines: Mapping[str, Machine]) -> Markup:
    """Give the ratios of one question beside each other, one machine a column."""
    names = list(machines)
    by_row: dict[tuple[str, ...], dict[str, Gain]] = {}
    for gain in gains:
        key = (gain.metric, f"{gain.arm} against {gain.baseline}", gain.workload)
        by_row.setdefault(key, {})[gain.machine] = gain
    rows = []
    for (metric, compared, workload), found in by_row.items():
        cells = [
            tag("th", words.capital(metric), tag("br"), tag("small", compared), scope="row"),
            tag("td", workload),
            *(_ratio_cell(found.get(name)) for name in names),
        ]
        rows.append(tag("tr", cells))
    heads = [Markup(join([name, tag("br"), tag("small", machines[name].device)])) for name in names]
    return table("Ratios by machine (measured)", ["comparison", "workload", *heads], rows)


def plain_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Give rows of text as a table; the first cell of each names it."""
    return table(
        caption,
        columns,
        [
            tag("tr", tag("th", first, scope="row"), [tag("td", cell) for cell in rest])
            for first, *rest in rows
        ],
    )


def table(caption: str, columns: Sequence[str], rows: Sequence[Markup]) -> Markup:
    """Give a table that scrolls sideways by itself where the page is narrow."""
    head = tag("thead", tag("tr", [tag("th", column, scope="col") for column in columns]))
    whole = tag("table", tag("caption", caption), head, tag("tbody", rows))
    # A region that scrolls must be reachable by keyboard, and then needs a name.
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _row(gain: Gain, has_bound: bool, benchmarks: Container[str]) -> Markup:
    cells = [
        tag("th", gain.workload, scope="row"),
        tag("td", human(gain.arm_value, gain.unit), class_="figure"),
        tag("td", human(gain.baseline_value, gain.unit), class_="figure"),
        tag("td", words.change(gain.ratio), class_="change"),
        tag("td", _ratio(gain), class_="rate"),
    ]
    if has_bound:
        cells.append(tag("td", "" if gain.bound is None else f"{gain.bound:.3g}", class_="figure"))
    return tag("tr", cells, tag("td", _verdict(gain)), tag("td", _graph(gain, benchmarks)))


def _ratio(gain: Gain) -> Markup:
    if gain.ratio is None or gain.low is None or gain.high is None:
        return join([gain.figures])
    shown = bar(gain.ratio, gain.low, gain.high)
    return join([shown, tag("span", gain.figures, class_="figures")])


def _ratio_cell(gain: Gain | None) -> Markup:
    if gain is None:
        return tag("td", "not measured", class_="absent")
    return tag("td", _ratio(gain), " ", _verdict(gain))


def _verdict(gain: Gain) -> Markup:
    return tag("span", gain.verdict, class_=f"verdict {_MARKS.get(gain.verdict, 'unclear')}")


def _graph(gain: Gain, benchmarks: Container[str]) -> Markup:
    method = "track_arm" if gain.ratio is None else "track_ratio"
    if f"{gain.benchmark}.{method}" not in benchmarks:
        return join(["–"])
    what = f" of {gain.metric}, {gain.arm} against {gain.baseline}, {gain.workload}"
    return tag("a", "graph", tag("span", what, class_="hidden"), href=links.graph(gain, method))
