"""Ranges for profilers: where they lie when asked for, and that nothing is left when not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from steps import Box

import asyncout
from asyncout import AsyncPoolingOutput, DeviceUnavailableError, ranges

ROOT = Path(__file__).resolve().parent.parent


class FakeNvtx:
    """Writes down what is pushed and popped, per thread."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.depth: dict[int, int] = {}

    def range_push(self, msg: str) -> int:
        thread = threading.get_ident()
        self.depth[thread] = self.depth.get(thread, 0) + 1
        self.calls.append(msg)
        return self.depth[thread]

    def range_pop(self) -> int:
        thread = threading.get_ident()
        self.depth[thread] -= 1
        assert self.depth[thread] >= 0
        self.calls.append("end")
        return self.depth[thread]


@pytest.fixture
def nvtx():
    fake = FakeNvtx()
    asyncout.enable_nvtx(fake)
    yield fake
    asyncout.disable_nvtx()
    assert not any(fake.depth.values())


def methods() -> list[object]:
    return [owner.__dict__[name] for owner, name, _ in ranges.WRAPPED]


def test_off_is_free_the_methods_are_the_plain_ones() -> None:
    plain = methods()
    assert not any(hasattr(method, "__wrapped__") for method in plain)
    asyncout.enable_nvtx(FakeNvtx())
    assert not any(a is b for a, b in zip(methods(), plain, strict=True))
    asyncout.enable_nvtx(FakeNvtx())  # again: not wrapped twice
    asyncout.disable_nvtx()
    assert all(a is b for a, b in zip(methods(), plain, strict=True))
    asyncout.disable_nvtx()
    assert all(a is b for a, b in zip(methods(), plain, strict=True))


def test_a_step_shows_enqueue_and_inside_get_output_wait_and_convert(nvtx: FakeNvtx) -> None:
    output = Box().output([[1], [2]])
    assert nvtx.calls == ["asyncout.enqueue", "end"]
    output.get_output()
    output.get_output()  # the work is done once, and so is its range
    assert nvtx.calls[2:] == [
        "asyncout.get_output",
        "asyncout.wait",
        "end",
        "asyncout.convert",
        "end",
        "end",
    ]


def test_pooled_vectors_show_them_too(nvtx: FakeNvtx) -> None:
    box = Box()
    pooled = box.computed([[1.0, 2.0], [3.0, 4.0]], torch.float32)
    step = box.runner_output(2)
    AsyncPoolingOutput(step, pooled, [True, True], box.main, box.copy).get_output()
    assert nvtx.calls == [
        *("asyncout.enqueue", "end"),
        *("asyncout.get_output", "asyncout.wait", "end", "end"),
    ]


def test_an_error_closes_its_ranges(nvtx: FakeNvtx) -> None:
    box = Box()
    box.vm.fail_next("record", RuntimeError("planted"))
    with pytest.raises(RuntimeError, match="planted"):
        box.output([[1]])
    assert nvtx.calls == ["asyncout.enqueue", "end"]


def test_a_torch_without_nvtx_says_so_and_changes_nothing(monkeypatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("NVTX functions not installed.")

    monkeypatch.setattr(torch.cuda.nvtx, "mark", refuse)
    plain = methods()
    with pytest.raises(DeviceUnavailableError, match=r"has no NVTX.*Use a CUDA build"):
        asyncout.enable_nvtx()
    assert methods() == plain


@pytest.mark.parametrize(("value", "wrapped"), [("1", True), ("0", False), (None, False)])
def test_the_environment_enables_them_once_at_import(value: str | None, wrapped: bool) -> None:
    code = (
        "import torch; torch.cuda.nvtx.mark = lambda text: None\n"
        "import asyncout; from asyncout import ranges\n"
        "print(hasattr(asyncout.AsyncOutput.__init__, '__wrapped__'))"
    )
    environ = {name: text for name, text in os.environ.items() if name != ranges.VARIABLE}
    if value is not None:
        environ[ranges.VARIABLE] = value
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(wrapped), done.stderr


def test_the_environment_asks_in_vain_with_a_warning(monkeypatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("NVTX functions not installed.")

    monkeypatch.setattr(torch.cuda.nvtx, "mark", refuse)
    monkeypatch.setenv(ranges.VARIABLE, "on")
    with pytest.warns(asyncout.RangesUnavailableWarning, match="ASYNCOUT_NVTX is set: this torch"):
        ranges.enable_if_asked()
