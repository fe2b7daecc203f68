"""How every picture looks, and how it is saved: the same bytes for the same numbers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Colours that the colour-blind tell apart (Okabe and Ito's). Shapes or hatches always say
#: the same again.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY = "#CC79A7", "#56B4E9"

INK, GREY, FAINT = "#1a1a1a", "#5f6368", "#dadce0"

#: A light ground under everything, so that a picture on a dark page stays legible.
PAPER = "#ffffff"

#: Pixels per inch of the PNG files: sharp on a dense screen at a page's width.
DPI = 160

#: Width in inches; 8.5 inches at the usual text sizes fit a page of prose.
WIDTH = 8.5

#: Inches that title, subtitle and footer take.
LINE, SUBLINE, MARGIN, FOOTER = 0.235, 0.17, 0.16, 0.30

#: Characters of a title and of a subtitle in one line of :data:`WIDTH`.
TITLE_CHARACTERS, SUBTITLE_CHARACTERS = 82, 118

#: Everything that decides what a file's bytes are, beside the numbers. No date, no random
#: ids, and glyphs as outlines: the same on machines with other fonts.
_SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "asyncout",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}


class PictureError(RuntimeError):
    """A picture cannot be drawn; the message says why and what to do."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure and what it says.

    Attributes
    ----------
    name : str
        Of its files, without the ending.
    figure : matplotlib.figure.Figure
    message : str
        One sentence: what the numbers say. Also its title.
    alt : str
        What is to be seen, for whoever does not see it.
    """

    name: str
    figure: Any
    message: str
    alt: str


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this block with the settings of all pictures.

    Raises
    ------
    PictureError
        matplotlib is not there.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise PictureError(
            "pictures need matplotlib, which is not installed; install the extra 'bench' "
            '(pip install -e ".[bench]") or matplotlib itself'
        ) from error
    with matplotlib.rc_context(_SETTINGS):
        yield


def figure(title: str, subtitle: str, footer: str, height: float, panels: Any = 1) -> Any:
    """Make a figure with its title, what stands below it and a footer, and its axes.

    Parameters
    ----------
    title, subtitle, footer : str
        Wrapped to the figure's width.
    height : float
        Inches of the panels with their labels.
    panels : int or list of float
        How many side by side, or their widths.

    Returns
    -------
    (matplotlib.figure.Figure, list of matplotlib.axes.Axes)
    """
    from matplotlib.figure import Figure

    above = textwrap.wrap(title, TITLE_CHARACTERS)
    below = textwrap.wrap(subtitle, SUBTITLE_CHARACTERS)
    head = 2 * MARGIN + LINE * len(above) + SUBLINE * len(below)
    total = head + height + FOOTER
    drawn = Figure(figsize=(WIDTH, total), dpi=DPI, layout="constrained")
    drawn.get_layout_engine().set(rect=(0.005, FOOTER / total, 0.99, height / total))
    at = total - MARGIN
    for line in above:
        drawn.text(MARGIN / WIDTH, at / total, line, fontsize=12, weight="bold", va="top")
        at -= LINE
    for line in below:
        drawn.text(MARGIN / WIDTH, at / total, line, fontsize=8.5, color=GREY, va="top")
        at -= SUBLINE
    drawn.text(MARGIN / WIDTH, 0.09 / total, footer, fontsize=7.5, color=GREY, va="bottom")
    widths = [1.0] * panels if isinstance(panels, int) else panels
    axes = drawn.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    return drawn, list(axes)


#: matplotlib's name of a clip path, where it is made and where it is used.
_CLIP = re.compile(r"(?<=id=\")p[0-9a-f]{10}(?=\")|(?<=url\(#)p[0-9a-f]{10}(?=\))")


def save(picture: Picture, folder: Path) -> list[Path]:
    """Write a picture as SVG and PNG; give both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = (folder / f"{picture.name}.{ending}" for ending in ("svg", "png"))
    with style():
        picture.figure.savefig(svg, metadata={"Date": None, "Creator": None})
        picture.figure.savefig(png, metadata={"Software": None})
    # matplotlib leaves blanks at the ends of lines, which diffs complain of.
    lines = _with_steady_clips(svg.read_text(encoding="utf-8")).splitlines()
    svg.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return [svg, png]


def _with_steady_clips(svg: str) -> str:
    """Number the clip paths.

    matplotlib names each by a hash of its rectangle, of which the last digits, far below
    what is written of it, may differ from run to run.
    """
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: f"clip{numbers[found.group()]}", svg)


def legend(axes: Any, looks: dict[str, dict[str, Any]], **where: Any) -> None:
    """Add a legend of plain markers and lines, without the bars of the intervals."""
    handles = [axes.plot([], [], label=label, **drawn)[0] for label, drawn in looks.items()]
    axes.legend(handles=handles, **where)


def plain_log_ticks(axis: Any, ticks: dict[float, str]) -> None:
    """Put these ticks, and no others, on a logarithmic axis."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FixedFormatter(list(ticks.values())))
    axis.set_minor_locator(NullLocator())
