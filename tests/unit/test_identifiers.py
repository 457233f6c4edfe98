"""Ids sort in the order of their making, one by one or many at a time."""

from __future__ import annotations

import time
from itertools import pairwise
from uuid import UUID

import pytest

from duly.model import identifiers
from duly.model.identifiers import ids_of, new_binary_ids, new_id


def new_ids(count: int) -> list[UUID]:
    return ids_of(new_binary_ids(count))


def test_ids_increase_however_they_are_made() -> None:
    ids = [new_id(), *new_ids(3000), new_id(), *new_ids(1), *new_ids(20_000), new_id()]
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert {(each.version, each.variant) for each in ids} == {(7, ids[0].variant)}
    assert new_ids(0) == []


def test_ids_increase_when_the_clock_stands_still_or_steps_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identifiers, "_sequence", identifiers._Sequence())
    moment = time.time_ns()
    ids = []
    for seconds in (0, 0, -10, 10):
        monkeypatch.setattr(time, "time_ns", lambda s=seconds: moment + s * 1_000_000_000)
        ids += [*new_ids(100), new_id()]
    assert all(earlier < later for earlier, later in pairwise(ids))


def test_more_ids_than_a_millisecond_has_numbers_for_borrow_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sequence = identifiers._Sequence()
    monkeypatch.setattr(identifiers, "_sequence", sequence)
    ids = [new_id()]
    sequence._millisecond += 60_000
    sequence._counter = identifiers._COUNTER_LIMIT - 50
    ids += [*new_ids(49), *new_ids(100), new_id()]
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert len({each.int >> 80 for each in ids[1:]}) == 2
