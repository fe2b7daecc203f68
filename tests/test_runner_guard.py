"""Inside an asv environment only the commit's own library may be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.runner import guard
from benchmarks.runner.errors import ForeignCopyError


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASV_ENV_TYPE", "inherit")
    monkeypatch.setenv("ASV_ENV_DIR", str(tmp_path / "environment"))
    monkeypatch.setenv("ASV_COMMIT", "0123456789abcdef")
    return tmp_path / "environment"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_library_that_only_the_guard_tests_have"
    monkeypatch.setattr(guard, "LIBRARY", name)
    return name


def install(folder: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / library).mkdir(parents=True)
    (folder / library / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(folder)


def test_outside_of_asv_nothing_is_checked(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.delenv("ASV_ENV_DIR", raising=False)
    guard.refuse_foreign_copy()


def test_the_commits_own_copy_passes_and_is_not_imported(
    environment: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(environment / "lib", library, monkeypatch)
    guard.refuse_foreign_copy()


def test_a_copy_from_elsewhere_is_refused(
    environment: Path, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "elsewhere", library, monkeypatch)
    with pytest.raises(ForeignCopyError, match=r"commit 01234567: .* would come from .*elsewhere"):
        guard.refuse_foreign_copy()


def test_a_folder_with_the_environments_name_as_prefix_is_elsewhere(
    environment: Path, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "environment2", library, monkeypatch)
    with pytest.raises(ForeignCopyError, match="would come from"):
        guard.refuse_foreign_copy()


def test_a_missing_library_is_refused(environment: Path, library: str) -> None:
    with pytest.raises(ForeignCopyError, match="is not installed"):
        guard.refuse_foreign_copy()
