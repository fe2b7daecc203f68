"""Policies are data, and refuse what does not exist."""

from __future__ import annotations

import dataclasses

import pytest

from asyncout import AXES, DEFAULT, ORIGINAL, CopyPolicy, PolicyError


def test_the_original_is_dual_pinned_block_per_tensor() -> None:
    assert dataclasses.asdict(ORIGINAL) == {
        "streams": "dual",
        "memory": "pinned",
        "wait": "block",
        "copies": "per_tensor",
        "submit": "inline",
    }
    assert dataclasses.replace(DEFAULT) == CopyPolicy()


def test_a_worker_of_its_own_stream_never_copies_on_the_main_stream() -> None:
    with pytest.raises(PolicyError, match=r"streams='single'.*submit='thread'.*choose"):
        CopyPolicy(streams="single", submit="thread")


def test_every_field_is_an_axis() -> None:
    assert [field.name for field in dataclasses.fields(CopyPolicy)] == list(AXES)


@pytest.mark.parametrize("field", AXES)
def test_a_value_that_does_not_exist_is_refused_with_the_field_and_the_choices(field: str) -> None:
    with pytest.raises(PolicyError, match=rf"CopyPolicy\.{field} is 'both'.*'{AXES[field][0]}'"):
        CopyPolicy(**{field: "both"})


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CopyPolicy().wait = "spin"
