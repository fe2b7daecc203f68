"""Lets a new environment use the packages of the Python that runs now.

``--system-site-packages`` shows only the base Python's packages. Where torch is
installed in a virtual environment, or named by PYTHONPATH, that finds nothing.
One ``.pth`` file that names the folders works in each case, and costs no copy
and no download.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from pathlib import Path

PTH_NAME = "inherited.pth"


def package_folders(project: Path) -> list[str]:
    """List the folders that the running Python imports packages from.

    Parameters
    ----------
    project : Path
        Root of this project; left out, so that an environment never sees the
        working tree instead of what is installed in it.
    """
    standard = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    standard |= {folder / "lib-dynload" for folder in standard}
    left_out = standard | {project.resolve(), Path(sysconfig.get_path("scripts")).resolve()}
    found: list[str] = []
    for entry in sys.path:
        folder = Path(entry or os.curdir).resolve()
        if folder.is_dir() and folder not in left_out and str(folder) not in found:
            found.append(str(folder))
    return found


def site_packages(environment: Path) -> Path:
    """Give the package folder of a virtual environment for this Python version."""
    # "venv" exists from Python 3.11; before, the prefix scheme has the same layout.
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
    base = str(environment)
    folder = sysconfig.get_path("purelib", scheme, vars={"base": base, "platbase": base})
    return Path(folder)


def create_environment(environment: Path, *, with_pip: bool = False) -> None:
    """Make an empty virtual environment, replacing what is there."""
    venv.EnvBuilder(symlinks=True, clear=True, with_pip=with_pip).create(environment)


def inherit_packages(environment: Path, folders: list[str]) -> None:
    """Append `folders` to what the environment imports from, after its own."""
    (site_packages(environment) / PTH_NAME).write_text("\n".join(folders) + "\n")


def inherited_folders(environment: Path) -> list[str]:
    """List the folders that an environment inherits; empty without the file."""
    path = site_packages(environment) / PTH_NAME
    return path.read_text().splitlines() if path.is_file() else []
