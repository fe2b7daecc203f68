"""What an older commit lacks is n/a; the same error at the checked-out commit is a failure."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from asyncout import PolicyError
from benchmarks import lacking, suite
from benchmarks.devices import VirtualDevice
from benchmarks.grids import memory, plans
from benchmarks.runner import mode, progress


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(progress, "report", lines.append)
    monkeypatch.setenv(mode.VARIABLE, "smoke")
    return lines


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch):
    def commit(name: str | None) -> None:
        if name is None:
            monkeypatch.delenv("ASV_COMMIT", raising=False)
        else:
            monkeypatch.setenv("ASV_COMMIT", name)
        lacking.is_older_commit.cache_clear()

    yield commit
    lacking.is_older_commit.cache_clear()


def head() -> str:
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=lacking.PROJECT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_only_another_commit_than_the_checked_out_one_is_older(measuring) -> None:
    for commit, is_older in ((None, False), (head(), False), ("0" * 40, True)):
        measuring(commit)
        assert lacking.is_older_commit() == is_older


@pytest.mark.parametrize("error", [ImportError("no x"), TypeError("no y"), PolicyError("no z")])
def test_a_lack_is_left_out_and_said_at_an_older_commit_only(said, measuring, error) -> None:
    measuring("0" * 40)
    with lacking.left_out("a row"):
        raise error
    assert said == [f"a row: n/a at this commit ({type(error).__name__}: {error})"]
    measuring(head())
    with pytest.raises(type(error)), lacking.left_out("a row"):
        raise error


def test_wrong_bytes_and_lost_devices_are_failures_at_every_commit(said, measuring) -> None:
    measuring("0" * 40)
    for error in (AssertionError("what arrived is not what was sent"), RuntimeError("lost")):
        with pytest.raises(type(error)), lacking.left_out("a row"):
            raise error
    assert said == []


def test_one_workload_that_an_older_commit_lacks_costs_no_other_one(said, measuring) -> None:
    def cells(device, name):
        if name == "4 KiB":
            raise AttributeError("no such feature")
        yield from memory.cells(device, name)

    measuring("0" * 40)
    question = SimpleNamespace(**{**vars(memory), "cells": cells})
    rows = list(plans.measure_question(question, VirtualDevice()))
    assert {row.workload for row in rows} == set(memory.QUICK_NAMES) - {"4 KiB"}
    assert "4 KiB: n/a at this commit (AttributeError: no such feature)" in said


def test_a_question_whose_modules_an_older_commit_lacks_is_empty(
    said, measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str):
        raise ModuleNotFoundError(f"No module named {name!r}")

    measuring("0" * 40)
    monkeypatch.setattr(suite.importlib, "import_module", missing)
    assert suite.collect("waits") == {False: {}, True: {}}
    measuring(head())
    with pytest.raises(ModuleNotFoundError):
        suite.collect("waits")
