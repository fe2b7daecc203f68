"""``python -m benchmarks.pages [build|preview]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pages import preview, site
from benchmarks.runner.errors import RunnerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; give the exit status: 0, or 1 with a message."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "build":
            pages = site.build(options.site)
            print(f"\n{len(pages)} pages in {options.site}; `make preview` serves them")
        else:
            preview.serve(options.site, options.port)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("command", choices=("build", "preview"))
    parser.add_argument("--site", type=Path, default=site.SITE, metavar="FOLDER")
    parser.add_argument("--port", type=int, help="of the preview; default: the first free one")
    return parser


if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(main())
