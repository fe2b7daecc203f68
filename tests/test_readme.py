"""What the documents say holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from asyncout import AXES
from benchmarks import report

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readmes_example_runs_as_printed() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL)
    (expected,) = re.findall(r"print\(.*\)  # (.*)", code)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == expected, done.stderr


def test_the_readme_names_every_choice_of_every_policy() -> None:
    readme = text_of("README.md")
    for axis, choices in AXES.items():
        (line,) = [line for line in readme.splitlines() if line.startswith(f"| `{axis}` |")]
        assert all(f"`{choice}`" in line for choice in choices)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_and_command_that_a_document_names_is_there(name: str) -> None:
    text = text_of(name)
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z -]+?)(?: #| [A-Z]|$)", text, re.MULTILINE))
    named |= set(re.findall(r"`make ([a-z-]+)", text))
    assert {target for line in named for target in line.split()} <= targets
    for path in re.findall(r"`((?:asyncout|benchmarks|tests)/[\w/.]+|[A-Z]+\.md)`", text):
        if "*" not in path:
            assert (ROOT / path).exists(), path


def test_the_table_of_gains_is_the_one_of_the_committed_results() -> None:
    machine = re.search(r"Measured on `([^`]+)`", text_of("README.md"))
    assert machine, "the README shows no measured gains"
    readme = str(ROOT / "README.md")
    assert report.main(["--machine", machine[1], "--readme", readme, "--check"]) == 0
