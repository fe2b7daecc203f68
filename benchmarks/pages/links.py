"""Where asv's graphs are, from the root of the site."""

from __future__ import annotations

from urllib.parse import quote

from benchmarks.results import Gain
from benchmarks.rows import comparison

#: Folder of asv's pages in the site, and its page, which shows what its fragment names.
ASV_FOLDER = "asv"
ASV_PAGE = f"{ASV_FOLDER}/index.html"

GRID = f"{ASV_PAGE}#/"
LIST = f"{ASV_PAGE}#/summarylist"
REGRESSIONS = f"{ASV_PAGE}#/regressions"
FEED = f"{ASV_FOLDER}/regressions.xml"

COMMITS = "commits.html"

#: What asv.conf.json has as ``show_commit_url``, to which asv adds a hash, short or whole.
COMMIT_ANCHOR = "commit-"


def graph(gain: Gain, method: str = "track_ratio") -> str:
    """Give the address of a row's graph over the commits.

    Parameters
    ----------
    gain : Gain
    method : str
        Which figure of it; a row without a ratio has a graph of "track_arm".
    """
    fields = {
        "machine": gain.machine,
        # asv names a parameter's value as Python writes it.
        "p-workload": repr(gain.workload),
        "p-comparison": repr(comparison(gain.arm, gain.baseline)),
    }
    query = "&".join(f"{quote(key, safe='')}={quote(fields[key], safe='')}" for key in fields)
    return f"{ASV_PAGE}#{gain.benchmark}.{method}?{query}"


def machine_anchor(machine: str) -> str:
    """Give the id of a machine's facts on the start page."""
    return f"machine-{quote(machine, safe='')}"
