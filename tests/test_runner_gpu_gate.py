"""A test that needs a GPU is skipped with a reason, and a GPU run without one fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.runner import commands

GPU_TEST = """
import pytest

@pytest.mark.gpu
def test_needs_a_gpu():
    raise AssertionError("ran without a GPU")
"""


def run_pytest(test: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `test` under the project's configuration, with every GPU hidden."""
    command = [sys.executable, "-m", "pytest", "-rs", "-m", "gpu", "-p", "conftest", str(test)]
    command += ["-c", str(commands.PROJECT / "pyproject.toml"), "--rootdir", str(commands.PROJECT)]
    environ = commands.environ(CUDA_VISIBLE_DEVICES="", **variables)
    return subprocess.run(
        command, cwd=commands.PROJECT, env=environ, capture_output=True, text=True
    )


@pytest.fixture
def gpu_test(tmp_path: Path) -> Path:
    path = tmp_path / "test_on_gpu.py"
    path.write_text(GPU_TEST)
    return path


def test_without_a_gpu_the_test_is_skipped_with_the_reason(gpu_test: Path) -> None:
    done = run_pytest(gpu_test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "needs a CUDA device; torch sees none" in done.stdout


def test_a_gpu_run_in_which_every_test_was_skipped_fails(gpu_test: Path) -> None:
    done = run_pytest(gpu_test, ASYNCOUT_REQUIRE_GPU="1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no GPU test ran" in done.stdout
