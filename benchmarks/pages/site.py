"""Builds the site: asv's pages, what they load, and in front of them the start page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.pages import asv_graphs, asv_page, commits, gallery, links, start, vendored
from benchmarks.pages.errors import PagesError
from benchmarks.pages.start import STATIC
from benchmarks.results import ResultsError
from benchmarks.runner.commands import PROJECT, run_module
from benchmarks.runner.repository import Repository

#: Where the site is built. Not asv's own folder, so that a plain ``asv publish`` does not
#: take the start page away.
SITE = PROJECT / ".asv" / "site"

#: Styles and scripts of the site's own pages, by their names in the static folder.
OWN_FILES = ("start.css", "graphs.css", "graphs.js")

#: Marks a folder as a site that was built here, which may be built anew.
MARKER = ".asyncout-site"

#: Puts asv's pages of a project into a folder; gives its exit status.
Publish = Callable[[Path], int]


def asv_publish(folder: Path) -> int:
    """Have asv publish this project's results."""
    return run_module(["asv", "publish", "--no-pull", "--html-dir", str(folder)], {})


def build(site: Path = SITE, project: Path = PROJECT, publish: Publish = asv_publish) -> list[Path]:
    """Build the whole site; list its HTML pages.

    Parameters
    ----------
    site : Path
        Made anew: :data:`SITE`, a folder that is not there or empty, or one that was built here.
    project : Path
        Checkout with ``results/``.
    publish : callable

    Raises
    ------
    PagesError, benchmarks.runner.errors.RepositoryError
        The message says which part could not be made and what to do.
    """
    results = project / "results"
    try:
        story = start.tell(results, _benchmark_names(results))
    except ResultsError as error:
        raise PagesError(str(error)) from error
    Repository(project).require_publishable()
    _make_anew(site)
    asv = site / links.ASV_FOLDER
    if status := publish(asv):
        raise PagesError(f"asv could not publish the results (status {status}); it says why above")
    asv_page.rewrite_folder(asv)
    asv_graphs.fill(asv)
    vendored.copy_into(site)
    gallery.copy_into(site, start.pictures(story))
    _copy_own(site)
    listed = commits.read(asv, results, project)
    for name, page in (("index.html", start.page(story)), (links.COMMITS, commits.page(listed))):
        (site / name).write_text(page, encoding="utf-8")
    return sorted(site.rglob("*.html"))


def _make_anew(site: Path) -> None:
    """Empty a folder of what was built there, and of nothing else."""
    try:
        is_free = not site.exists() or not any(site.iterdir())
        if not is_free and site != SITE and not (site / MARKER).is_file():
            raise PagesError(
                f"{site} holds something else than a site that was built here, and building would "
                "delete it; name an empty folder"
            )
        shutil.rmtree(site, ignore_errors=True)
        site.mkdir(parents=True, exist_ok=True)
        (site / MARKER).touch()
    except OSError as error:
        raise PagesError(f"no site can be built in {site}: {error}") from error


def _benchmark_names(results: Path) -> frozenset[str]:
    """Give the names of the benchmarks that asv makes graphs of."""
    path = results / "benchmarks.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(name for name in table if isinstance(table[name], dict))
    except (OSError, ValueError, TypeError) as error:
        raise PagesError(
            f"{path} is missing or cut: {error}; it is committed together with the results"
        ) from error


def _copy_own(site: Path) -> None:
    target = site / "static"
    target.mkdir()
    for name in OWN_FILES:
        shutil.copyfile(STATIC / name, target / name)
