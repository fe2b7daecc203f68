"""Rewrites asv's own page so that it loads what is shipped, and can be used by keyboard.

The page is asv's, of the version that is pinned; a rewrite that does not find its place
says so instead of leaving a page half done.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.pages import vendored
from benchmarks.pages.errors import PagesError

PAGE, ERROR_PAGE = "index.html", "error.html"

#: Shipped file for each script and style that asv loads from elsewhere, by the end of its
#: address. The npm package of flot has no smaller files.
REPLACED = {
    "/jquery-3.3.1.min.js": "jquery/jquery.min.js",
    "/0.8.3/jquery.flot.min.js": "flot/jquery.flot.js",
    "/0.8.3/jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "/0.8.3/jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "/0.8.3/jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "/jquery.flot.orderBars.js": "flot-orderbars/jquery.flot.orderBars.js",
    "/1.0.1/stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
    "/2.19.0/js/md5.min.js": "blueimp-md5/md5.min.js",
    "/dist/js/bootstrap.min.js": "bootstrap/bootstrap.min.js",
    "/dist/css/bootstrap.min.css": "bootstrap/bootstrap.min.css",
}

#: What asv's page may load: itself. Its scripts write styles into elements.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)

#: Own style and script of asv's page, from its folder.
STYLE, SCRIPT = "../static/graphs.css", "../static/graphs.js"

#: From asv's folder to the site's root.
_UP = "../"

_EXTERNAL_SCRIPT = re.compile(r'<script src="(https?://[^"]+)"[^>]*></script>')
_EXTERNAL_STYLE = re.compile(r'<link rel="stylesheet" href="(https?://[^"]+)"[^>]*>')
_FAILURE_SCRIPT = re.compile(r"<script[^>]*>\s*function js_load_failure\(\).*?</script>", re.S)
_BRAND = re.compile(r'<p class="navbar-text">.*?</p>', re.S)

#: What stands at the left of asv's bar. asv fills in the element "project-name".
_OWN_BRAND = (
    '<p class="navbar-text"><a href="../index.html" class="navbar-link">Start page</a>'
    '<a id="project-name" href="../index.html" class="navbar-link" hidden></a></p>'
)

#: Plain replacements: what is there once, and what it becomes.
_REPLACEMENTS = (
    ("<html>", '<html lang="en">'),
    (
        '<meta http-equiv="Content-Type" content="text/html; charset=utf-8">',
        '<meta charset="utf-8">\n'
        '    <meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Its own style turns the colours in the dark; the browser must not turn some of them.
        '    <meta name="color-scheme" content="light">\n'
        f'    <meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">',
    ),
    (
        "<body>",
        '<body>\n    <a class="skip" href="#main">Skip to the graphs</a>\n'
        "    <noscript>These graphs need JavaScript; the "
        '<a href="../index.html">start page</a> does not.</noscript>',
    ),
    ('role="navigation">', 'aria-label="Pages">'),
    (
        '<span class="navbar-brand" id="title">',
        '<span class="navbar-brand" id="title" role="heading" aria-level="1">',
    ),
    ("</nav>", '</nav>\n    <main id="main" tabindex="-1">'),
    (
        "<!-- A modal dialog box for displaying error messages -->",
        "</main>\n    <!-- A modal dialog box for displaying error messages -->",
    ),
    (
        '<input id="range" type="text"',
        '<input id="range" aria-label="Selected range of commits" type="text"',
    ),
    (
        '<div id="main-graph"',
        '<div id="main-graph" role="img" aria-label="Graph; the list of benchmarks has values"',
    ),
    ('<div id="overview"', '<div id="overview" role="img" aria-label="Overview of the graph"'),
    (
        "</head>",
        f'  <link href="{STYLE}" rel="stylesheet">\n'
        f'    <script src="{SCRIPT}"></script>\n  </head>',
    ),
)


def rewrite(page: str) -> str:
    """Give asv's page with everything that it loads taken from the site itself.

    Raises
    ------
    PagesError
        It is not the page of the asv that is pinned.
    """
    page = _once(_FAILURE_SCRIPT, "", page)
    page = _once(_BRAND, _OWN_BRAND, page)
    page = _EXTERNAL_SCRIPT.sub(lambda found: f'<script src="{_shipped(found[1])}"></script>', page)
    page = _EXTERNAL_STYLE.sub(
        lambda found: f'<link rel="stylesheet" href="{_shipped(found[1])}">', page
    )
    for old, new in _REPLACEMENTS:
        page = _once(re.compile(re.escape(old)), new, page)
    if found := re.search(r"https?://[^\s\"'<]+", page):
        raise PagesError(
            f"asv's page still names {found[0]}; it is of another version than the one pinned in "
            "pyproject.toml: install that one"
        )
    return page


def rewrite_folder(folder: Path) -> None:
    """Rewrite asv's page in its folder; take out its page on scripts that did not load."""
    path = folder / PAGE
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PagesError(f"asv has published no page: {error}") from error
    path.write_text(rewrite(page), encoding="utf-8")
    (folder / ERROR_PAGE).unlink(missing_ok=True)


def loaded() -> Iterable[str]:
    """List the shipped files that asv's page loads."""
    return REPLACED.values()


def _shipped(address: str) -> str:
    for end, path in REPLACED.items():
        if address.endswith(end):
            return f"{_UP}{vendored.SITE_FOLDER}/{path}"
    raise PagesError(
        f"asv's page loads {address}, which is not shipped; asv is of another version than the one "
        "pinned in pyproject.toml: install that one"
    )


def _once(pattern: re.Pattern[str], new: str, page: str) -> str:
    changed, count = pattern.subn(lambda _: new, page)
    if count != 1:
        raise PagesError(
            f"asv's page has {count} places like {pattern.pattern!r}, not one; it is of another "
            "version than the one pinned in pyproject.toml: install that one"
        )
    return changed
