"""How much a worker claims at a time, and what it holds until there is room."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.runtime import pace
from duly.runtime.pace import MOST, SOON, Pace
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots


class Clock:
    """Stands still unless it is told."""

    now = 100.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    loop = SimpleNamespace(get_running_loop=lambda: clock, Event=asyncio.Event)
    monkeypatch.setattr(pace, "asyncio", loop)
    return clock


def slot(number: int) -> Slot:
    return cast(Slot, SimpleNamespace(job=SimpleNamespace(id=number, token=1), entered=False))


def test_nothing_is_claimed_beyond_the_room_before_anything_has_ended(clock: Clock) -> None:
    assert Pace(Slots(10)).claimable() == 10


@pytest.mark.parametrize(
    ("ended", "seconds", "claimable"),
    [
        (10, SOON / 10, 100),
        (10_000, SOON / 10, MOST),
        (10, SOON / 2, 10),
        (10, 1.0, 10),
        (10, 0.0, 10),
        (0, SOON, 10),
    ],
)
def test_what_has_ended_says_what_will_soon(
    clock: Clock, ended: int, seconds: float, claimable: int
) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    clock.now += seconds
    slots.ended += ended
    assert judge.claimable() == claimable


def test_each_claim_is_judged_by_what_has_ended_since_the_last(clock: Clock) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    clock.now += SOON
    slots.ended += 200
    assert judge.claimable() == 200
    clock.now += SOON
    assert judge.claimable() == 10


def test_what_is_held_runs_in_the_order_it_came_and_as_there_is_room() -> None:
    slots = Slots(2)
    first, second, third, fourth = (slot(number) for number in range(4))
    assert [slots.add(first), slots.add(second)] == [True, True]
    assert [slots.add(third), slots.add(fourth)] == [False, False]
    assert (len(slots), slots.free, slots.held) == (4, 0, [third, fourth])
    assert slots.next() is None
    first.entered = True
    slots.remove(first)
    assert slots.next() is third
    assert slots.next() is None
    slots.remove(fourth)
    assert (slots.holds_any, slots.free, slots.ended) == (False, 0, 1)


def test_nothing_is_held_after_everything_was_abandoned() -> None:
    slots = Slots(1)
    for number in range(3):
        stopped = cast(Any, slot(number))
        stopped.close = stopped.interrupt = lambda: None
        slots.add(stopped)
    slots.abandon()
    assert (len(slots), slots.free, slots.next()) == (0, 1, None)
