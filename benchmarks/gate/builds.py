"""An environment for a commit: inherits torch, holds only the commit's wheel.

The same as asv's environments of this project (see :mod:`benchmarks.runner.environment`),
but two commits are there at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.gate.errors import BuildError
from benchmarks.runner import commands, groups, inherit

#: Where environments of commits are kept, below the repository's root.
CACHE = Path(".asv") / "gate"

#: A file that is made last: an environment without it is not whole.
COMPLETE = "complete"

#: Seconds for one step of a build. pip needs a few.
BUILD_TIMEOUT_S = 180

#: Lines of a failed command that are shown: the cause is at the end.
SHOWN_LINES = 15

_PIP = ("-m", "pip", "--disable-pip-version-check")


@dataclass(frozen=True)
class CommitEnvironment:
    """Where one commit's library is installed.

    Attributes
    ----------
    commit : str
        Its full hash.
    folder : Path
        Of the virtual environment.
    """

    commit: str
    folder: Path

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"


def resolve(repository: Path, name: str) -> str:
    """Give the full hash of a commit.

    Raises
    ------
    BuildError
        There is no such commit in this repository.
    """
    done = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode != 0:
        raise BuildError(
            f"{name!r} names no commit in {repository}; fetch it first, or name another: BASE=..."
        )
    return done.stdout.decode().strip()


def environment_for(repository: Path, commit: str) -> CommitEnvironment:
    """Give the environment of a commit, built unless it is there.

    Two gates may ask for the same one at once: the second waits for what the first builds.

    Parameters
    ----------
    repository : Path
    commit : str
        A full hash, as from :func:`resolve`.

    Raises
    ------
    BuildError
        The commit has no library, or it cannot be built. Says what pip said.
    """
    # A torch that was upgraded since makes another environment.
    kept = repository / CACHE / f"{commit[:12]}-torch{_torch_version()}"
    environment = CommitEnvironment(commit, kept / "env")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with _alone(kept.with_name(f"{kept.name}.lock"), f"commit {commit[:8]}"):
        _build_unless_whole(repository, environment, kept)
    return environment


@contextlib.contextmanager
def _alone(lock: Path, what: str) -> Iterator[None]:
    """Keep other gates out of a folder; wait while one is in.

    A lock of the system's rather than a build elsewhere that is renamed: environments have
    their own path in them. It goes when its process does, however that ends.
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another gate, which builds {what}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_unless_whole(repository: Path, environment: CommitEnvironment, kept: Path) -> None:
    commit = environment.commit
    folders = inherit.package_folders(commands.PROJECT)
    whole = (kept / COMPLETE).is_file() and environment.python.exists()
    if whole and inherit.inherited_folders(environment.folder) == folders:
        return
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    wheel = _wheel(_sources(repository, commit, kept / "source"), kept / "wheel", commit)
    inherit.create_environment(environment.folder)
    inherit.inherit_packages(environment.folder, folders)
    install = [*_PIP, "install", "--no-index", "--no-deps", "--force-reinstall", str(wheel)]
    _run([str(environment.python), *install], kept, f"commit {commit[:8]} cannot be installed")
    (kept / COMPLETE).touch()


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise BuildError(
            f"{sys.executable} has no torch to inherit; use `make gate`, which makes an "
            "environment that has"
        ) from None


def _sources(repository: Path, commit: str, folder: Path) -> Path:
    """Unpack a commit, as git would check it out."""
    packed = _git(repository, "archive", "--format=tar", commit)
    if packed.returncode != 0:
        raise BuildError(f"git cannot read commit {commit[:8]}: {packed.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def _wheel(source: Path, folder: Path, commit: str) -> Path:
    build = [*_PIP, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    what = f"the library of commit {commit[:8]} cannot be built"
    _run([sys.executable, *build, str(source)], source, what)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(f"commit {commit[:8]} built {len(wheels)} wheels; one was expected")
    return wheels[0]


def _run(command: list[str], folder: Path, failure: str) -> None:
    environ = {**commands.environ(), "PIP_USER": "0"}
    try:
        # pip runs the commit's own setup.py, and that what it likes: all of it ends with pip.
        done = groups.run(command, BUILD_TIMEOUT_S, cwd=folder, env=environ)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{failure}: not done after {BUILD_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")
        shown = "\n".join(said.splitlines()[-SHOWN_LINES:])
        raise BuildError(f"{failure}; the last that was said:\n{shown}")


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=repository, capture_output=True, env=dict(os.environ)
        )
    except FileNotFoundError:
        raise BuildError("git is not installed, and the gate compares commits") from None
