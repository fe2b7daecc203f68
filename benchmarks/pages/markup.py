"""HTML in which nothing reaches the page unescaped.

A :class:`Markup` is text that is HTML already; every other text is escaped when it
becomes part of an element. Only this module makes Markup of its own, and
:func:`trusted` for the few constants that are written as HTML.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from string import Template

#: Elements of HTML that have no end tag; those of SVG have one.
VOID = frozenset({"br", "hr", "img", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Iterable[str]


def trusted(text: str) -> Markup:
    """Take a constant as HTML; never data."""
    return Markup(text)


def escape(text: str) -> Markup:
    """Give a text as HTML; what is HTML already stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(text, quote=True))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Give several texts as HTML, one after the other."""
    return Markup(escape(between).join(escape(part) for part in parts))


def tag(name: str, *content: Content, **attributes: str | int | float | bool | None) -> Markup:
    """Give an element.

    Parameters
    ----------
    name : str
    *content : str or iterable of str
        Escaped unless it is Markup.
    **attributes
        Escaped. ``class_`` and ``for_`` lose their underscore, others in a name become
        hyphens; None and False leave the attribute out, True gives it without a value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    inner = join(part for piece in content for part in _parts(piece))
    return Markup(f"<{name}{written}>{inner}</{name}>")


def fill(template: Path, **values: Markup) -> str:
    """Fill a template's ``$name`` places.

    Raises
    ------
    TypeError
        A value is no Markup: it would get into the page unescaped.
    KeyError, ValueError
        The template names what is not given.
    """
    for name, value in values.items():
        if not isinstance(value, Markup):
            raise TypeError(f"{name} is not Markup; escape it first")
    return Template(template.read_text(encoding="utf-8")).substitute(values)


def _parts(piece: Content) -> Iterable[str]:
    return (piece,) if isinstance(piece, str) else piece


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(str(value), quote=True)}"'
