"""What the git checkout allows: asv measures commits, not the working tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.runner.errors import RepositoryError

#: The branch that the pages show, as in asv.conf.json.
PUBLISHED_BRANCH = "main"

#: What asv builds from the commit; benchmarks/ comes from the working tree.
BUILT_PATHS = ("asyncout", "pyproject.toml", "setup.py")


class Repository:
    """The checkout at a folder.

    Raises
    ------
    RepositoryError
        The folder is no git checkout, or has no commit yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self.head = self._git("rev-parse", "--verify", "HEAD")
        except FileNotFoundError:
            raise RepositoryError("git is not installed, and asv measures commits") from None
        except subprocess.CalledProcessError as error:
            raise RepositoryError(
                f"{folder} is no git checkout with a commit; asv measures commits. "
                "Clone the repository, or commit first; `make smoke` needs neither. "
                f"git says: {error.stderr.strip()}"
            ) from None

    def unbuilt_changes(self) -> list[str]:
        """List changed files that a run does not see, as asv builds the commit."""
        status = self._git("status", "--porcelain", "--", *BUILT_PATHS)
        return [line[3:] for line in status.splitlines()]

    def require_publishable(self) -> None:
        """Check that asv can draw pages of this checkout.

        Raises
        ------
        RepositoryError
            The history is cut off, or the published branch is missing.
        """
        if self._git("rev-parse", "--is-shallow-repository") == "true":
            raise RepositoryError(
                "this is a shallow clone: asv would publish empty pages. Fetch the history "
                "with `git fetch --unshallow`, or measure without pages: --no-pages"
            )
        if not self._succeeds("rev-parse", "--verify", "--quiet", f"refs/heads/{PUBLISHED_BRANCH}"):
            raise RepositoryError(
                f"there is no local branch {PUBLISHED_BRANCH}, which the pages show. Make it "
                f"with `git branch {PUBLISHED_BRANCH} HEAD` (or origin/{PUBLISHED_BRANCH}), "
                "or measure without pages: --no-pages"
            )

    def is_published(self, commit: str) -> bool:
        """Whether `commit` is part of the branch that the pages show."""
        return self._succeeds("merge-base", "--is-ancestor", commit, PUBLISHED_BRANCH)

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self._folder, capture_output=True, text=True, check=True
        )
        return done.stdout.rstrip()

    def _succeeds(self, *arguments: str) -> bool:
        done = subprocess.run(["git", *arguments], cwd=self._folder, capture_output=True)
        return done.returncode == 0
