"""A cost profile's file is refused with its name and the field, when something is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asyncout.errors import ProfileError
from asyncout.virtual import CostProfile

ROOT = Path(__file__).resolve().parent.parent

#: Profiles that are shipped, and those that the doctor left beside results.
PROFILES = sorted(
    [
        *ROOT.glob("asyncout/virtual/profiles/*.json"),
        *ROOT.glob("results/*/doctor/probed-profile.json"),
    ]
)


def write(path: Path, **changes: Any) -> Path:
    CostProfile.load().to_json(path)
    data = json.loads(path.read_text())
    for name, value in changes.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_wake_s": -1}, "block_wake_s is -1; must be 0 or more"),
        ({"new_page_s": -1}, "new_page_s is -1; must be 0 or more"),
        ({"block_wake_s": float("nan")}, "block_wake_s is nan"),
        ({"d2h_pinned_bytes_per_s": 0}, "d2h_pinned_bytes_per_s is 0; must be above 0"),
        ({"call_copy_s": True}, "call_copy_s is True; give a number"),
        ({"call_copy_s": "1"}, "call_copy_s is '1'; give a number"),
        ({"machine": 3}, "machine is 3; give a text"),
        ({"call_copy_s": None}, r"missing fields \['call_copy_s'\]"),
        ({"coffee": 1}, r"unknown fields \['coffee'\]"),
        ({"format": 1}, "no cost profile of format 2"),
        ({"format": None}, "no cost profile of format 2"),
        ({"pageable_batch_holds": 0}, "give true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_field(tmp_path: Path, changes, message) -> None:
    path = write(tmp_path / "wrong.json", **changes)
    with pytest.raises(ProfileError, match=rf"wrong\.json.*{message}"):
        CostProfile.load(path)


def test_cut_foreign_and_missing_files_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "cut.json").read_text()
    (tmp_path / "cut.json").write_text(whole[:100])
    with pytest.raises(ProfileError, match=r"cut\.json is no whole JSON file"):
        CostProfile.load(tmp_path / "cut.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ProfileError, match=r"list\.json is no cost profile"):
        CostProfile.load(tmp_path / "list.json")
    with pytest.raises(ProfileError, match="no profile 'nowhere': shipped are h200-pcie5-vm16"):
        CostProfile.load("nowhere")


#: Fields that came later: profiles from before have none of them.
LATER = ("pageable_copy_s", "pageable_batch_copy_s", "new_page_s")


def test_a_profile_without_later_fields_has_no_such_costs(tmp_path: Path) -> None:
    shipped = CostProfile.load()
    path = write(tmp_path / "old.json", **dict.fromkeys(LATER))
    assert CostProfile.load(path) == shipped.replace(**dict.fromkeys(LATER, 0.0))


def test_later_fields_are_written_and_read(tmp_path: Path) -> None:
    own = CostProfile.load().replace(**{name: (n + 1) * 1e-6 for n, name in enumerate(LATER)})
    own.to_json(tmp_path / "own.json")
    assert CostProfile.load(tmp_path / "own.json") == own


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_committed_profile_loads(path: Path) -> None:
    assert CostProfile.load(path).machine
