"""One variable decides how much both suites measure."""

from __future__ import annotations

import pytest
import torch

from benchmarks.runner import mode
from benchmarks.runner.errors import ModeError


@pytest.mark.parametrize("name", mode.MODES)
def test_the_variable_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mode.VARIABLE, name)
    assert mode.current() == name


@pytest.mark.parametrize(("has_gpu", "expected"), [(True, "full"), (False, "quick")])
def test_without_the_variable_a_gpu_decides(
    has_gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(mode.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert mode.current() == expected


def test_an_unknown_mode_is_refused_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mode.VARIABLE, "fast")
    with pytest.raises(ModeError, match="is 'fast'; choose one of smoke, quick, full"):
        mode.current()
