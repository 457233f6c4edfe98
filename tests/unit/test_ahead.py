"""How far ahead a worker claims."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from duly.runtime.ahead import HALF_LIFE, INSTANT, LONGEST, SHORTEST, Ahead
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots


class Filled:
    """What is known of a slot here."""

    def __init__(self, moment: float | None) -> None:
        self.has_place = False
        self.entered = moment is None
        self.moment = moment


def ahead_of(size: int, early: Sequence[float] = (), entered: int = 0) -> Ahead:
    async def make() -> Slots:
        slots = Slots(size)
        for moment in [*early, *[None] * entered]:
            slots.add(cast(Slot, Filled(moment)))
        return slots

    return Ahead(asyncio.run(make()))


def test_while_claims_are_quick_all_slots_are_for_what_is_due_within_moments() -> None:
    ahead = ahead_of(10, [1.0, 2.0], entered=3)
    ahead.took(SHORTEST / 2, 0.0)
    assert ahead.reach(0.0) == (SHORTEST, 5)
    assert ahead.begin(1.0, 0.0) == 1.0 - SHORTEST


def test_where_claims_take_long_now_and_then_jobs_are_claimed_earlier() -> None:
    ahead = ahead_of(10)
    ahead.took(0.03, 0.0)
    ahead.took(0.001, 0.0)
    assert ahead.reach(0.0) == (0.06, 5)
    assert ahead.begin(1.0, 0.0) == 1.0 - 0.06
    ahead.took(60.0, 0.0)
    assert ahead.reach(0.0) == (LONGEST, 5)


def test_a_slow_claim_is_forgotten() -> None:
    ahead = ahead_of(10)
    ahead.took(60.0, 0.0)
    ahead.took(0.001, HALF_LIFE)
    seconds, _ = ahead.reach(HALF_LIFE)
    assert seconds == pytest.approx(LONGEST / 2)
    assert ahead.reach(3 * HALF_LIFE) == (SHORTEST, 10)


@pytest.mark.parametrize(
    ("size", "early", "entered", "expected", "begin"),
    [
        (10, 3, 0, (0.06, 2), 1.0 - 0.06),
        (10, 0, 8, (0.06, 2), 1.0 - 0.06),
        (10, 5, 0, (SHORTEST, 5), 0.95 + INSTANT),
        (1, 0, 0, (SHORTEST, 1), 1.0 - SHORTEST),
    ],
)
def test_half_of_the_slots_are_kept_for_what_is_due_at_once(
    size: int, early: int, entered: int, expected: tuple[float, int], begin: float
) -> None:
    """And what has no room far ahead is claimed when the first of those that have it starts."""
    ahead = ahead_of(size, [0.95 + number / 1000 for number in range(early)], entered)
    ahead.took(0.03, 0.0)
    assert ahead.reach(0.0) == expected
    assert ahead.begin(1.0, 0.0) == begin
