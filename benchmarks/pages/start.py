"""The start page: what the committed results say, before any graph."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from benchmarks import factorial_summary
from benchmarks.pages import gallery, links, machines, tables, words
from benchmarks.pages.gallery import Shown
from benchmarks.pages.machines import Machine
from benchmarks.pages.markup import Markup, fill, join, tag
from benchmarks.report import QUESTIONS, SHORT_HASH
from benchmarks.results import Gain, read

STATIC = Path(__file__).resolve().parent / "static"
TEMPLATE = STATIC / "start.html"

#: Questions under which a table of each machine's ratios is shown from this many machines on.
COMPARED_FROM = 2


@dataclass(frozen=True)
class Run:
    """One machine's newest results, measured or modelled.

    Attributes
    ----------
    machine : Machine
    commit : str
    gains : list of Gain
        Sorted by question.
    pictures : list of Shown
    """

    machine: Machine
    commit: str
    gains: list[Gain]
    pictures: list[Shown] = field(default_factory=list)

    @property
    def questions(self) -> list[tuple[int, list[Gain]]]:
        """Give the rows by question."""
        return [
            (number, list(rows))
            for number, rows in groupby(self.gains, key=lambda gain: gain.question)
        ]


@dataclass(frozen=True)
class Story:
    """Everything that the start page tells.

    Attributes
    ----------
    measured, modelled : list of Run
        One a machine.
    benchmarks : container of str
        Names of the benchmarks that asv has graphs of.
    """

    measured: list[Run]
    modelled: list[Run]
    benchmarks: Container[str] = frozenset()

    @property
    def machines(self) -> dict[str, tuple[Machine, str]]:
        """Give every machine, with its commit."""
        return {
            run.machine.name: (run.machine, run.commit) for run in self.modelled + self.measured
        }


def tell(results: Path, benchmarks: Container[str]) -> Story:
    """Read what the start page tells from a results folder.

    Raises
    ------
    benchmarks.results.ResultsError
        There are no results, or they cannot be read.
    PagesError
        A machine's facts cannot be read.
    """
    ordered = sorted(
        read(results), key=lambda gain: (gain.modelled, gain.machine, gain.commit, gain.question)
    )
    runs: dict[bool, list[Run]] = {False: [], True: []}
    for (modelled, name, commit), rows in groupby(
        ordered, key=lambda gain: (gain.modelled, gain.machine, gain.commit)
    ):
        folder = results / name
        pictures = gallery.find(folder)
        runs[modelled].append(Run(machines.read(folder, commit), commit, list(rows), pictures))
    measured = {run.machine.name for run in runs[False]}
    # A machine's pictures are of its measured rows, if it has any.
    modelled = [
        Run(
            run.machine, run.commit, run.gains, [] if run.machine.name in measured else run.pictures
        )
        for run in runs[True]
    ]
    return Story(runs[False], modelled, benchmarks)


def page(story: Story) -> str:
    """Give the start page."""
    return fill(
        TEMPLATE,
        in_short=_in_short(story),
        measured=_measured(story),
        compared=_compared(story),
        machines=join(_card(machine, commit) for machine, commit in story.machines.values()),
        modelled=_modelled(story),
        links=_links(),
    )


def pictures(story: Story) -> list[Shown]:
    """List the pictures that the page shows."""
    return [picture for run in story.measured + story.modelled for picture in run.pictures]


def _in_short(story: Story) -> Markup:
    if not story.measured:
        return tag(
            "p",
            "Nothing here was measured: these results come from machines without a GPU. What they "
            "have is ",
            tag("a", "modelled in virtual time", href="#modelled"),
            ".",
            class_="notice",
        )
    return join(
        join(
            [
                tag(
                    "p",
                    "Measured on ",
                    tag("strong", run.machine.device),
                    f" ({run.machine.name}):",
                ),
                tag("ul", [_short(run, number, rows) for number, rows in run.questions]),
            ]
        )
        for run in story.measured
    )


def _short(run: Run, number: int, rows: Sequence[Gain]) -> Markup:
    return tag(
        "li",
        tag("a", _title(number), href=f"#{_anchor(run, number)}"),
        " ",
        words.headline(number, rows),
        " ",
        tag("span", words.verdicts(factorial_summary.telling(rows)), class_="counts"),
    )


def _measured(story: Story) -> Markup:
    return join(_run(run, story.benchmarks, is_open=True) for run in story.measured)


def _modelled(story: Story) -> Markup:
    if not story.modelled:
        return tag("p", "None of these results has modelled rows.")
    return join(
        tag(
            "details",
            tag("summary", f"Modelled rows of {run.machine.name}"),
            _run(run, story.benchmarks),
            open=not story.measured,
        )
        for run in story.modelled
    )


def _run(run: Run, benchmarks: Container[str], is_open: bool = False) -> Markup:
    kind = "modelled" if run.gains[0].modelled else "measured"
    by_question: Mapping[int | None, list[Shown]] = {
        number: [picture for picture in run.pictures if picture.question == number]
        for number in {None, *gallery.QUESTIONS.values()}
    }
    parts = [
        tag(
            "p",
            f"{words.capital(kind)} on ",
            tag("a", run.machine.name, href=f"#{links.machine_anchor(run.machine.name)}"),
            f" ({run.machine.device}) at commit ",
            _commit(run.commit),
            ".",
            class_="source",
        )
    ]
    parts += [tag("p", warning, class_="notice") for warning in _warnings(run)]
    answered = {number for number, _ in run.questions}
    for number, rows in run.questions:
        parts.append(_question(run, number, rows, by_question.get(number, []), benchmarks))
    rest = [
        picture
        for number, some in by_question.items()
        if number not in answered
        for picture in some
    ]
    if rest:
        parts += [tag("h3", "More pictures"), *(_figure(picture) for picture in rest)]
    return tag("section", parts, class_=kind, aria_label=f"{kind} on {run.machine.name}")


def _warnings(run: Run) -> list[str]:
    if run.gains[0].modelled:
        return []  # virtual time does not mind the clocks
    return [f"To be measured again: {reason}." for reason in run.machine.warnings]


def _question(
    run: Run, number: int, rows: Sequence[Gain], shown: Sequence[Shown], benchmarks: Container[str]
) -> Markup:
    if number == factorial_summary.QUESTION:
        listed = [
            tables.plain_table(table.title.partition(" ")[2], table.header, table.rows)
            for table in factorial_summary.tables(rows)
        ]
    else:
        compared = words.by_comparison(rows)
        listed = [tables.comparison_table(some, benchmarks) for some in compared.values()]
    return join(
        [
            tag("h3", f"{number}. {_title(number)}", id=_anchor(run, number)),
            tag("p", words.headline(number, rows), class_="headline"),
            tag("p", words.verdicts(factorial_summary.telling(rows)), class_="counts"),
            *(_figure(picture) for picture in shown),
            *listed,
        ]
    )


def _compared(story: Story) -> Markup:
    if len(story.measured) < COMPARED_FROM:
        return Markup("")
    by_name = {run.machine.name: run.machine for run in story.measured}
    by_question: dict[int, list[Gain]] = {}
    for run in story.measured:
        for number, rows in run.questions:
            by_question.setdefault(number, []).extend(rows)
    parts = [
        tag("h2", "Machines compared", id="compared"),
        tag(
            "p",
            "The same comparisons, one machine a column. Only ratios are set side by side: each "
            "was taken pair by pair on its own machine.",
        ),
    ]
    for number, rows in sorted(by_question.items()):
        parts += [
            tag("h3", f"{number}. {_title(number)}"),
            tables.machine_comparison(factorial_summary.telling(rows), by_name),
        ]
    return tag("section", parts, aria_labelledby="compared")


def _card(machine: Machine, commit: str) -> Markup:
    facts = [
        tag("div", tag("dt", label), tag("dd", value)) for label, value in machine.facts.items()
    ]
    return tag(
        "article",
        tag("h3", machine.name, id=links.machine_anchor(machine.name)),
        tag("p", f"{machine.device}. Newest results: commit ", _commit(commit), "."),
        tag("dl", facts) if facts else "",
        class_="card",
    )


def _figure(picture: Shown) -> Markup:
    image = tag("img", src=picture.path, alt=picture.alt, loading="lazy")
    return tag("figure", tag("a", image, href=picture.path, class_="picture"))


def _commit(commit: str) -> Markup:
    short = commit[:SHORT_HASH]
    return tag("a", tag("code", short), href=f"{links.COMMITS}#{links.COMMIT_ANCHOR}{short}")


def _links() -> Markup:
    listed = (
        (links.GRID, "All graphs", "every benchmark over the commits, as small pictures"),
        (links.LIST, "List of benchmarks", "newest values and their last change"),
        (links.REGRESSIONS, "Regressions", "where a value became worse and stayed so"),
        (links.FEED, "Feed of regressions", "for a feed reader"),
        (links.COMMITS, "Commits", "which commits have results, on which machines"),
    )
    return tag(
        "ul",
        [tag("li", tag("a", name, href=where), f": {what}") for where, name, what in listed],
    )


def _title(number: int) -> str:
    return QUESTIONS.get(number, f"Question {number}")


def _anchor(run: Run, number: int) -> str:
    kind = "modelled" if run.gains[0].modelled else "measured"
    return f"{kind}-{links.machine_anchor(run.machine.name)}-question-{number}"
