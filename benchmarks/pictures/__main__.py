"""Draws the pictures of a machine's results: ``python -m benchmarks.pictures``.

Writes SVG and PNG files, and the page ``REPORT.md`` beside their folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import timeline
from benchmarks.pictures import album, look, page
from benchmarks.report import ROOT
from benchmarks.results import Gain, ResultsError, machines, read

PAGE = "REPORT.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what the command line asks for; give the exit status.

    0: written, or nothing to write; 1: it could not be drawn, and stderr says why; 2: with
    ``--check``, a page is not the one of these results.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [options.machine] if options.machine else machines(options.results)
    if len(names) != 1 and (options.out or options.readme):
        parser.error("--out and --readme are for one machine: name it with --machine")
    try:
        statuses = [_one_machine(name, options) for name in names or [None]]
    except (ResultsError, look.PictureError, timeline.TraceError, page.PageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return max(statuses)


def _one_machine(name: str | None, options: argparse.Namespace) -> int:
    gains = read(options.results, name, options.commit)
    if not gains:
        print(f"{name}: no rows to draw", file=sys.stderr)
        return 0
    out = options.out or options.results / gains[0].machine / "pictures"
    pictures = album.build(gains, out)
    texts = _texts(gains, pictures, out, options.readme)
    if options.check:
        changed = [path for path, text in texts.items() if _read(path) != text]
        for path in changed:
            print(f"error: {path} is not the one of these results; `make report` writes it",
                  file=sys.stderr)  # fmt: skip
        return 2 if changed else 0
    for picture in pictures:
        look.save(picture, out)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(pictures)} pictures in {out}, {', '.join(map(str, texts))}", file=sys.stderr)
    return 0


def _texts(
    gains: Sequence[Gain], pictures: Sequence[look.Picture], out: Path, readme: Path | None
) -> dict[Path, str]:
    """Give the pages to write."""
    texts = {out.parent / PAGE: page.page(gains, pictures, out.name)}
    if readme is not None:
        folder = Path(os.path.relpath(out, readme.resolve().parent)).as_posix()
        block = page.readme_block(pictures, folder)
        texts[readme] = page.with_block(readme.read_text(encoding="utf-8"), block, readme)
    return texts


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="asv's folder")
    parser.add_argument("--machine", metavar="NAME", help="only this machine; default: all")
    parser.add_argument("--commit", metavar="HASH", help="this commit; default: the newest")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: results/NAME/pictures")
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help="also put three into a file's markers"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare the pages")
    return parser


if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(main())
