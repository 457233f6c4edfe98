"""When a claim leaves alone what others have touched."""

from __future__ import annotations

import pytest

from duly.store.postgres import crowd as crowd_module
from duly.store.postgres.crowd import AT_FIRST, LASTING, MANY, PATIENCE, Crowd, View
from tests.support.still_clock import StillClock

ALONE = View(running=0, oldest=100, next=100)
MANY_AT_WORK = View(running=MANY, oldest=100, next=120)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr(crowd_module, "time", clock)
    return clock


def test_a_crowd_is_expected_at_first_and_not_for_ever(clock: StillClock) -> None:
    crowd = Crowd()
    clock.now += 100
    assert crowd.is_expected()
    crowd.claimed(100, everything=False, view=ALONE)
    clock.now += AT_FIRST
    assert not crowd.is_expected()


def test_a_crowd_that_is_only_expected_was_not_seen(clock: StillClock) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    crowd.claimed(100, everything=False, view=ALONE)
    assert not crowd.was_seen()
    crowd.claimed(100, everything=False, view=MANY_AT_WORK)
    assert crowd.was_seen()
    clock.now += LASTING - 0.1
    assert crowd.was_seen()
    clock.now += 0.1
    assert not crowd.was_seen()


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("running", [MANY, MANY - 1])
def test_a_crowd_is_expected_while_there_is_one(
    clock: StillClock, running: int, everything: bool
) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    clock.now += AT_FIRST
    crowd.claimed(100, everything=everything, view=View(running, 100, 100 + running))
    clock.now += PATIENCE - 0.1
    assert crowd.is_expected() is (running == MANY)
    crowd.claimed(100, everything=everything, view=View(0, 200, 200))
    clock.now += LASTING - PATIENCE + 0.1
    assert not crowd.is_expected()


def test_what_others_have_touched_is_taken_when_there_is_nothing_else(clock: StillClock) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    crowd.claimed(0, everything=False, view=MANY_AT_WORK)
    assert not crowd.is_expected()
    crowd.claimed(1, everything=True, view=ALONE)
    assert not crowd.is_expected()


@pytest.mark.parametrize("looked", [True, False])
def test_after_a_rest_a_crowd_is_expected(clock: StillClock, looked: bool) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    clock.now += AT_FIRST
    assert not crowd.is_expected()
    if looked:
        crowd.nothing_is_due()
    else:
        crowd.claimed(0, everything=True, view=ALONE)
    clock.now += 100
    assert crowd.is_expected()


def test_while_transactions_end_everything_is_claimed_rarely(clock: StillClock) -> None:
    crowd = Crowd()
    complete = []
    for moment in range(100):
        expected = crowd.is_expected()
        if not expected:
            complete.append(moment)
        first = 100 + 20 * moment
        crowd.claimed(10, everything=not expected, view=View(MANY, first, first + 20))
        clock.now += 1
    assert complete == [30, 60, 90]


def test_everything_is_claimed_now_and_then_while_a_transaction_stays_open(
    clock: StillClock,
) -> None:
    crowd = Crowd()
    complete = []
    for moment in range(160):
        expected = crowd.is_expected()
        if not expected:
            complete.append(moment / 16)
        stays_open = View(MANY, 100, 120 + moment)
        crowd.claimed(10, everything=not expected, view=stays_open)
        clock.now += 1 / 16
    first = [each for each in complete if each < PATIENCE + 1]
    assert first == [PATIENCE + each / 16 for each in range(5)]
    assert len(complete) == 3 * len(first)
