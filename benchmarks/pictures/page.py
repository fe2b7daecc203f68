"""The page of a machine's results, in Markdown, and the README's three pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.pictures.album import IN_README
from benchmarks.pictures.look import Picture
from benchmarks.pictures.rows import SHORT_HASH
from benchmarks.report import as_markdown
from benchmarks.results import Gain

#: What stands around the pictures in the README.
README_BEGIN, README_END = "<!-- pictures -->", "<!-- /pictures -->"


class PageError(ValueError):
    """A page cannot be written into; the message says why."""


def page(gains: Sequence[Gain], pictures: Sequence[Picture], folder: str = "pictures") -> str:
    """Give a machine's page.

    Parameters
    ----------
    gains : sequence of Gain
        Of one machine and commit.
    pictures : sequence of Picture
    folder : str
        Where the picture files lie, from the page.
    """
    first = gains[0]
    measured = any(not gain.modelled for gain in gains)
    parts = [
        f"# {first.machine}\n",
        f"Commit `{first.commit[:SHORT_HASH]}`. `make report` writes this page and its pictures "
        "from the results beside it. Whatever is modelled says so in its title; everything else is "
        "measured.\n"
        if measured
        else f"Commit `{first.commit[:SHORT_HASH]}`. `make report` writes this page. This machine "
        "has no GPU: **everything here is modelled in virtual time, nothing is measured**.\n",
    ]
    for picture in pictures:
        parts.append(f"## {picture.message}\n\n{_embedded(picture, folder)}\n")
    if table := as_markdown(gains):
        parts.append(f"## All gains\n\n{table}\n")
    return "\n".join(parts)


def readme_block(pictures: Sequence[Picture], folder: str) -> str:
    """Give the README's pictures; each has its message as its title."""
    by_name = {picture.name: picture for picture in pictures}
    return "\n\n".join(
        _embedded(picture, folder)
        for name in IN_README
        if (picture := by_name.get(name)) is not None
    )


def with_block(text: str, block: str, path: Path) -> str:
    """Put the README's pictures between their markers.

    Raises
    ------
    PageError
        The markers are not there.
    """
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise PageError(f"{path} has no {README_BEGIN} ... {README_END}")
    return f"{before}{begin}\n{block}\n{end}{after}"


def _embedded(picture: Picture, folder: str) -> str:
    alt = f"{picture.message}. {picture.alt}".replace("[", "(").replace("]", ")")
    return f"![{alt}]({folder}/{picture.name}.svg)"
