"""When a claim leaves alone what others have touched."""

from __future__ import annotations

import pytest

from duly.store.postgres import crowd as crowd_module
from duly.store.postgres.crowd import AT_FIRST, MUCH, PATIENCE, TIMES, Crowd

FAR = MUCH + TIMES * 100 + 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(crowd_module, "time", clock)
    return clock


def test_a_crowd_is_expected_at_first_and_not_for_ever(clock: Clock) -> None:
    crowd = Crowd()
    clock.now += 100
    assert crowd.is_expected()
    crowd.claimed(FAR, 100, everything=False)
    clock.now += AT_FIRST
    assert not crowd.is_expected()


@pytest.mark.parametrize("read", [FAR, FAR - 1])
def test_a_claim_that_takes_everything_tells_whether_there_is_one(clock: Clock, read: int) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    clock.now += PATIENCE
    crowd.claimed(read, 100, everything=True)
    clock.now += PATIENCE - 1
    assert crowd.is_expected() is (read == FAR)
    clock.now += 1
    assert not crowd.is_expected()


def test_what_others_have_touched_is_taken_when_there_is_nothing_else(clock: Clock) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    crowd.claimed(0, 0, everything=False)
    assert not crowd.is_expected()
    crowd.claimed(10, 1, everything=True)
    assert not crowd.is_expected()


@pytest.mark.parametrize("looked", [True, False])
def test_after_a_rest_a_crowd_is_expected(clock: Clock, looked: bool) -> None:
    crowd = Crowd()
    assert crowd.is_expected()
    clock.now += AT_FIRST
    assert not crowd.is_expected()
    if looked:
        crowd.nothing_is_due()
    else:
        crowd.claimed(0, 0, everything=True)
    clock.now += 100
    assert crowd.is_expected()
