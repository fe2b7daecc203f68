"""asv's environment for one commit: inherits torch, holds only the commit's wheel.

An asv plugin, named in asv.conf.json. asv's own kinds of environment download
torch for each configuration; this one takes it, and all else, from the Python
that runs asv, so it works without a network.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from asv import environment, util  # type: ignore[import-untyped]
from asv.console import log  # type: ignore[import-untyped]

from benchmarks.runner import inherit

RUNNING_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

#: What a commit's build and its benchmarks import beside the library.
NEEDED = ("pip", "setuptools", "asv_runner", "numpy", "torch")


class InheritingEnvironment(environment.Environment):  # type: ignore[misc]
    """A virtual environment on the running Python and its packages.

    The torch version is part of the environment's name, so results of two torch
    versions are two series and not one with a step in it.
    """

    tool_name = "inherit"
    matches_python_fallback = False

    def __init__(
        self,
        conf: Any,
        python: str,
        requirements: dict[str, str],
        tagged_env_vars: dict[tuple[str, str], str],
    ) -> None:
        if not self.matches(python):
            raise environment.EnvironmentUnavailable(
                f"Python {python} was asked for, and this is {RUNNING_PYTHON}; "
                "run asv with the Python to measure with"
            )
        try:
            torch_version = metadata.version("torch")
        except metadata.PackageNotFoundError:
            raise environment.EnvironmentUnavailable(
                f"{sys.executable} has no torch to inherit; use `make bench`"
            ) from None
        self._folders = inherit.package_folders(Path.cwd())
        # asv asks for the environment's name, which these are part of, while it sets up.
        self._requirements = {**requirements, "torch": torch_version}
        super().__init__(conf, python, self._requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        """Whether `python` is the version that runs now, the only one there is."""
        return python == RUNNING_PYTHON

    def check_presence(self) -> bool:
        """Whether the environment on disk is what a new one would be."""
        path = Path(self._path)
        try:
            info = self.load_info_file(self._path)
            self.run_executable("python", ["-c", "pass"])
        except (util.UserError, util.ProcessError, OSError, subprocess.CalledProcessError):
            return False
        as_new = {
            "tool_name": self.tool_name,
            "python": self._python,
            "requirements": self._requirements,
            "build_env_vars": self.build_env_vars,
        }
        return bool(info == as_new and inherit.inherited_folders(path) == self._folders)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run the environment's Python with `args`."""
        log.debug(f"Running '{' '.join(args)}' in {self.name}")
        return self.run_executable("python", args, **kwargs)

    def _setup(self) -> None:
        log.info(f"Creating {self.name}")
        path = Path(self._path)
        inherit.create_environment(path)
        inherit.inherit_packages(path, self._folders)
        probe = (
            "import importlib.util as u, sys; "
            f"sys.exit(' '.join(n for n in {NEEDED!r} if u.find_spec(n) is None) or None)"
        )
        try:
            self.run_executable("python", ["-c", probe], display_error=False)
        except util.ProcessError as error:
            raise util.UserError(
                f"{sys.executable} lacks packages that an environment inherits: "
                f"{error.stderr.strip()}. Use `make bench`, which installs them"
            ) from None
