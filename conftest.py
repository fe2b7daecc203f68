"""What holds for both test folders: GPU tests and what a benchmark file records."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from benchmarks.runner import facts, mode

#: Set by ``make test-gpu``: a run in which no GPU test ran is then a failure.
REQUIRE_GPU = "ASYNCOUT_REQUIRE_GPU"

_ran_on_gpu: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Measure as little as possible where benchmarks run as tests."""
    if config.getoption("benchmark_disable") and not config.getoption("benchmark_enable"):
        os.environ.setdefault(mode.VARIABLE, "smoke")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device; torch sees none")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each GPU test that really ran."""
    if report.when == "call" and not report.skipped and "gpu" in report.keywords:
        _ran_on_gpu.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that was to use the GPU and did not."""
    if os.environ.get(REQUIRE_GPU) and not _ran_on_gpu:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why such a run failed."""
    if os.environ.get(REQUIRE_GPU) and not _ran_on_gpu:
        terminalreporter.write_line("error: no GPU test ran; torch sees no CUDA device", red=True)


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Add the GPU and its software to what pytest-benchmark saves; absent if unknown."""
    machine_info.update({**facts.torch_facts(), **facts.gpu_facts()})
