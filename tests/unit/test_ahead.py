"""How far ahead a worker claims."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from duly.runtime.ahead import HALF_LIFE, LONGEST, SHORTEST, Ahead
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots


class Filled:
    """What is known of a slot here."""

    def __init__(self, entered: bool) -> None:
        self.has_place = False
        self.entered = entered


def slots_of(size: int, early: int = 0, entered: int = 0) -> Slots:
    async def make() -> Slots:
        slots = Slots(size)
        for number in range(early + entered):
            slots.add(cast(Slot, Filled(entered=number >= early)))
        return slots

    return asyncio.run(make())


def test_while_claims_are_quick_all_slots_are_for_what_is_due_within_moments() -> None:
    ahead = Ahead(slots_of(10, early=2, entered=3), 0.0)
    ahead.took(SHORTEST / 2, 0.0)
    assert ahead.reach() == (SHORTEST, 5)


def test_where_claims_take_long_now_and_then_jobs_are_claimed_earlier() -> None:
    ahead = Ahead(slots_of(10), 0.0)
    ahead.took(0.03, 0.0)
    ahead.took(0.001, 0.0)
    assert ahead.reach() == (0.06, 5)
    ahead.took(1.0, 0.0)
    assert ahead.reach() == (LONGEST, 5)


def test_a_slow_claim_is_forgotten() -> None:
    ahead = Ahead(slots_of(10), 0.0)
    ahead.took(0.04, 0.0)
    ahead.took(0.001, HALF_LIFE)
    seconds, _ = ahead.reach()
    assert seconds == pytest.approx(0.04)
    ahead.took(0.001, 2 * HALF_LIFE)
    assert ahead.reach() == (SHORTEST, 10)


@pytest.mark.parametrize(
    ("size", "early", "entered", "expected"),
    [
        (10, 3, 0, (0.06, 2)),
        (10, 0, 8, (0.06, 2)),
        (10, 5, 0, (SHORTEST, 5)),
        (1, 0, 0, (SHORTEST, 1)),
    ],
)
def test_half_of_the_slots_are_kept_for_what_is_due_at_once(
    size: int, early: int, entered: int, expected: tuple[float, int]
) -> None:
    ahead = Ahead(slots_of(size, early, entered), 0.0)
    ahead.took(0.03, 0.0)
    assert ahead.reach() == expected
