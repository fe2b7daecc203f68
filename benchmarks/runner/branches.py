"""Keeps a folder's files on a branch of their own: results, pages.

``python -m benchmarks.runner.branches pull|push FOLDER BRANCH [--remote NAME]``

Push makes one commit of the folder's present files behind the branch's newest and pushes
it; pull puts the branch's files into the folder. Neither touches what is checked out. A
machine that measures by itself uses both: pull the results of before, measure, push.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runner.commands import PROJECT
from benchmarks.runner.errors import RepositoryError

#: The author of such commits where git knows no other.
AUTHOR = {"NAME": "asyncout benchmarks", "EMAIL": "benchmarks@localhost"}

#: Files in the branch's root that say how to serve it: no page builder is to touch the pages.
NO_BUILDER = ".nojekyll"


def push(repository: Path, folder: Path, branch: str, remote: str = "origin") -> str | None:
    """Commit a folder's files to a remote's branch; give the commit, None if nothing changed.

    Parameters
    ----------
    repository : Path
    folder : Path
        Its files become the root of the branch, also those that git ignores.
    branch, remote : str

    Raises
    ------
    RepositoryError
        The folder is empty, or git could not: somebody else pushed meanwhile, for one.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        raise RepositoryError(f"{folder} has no files; measure first: `make bench`")
    parent = _newest(repository, branch, remote)
    with tempfile.TemporaryDirectory(prefix="asyncout-index-") as scratch:
        # An index of its own: what is checked out and staged stays as it is.
        environ = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), "GIT_WORK_TREE": str(folder)}
        _git(repository, "add", "--all", "--force", ".", folder=folder, **environ)
        _add_empty(repository, NO_BUILDER, **environ)
        tree = _git(repository, "write-tree", **environ)
    if parent and _git(repository, "rev-parse", f"{parent}^{{tree}}") == tree:
        return None
    source = _git(repository, "rev-parse", "--short=8", "HEAD")
    made = ["commit-tree", tree, "-m", f"Files of {folder.name} after {source}"]
    commit = _git(repository, *made, *(("-p", parent) if parent else ()))
    _git(repository, "push", "--quiet", remote, f"{commit}:refs/heads/{branch}")
    return commit


def pull(repository: Path, folder: Path, branch: str, remote: str = "origin") -> str | None:
    """Put a branch's files into a folder, over its own; give the commit, None without a branch.

    Raises
    ------
    RepositoryError
        git could not.
    """
    commit = _newest(repository, branch, remote)
    if commit is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="asyncout-index-") as scratch:
        environ = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), "GIT_WORK_TREE": str(folder)}
        _git(repository, "read-tree", commit, **environ)
        _git(repository, "checkout-index", "--all", "--force", folder=folder, **environ)
    (folder / NO_BUILDER).unlink(missing_ok=True)
    return commit


def _newest(repository: Path, branch: str, remote: str) -> str | None:
    """Fetch a branch of a remote; None if the remote has none of that name."""
    if not _git(repository, "ls-remote", "--heads", remote, f"refs/heads/{branch}"):
        return None
    _git(repository, "fetch", "--quiet", remote, f"refs/heads/{branch}")
    return _git(repository, "rev-parse", "FETCH_HEAD")


def _add_empty(repository: Path, name: str, **environ: str) -> None:
    blob = _git(repository, "hash-object", "-w", "--stdin", **environ)
    _git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", **environ)


def _git(repository: Path, *arguments: str, folder: Path | None = None, **environ: str) -> str:
    identity = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in AUTHOR.items()
    }
    common = ["git", "rev-parse", "--absolute-git-dir"]
    try:
        found = subprocess.run(common, cwd=repository, capture_output=True, text=True)
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder or repository,
            env={**identity, **os.environ, "GIT_DIR": found.stdout.strip(), **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise RepositoryError("git is not installed") from None
    if done.returncode != 0:
        raise RepositoryError(f"`git {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None, repository: Path = PROJECT) -> int:
    """Do what the command line asks for; give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runner.branches")
    parser.add_argument("action", choices=("pull", "push"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("branch")
    parser.add_argument("--remote", default="origin")
    options = parser.parse_args(arguments)
    action = {"pull": pull, "push": push}[options.action]
    try:
        commit = action(repository, options.folder.absolute(), options.branch, options.remote)
    except RepositoryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if commit is None:
        said = {"pull": "there is no such branch", "push": "nothing has changed"}[options.action]
        print(f"{options.action}: {said} ({options.branch} of {options.remote})")
    else:
        print(f"{options.action}: {options.branch} of {options.remote} is {commit[:8]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
