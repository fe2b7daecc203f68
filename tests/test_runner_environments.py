"""Environments inherit torch, install only what is missing, and hold one commit each."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks.runner import bootstrap, commands, inherit, requirements
from benchmarks.runner.errors import SetupError

pytestmark = pytest.mark.commands

PROJECT = commands.PROJECT


def python_in(environment: Path, code: str) -> str:
    command = [str(environment / "bin" / "python"), "-c", code]
    environ = commands.environ()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return done.stdout.strip()


def test_an_environment_sees_this_pythons_packages(tmp_path: Path) -> None:
    inherit.create_environment(tmp_path / "e")
    inherit.inherit_packages(tmp_path / "e", inherit.package_folders(PROJECT))
    found = python_in(
        tmp_path / "e", "from importlib import metadata as m; print(m.version('torch'))"
    )
    assert found == metadata.version("torch")


def test_an_environments_own_package_comes_before_the_inherited_one(tmp_path: Path) -> None:
    inherit.create_environment(tmp_path / "e")
    (tmp_path / "parent").mkdir()
    for folder, value in (
        (tmp_path / "parent", "parent"),
        (inherit.site_packages(tmp_path / "e"), "own"),
    ):
        (folder / "a_package.py").write_text(f"WHOSE = {value!r}\n")
    inherit.inherit_packages(tmp_path / "e", [str(tmp_path / "parent")])
    assert python_in(tmp_path / "e", "import a_package; print(a_package.WHOSE)") == "own"


def test_the_working_tree_is_never_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(PROJECT), *sys.path])
    assert str(PROJECT) not in inherit.package_folders(PROJECT)


def test_folders_named_by_the_search_path_are_inherited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path), str(tmp_path / "absent")])
    assert inherit.package_folders(PROJECT) == [str(tmp_path.resolve())]


def test_an_environment_without_the_file_inherits_nothing(tmp_path: Path) -> None:
    inherit.create_environment(tmp_path / "e")
    assert inherit.inherited_folders(tmp_path / "e") == []


def test_torch_is_never_among_what_pip_is_asked_for() -> None:
    names = [text.lower() for text in requirements.declared(PROJECT, ["bench", "test"])]
    assert not any(name.startswith("torch") for name in names)
    assert any(name.startswith("numpy") for name in names)


def test_a_missing_and_an_outdated_package_are_listed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [build-system]
        requires = ["setuptools"]
        [project]
        dependencies = ["numpy>=99999", "torch>=99999"]
        [project.optional-dependencies]
        bench = ["a-package-that-nobody-has"]
        test = ["another-package-that-nobody-has"]
        """
    )
    assert requirements.missing(tmp_path, ["bench"]) == [
        "numpy>=99999",
        "a-package-that-nobody-has",
    ]


def test_a_python_without_torch_is_told_from_one_with_it(tmp_path: Path) -> None:
    inherit.create_environment(tmp_path / "e")
    assert bootstrap.importable_torch(str(tmp_path / "e" / "bin" / "python")) is None
    assert bootstrap.importable_torch(str(tmp_path / "absent")) is None


def test_a_torch_that_is_too_old_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {sys.executable: "2.6.1+cu124"}
    monkeypatch.setattr(bootstrap, "importable_torch", versions.get)
    with pytest.raises(SetupError, match=r"torch 2\.6\.1.*needs 2\.7 or later.*make PYTHON="):
        bootstrap.make_environment(tmp_path / "e", PROJECT, [])


def test_a_python_without_ensurepip_is_told_which_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "importable_torch", lambda python: None)
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"no ensurepip.*apt install python3\.\d+-venv"):
        bootstrap.make_environment(tmp_path / "e", PROJECT, [])


BUILD = """
[project]
name = "a_project"
version = "1"
[tool.setuptools]
packages = ["a_project"]
"""

BENCHMARK = """
import a_project

def track_value():
    return a_project.VALUE
"""


@pytest.fixture
def measured_project(tmp_path: Path) -> Path:
    """A project of two commits whose one benchmark tells them apart."""
    project = tmp_path / "project"
    (project / "a_project").mkdir(parents=True)
    (project / "suite").mkdir()
    (project / "suite" / "__init__.py").write_text("")
    (project / "suite" / "bench.py").write_text(BENCHMARK)
    (project / "pyproject.toml").write_text(BUILD)
    configuration = json.loads(_without_comments((PROJECT / "asv.conf.json").read_text()))
    configuration |= {"project": "a_project", "benchmark_dir": "suite"}
    (project / "asv.conf.json").write_text(json.dumps(configuration))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q", "--initial-branch=main"], cwd=project, check=True)
    for value in (1, 2):
        (project / "a_project" / "__init__.py").write_text(f"VALUE = {value}\n")
        subprocess.run([*git, "add", "."], cwd=project, check=True)
        subprocess.run([*git, "commit", "-qm", str(value)], cwd=project, check=True)
    return project


def _without_comments(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("//"))


def test_each_commit_is_measured_with_its_own_build_and_without_a_network(
    measured_project: Path,
) -> None:
    (measured_project / ".asv-machine.json").write_text(
        json.dumps({"m": {"machine": "m"}, "version": 1})
    )
    environ = {**commands.environ(), "HOME": str(measured_project), "PIP_NO_INDEX": "1"}
    environ["PYTHONPATH"] = str(PROJECT)  # the plugin is no part of the measured project
    command = [sys.executable, "-m", "asv", "run", "ALL", "--machine", "m"]
    done = subprocess.run(
        command, cwd=measured_project, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    values = []
    for path in (measured_project / "results" / "m").glob("*-inherit-*.json"):
        values += json.loads(path.read_text())["results"]["bench.track_value"][0]
    assert sorted(values) == [1, 2]
