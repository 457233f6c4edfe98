"""How much a worker claims at a time, and what it holds until there is room."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.model.job import Delivery
from duly.runtime import pace
from duly.runtime import slots as slots_module
from duly.runtime.pace import DISTRUST, MOST, SOON, Pace
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots


class Clock:
    """Stands still unless it is told."""

    now = 100.0

    def time(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    loop = SimpleNamespace(get_running_loop=lambda: clock, Event=asyncio.Event)
    monkeypatch.setattr(pace, "asyncio", loop)
    monkeypatch.setattr(slots_module, "asyncio", loop)
    return clock


def slot(number: int) -> Slot:
    return Slot(
        cast(Any, SimpleNamespace(id=number, token=1)), cast(Any, None), cast(Any, None), False
    )


def run(slots: Slots, clock: Clock, jobs: int, seconds: float) -> None:
    """As many jobs, one after another, in so many seconds."""
    for number in range(jobs):
        running = slot(number)
        slots.add(running)
        running.entered = True
        clock.now += seconds / jobs
        slots.remove(running)


def test_nothing_is_claimed_beyond_the_room_before_anything_has_ended() -> None:
    assert Pace(Slots(10)).claimable() == 10


@pytest.mark.parametrize(
    ("jobs", "seconds", "claimable"),
    [
        (10, SOON / 10.0001, 100),
        (1000, SOON / 10, MOST),
        (9, SOON / 10, 10),
        (10, SOON / 2, 10),
        (10, 1.0, 10),
        (10, 0.0, 10),
    ],
)
def test_what_has_ended_says_what_will_soon(
    clock: Clock, jobs: int, seconds: float, claimable: int
) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    run(slots, clock, jobs, seconds)
    assert judge.claimable() == claimable


def test_time_without_jobs_does_not_count(clock: Clock) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    for _ in range(10):
        run(slots, clock, 2, SOON / 100.0001)
        clock.now += 60.0
    assert judge.claimable() == 200


def test_each_claim_is_judged_by_what_has_ended_since_the_last(clock: Clock) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    run(slots, clock, 200, SOON * 0.9999)
    assert judge.claimable() == 200
    run(slots, clock, 10, 1.0)
    assert judge.claimable() == 10


def test_one_that_still_runs_counts_with_its_time(clock: Clock) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    slots.add(slot(-1))
    clock.now += 1.0
    run(slots, clock, 100, SOON / 10)
    assert judge.claimable() == slots.free == 9


def test_after_a_mistake_only_the_room_is_claimed_for_a_while(clock: Clock) -> None:
    slots = Slots(10)
    judge = Pace(slots)
    run(slots, clock, 100, SOON / 2)
    assert judge.claimable() > 10
    judge.mistaken()
    run(slots, clock, 100, SOON / 2)
    assert judge.claimable() == 10
    clock.now += DISTRUST
    assert judge.claimable() > 10


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


def call(number: int, **unlike: Any) -> Slot:
    """A job that may follow another in its thread, unless it is unlike that."""
    job = {
        "id": number,
        "token": 1,
        "alone": False,
        "delivery": Delivery.AT_LEAST_ONCE,
        "undoing": None,
        "timeout": None,
    }
    task = {"is_async": False, "soft_timeout": None}
    task |= {name: value for name, value in unlike.items() if name in task}
    definition = SimpleNamespace(
        is_async=task["is_async"], execution=SimpleNamespace(soft_timeout=task["soft_timeout"])
    )
    job |= {name: value for name, value in unlike.items() if name in job}
    made = Slot(
        cast(Any, SimpleNamespace(**job)),
        cast(Any, definition),
        cast(Any, None),
        unlike.get("elsewhere", False),
    )
    made.stopping = unlike.get("stopping", False)
    return made


def full(*held: Slot) -> tuple[Slots, Slot]:
    """One place, which is taken, and what is held before it."""
    slots = Slots(1)
    first = call(0)
    assert slots.add(first)
    first.entered = True
    assert not any(slots.add(each) for each in held)
    return slots, first


def test_a_call_takes_the_place_of_one_that_has_ended() -> None:
    second, third = call(1), call(2)
    slots, first = full(second, third)
    assert slots.follower(first) is second
    assert (second.entered, slots.held, slots.free) == (True, [third], 0)
    # It is passed on only once, and is not free when the first is found to have ended.
    assert slots.follower(first) is None
    slots.remove(first)
    assert (slots.free, slots.next(), slots.ended) == (0, None, 1)
    assert slots.follower(second) is third
    for each in (second, third):
        slots.remove(each)
    assert (slots.free, len(slots), slots.ended) == (1, 0, 3)


def test_nothing_follows_one_whose_place_is_free_again() -> None:
    slots, first = full(call(1))
    slots.remove(first)
    assert slots.follower(first) is None
    assert slots.next() is not None


@pytest.mark.parametrize(
    "unlike",
    [
        {"is_async": True},
        {"elsewhere": True},
        {"alone": True},
        {"delivery": Delivery.AT_MOST_ONCE},
        {"delivery": Delivery.TRANSACTIONAL},
        {"undoing": "failed"},
        {"timeout": 30.0},
        {"soft_timeout": 20.0},
        {"stopping": True},
    ],
    ids=str,
)
def test_what_is_no_plain_call_is_left_to_the_event_loop(unlike: dict[str, Any]) -> None:
    other = call(1, **unlike)
    slots, first = full(other, call(2))
    assert slots.follower(first) is None
    slots.remove(first)
    assert slots.next() is other


def test_what_is_withdrawn_does_not_start() -> None:
    second, third = call(1), call(2)
    slots, first = full(second, third)
    assert slots.withdraw(second)
    assert slots.follower(first) is third
    # Neither what runs can be withdrawn, nor what has passed its place on.
    assert (slots.withdraw(third), slots.withdraw(first)) == (False, False)
    for each in (first, second, third):
        slots.remove(each)
    assert (slots.free, len(slots), slots.ended) == (1, 0, 2)


def test_what_waits_for_its_moment_can_be_withdrawn() -> None:
    slots = Slots(1)
    soon = call(0)
    assert slots.add(soon)
    assert slots.withdraw(soon)
    slots.remove(soon)
    assert (slots.free, slots.ended) == (1, 0)


def test_nothing_that_is_kept_back_starts() -> None:
    slots, first = full(call(1))
    slots.keep_back()
    assert slots.follower(first) is None
    slots.remove(first)
    assert slots.next() is None


def test_nothing_is_held_after_everything_was_abandoned() -> None:
    slots = Slots(1)
    for number in range(3):
        stopped = cast(Any, slot(number))
        stopped.close = stopped.interrupt = lambda: None
        slots.add(stopped)
    slots.abandon()
    assert (len(slots), slots.free, slots.next()) == (0, 1, None)
