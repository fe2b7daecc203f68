"""Makes the environment that every command runs in: ``... FOLDER EXTRA...``.

With a torch that this Python can import, the environment inherits it and all the
packages beside it; without one, the environment is isolated and torch is
installed. Then only what is missing is installed, and the project itself as a
link to the working tree. Standard library only: it runs before anything is there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runner import inherit
from benchmarks.runner.errors import RunnerError, SetupError

#: The torch that is installed where there is none: the one that the tests run with.
TORCH_REQUIREMENT = "torch==2.13.0"

#: First torch with all that the library calls; the same bound as in pyproject.toml.
OLDEST_TORCH = (2, 7)


def make_environment(environment: Path, project: Path, extras: Sequence[str]) -> None:
    """Create `environment`, unless it is there, and install what `extras` lack.

    Raises
    ------
    SetupError
        This Python cannot make environments, its torch is too old, or a package
        could not be installed.
    """
    if importable_torch(_python(environment)) is None:  # else it is complete but for packages
        _create_with_torch(environment, project)
    lacking = _missing(environment, project, extras)
    if lacking:
        _pip_install(environment, project, lacking)
    _pip_install(environment, project, ["--no-deps", "--no-build-isolation", "--editable", "."])


def importable_torch(python: str) -> str | None:
    """Give the version of the torch that a Python imports, None without one."""
    probe = "import torch; print(torch.__version__)"
    try:
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _create_with_torch(environment: Path, project: Path) -> None:
    torch_version = importable_torch(sys.executable)
    if torch_version is None:
        _say("no torch here: making an isolated environment and installing torch into it")
        _require_ensurepip()
        inherit.create_environment(environment, with_pip=True)
        _pip_install(environment, project, [TORCH_REQUIREMENT])
    else:
        _require_recent(torch_version)
        _say(f"inheriting torch {torch_version} and its neighbours from {sys.executable}")
        has_pip = importlib.util.find_spec("pip") is not None
        if not has_pip:
            _require_ensurepip()
        inherit.create_environment(environment, with_pip=not has_pip)
        inherit.inherit_packages(environment, inherit.package_folders(project))


def _require_recent(torch_version: str) -> None:
    major, minor = torch_version.split(".")[:2]
    if (int(major), int(minor)) < OLDEST_TORCH:
        oldest = ".".join(str(part) for part in OLDEST_TORCH)
        raise SetupError(
            f"{sys.executable} has torch {torch_version}; asyncout needs {oldest} or later. "
            "Upgrade it, or name a Python without torch: make PYTHON=/path/to/python3"
        )


def _require_ensurepip() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"{sys.executable} cannot make an environment with pip (no ensurepip). "
            f"On Debian and Ubuntu: apt install python{version}-venv"
        )


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def _clean_environ() -> dict[str, str]:
    """Copy the variables without those that let other packages into an environment."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def _missing(environment: Path, project: Path, extras: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [_python(environment), "-m", "benchmarks.runner.requirements", *extras],
        cwd=project,
        env=_clean_environ(),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SetupError(f"could not list what {environment} lacks:\n{done.stderr}")
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def _pip_install(environment: Path, project: Path, arguments: list[str]) -> None:
    command = [_python(environment), "-m", "pip", "install", "--disable-pip-version-check"]
    # pip would else read a user install into an environment that allows none.
    environ = {**_clean_environ(), "PIP_USER": "0"}
    if subprocess.run([*command, *arguments], cwd=project, env=environ).returncode != 0:
        raise SetupError(
            f"pip could not install: {' '.join(arguments)}. Without network, put the wheels "
            "in a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=folder, or name a folder "
            "that has the packages installed in PYTHONPATH"
        )


def _say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def main() -> int:
    """Make the environment named on the command line; give the exit status."""
    if len(sys.argv) < 2:
        print("usage: python -m benchmarks.runner.bootstrap FOLDER EXTRA...", file=sys.stderr)
        return 2
    try:
        make_environment(Path(sys.argv[1]).absolute(), Path.cwd(), sys.argv[2:])
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
