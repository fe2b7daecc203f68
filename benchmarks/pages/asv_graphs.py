"""Fills in the graphs that asv's page asks for and asv does not write.

asv writes no graph of a benchmark that a machine has no results of, but its page asks for
one of every machine, and a browser reports each that is missing as an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from asv.graph import Graph  # type: ignore[import-untyped]

from benchmarks.pages.errors import PagesError

#: Folder of the graphs that show all machines as one, in asv's grid.
SUMMARIES = "graphs/summary"


def fill(folder: Path) -> int:
    """Write an empty graph for each that is missing; give how many.

    Parameters
    ----------
    folder : Path
        Of asv's pages.

    Raises
    ------
    PagesError
        asv's index cannot be read.
    """
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        newest = max(map(int, index["revision_to_hash"]), default=0)
        wanted = dict(_wanted(index["benchmarks"], index["graph_param_list"], newest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PagesError(f"{folder} has no index of asv's: {error}; run `make pages`") from error
    missing = [name for name in wanted if not (folder / name).exists()]
    for name in missing:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wanted[name]), encoding="utf-8")
    return len(missing)


def _wanted(
    benchmarks: dict[str, object], states: list[dict[str, str | None]], newest: int
) -> Iterator[tuple[str, list[object]]]:
    """Give what the page may ask for, each with its contents where it has none."""
    for benchmark in benchmarks:
        yield f"{SUMMARIES}/{benchmark}.json", []
        for state in states:
            # One point without a value: the page looks at the last one.
            yield f"{Graph.get_file_path(state, benchmark)}.json", [[newest, None]]
