"""Notifications of a process: at once while there are few, and never too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import pytest

from duly.store.operation import Wake
from duly.store.postgres import watch
from duly.store.postgres.watch import AHEAD, INTERVAL, INTERVAL_OF_ONE, Notifier
from tests.support.still_clock import StillClock
from tests.support.stores import until

WORKERS = frozenset({Wake.WORKERS})
WAITERS = frozenset({Wake.WAITERS})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


class Sent:
    """What was sent; while it is `held`, sending takes until it is let go."""

    def __init__(self) -> None:
        self.all: list[frozenset[Wake]] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, wakes: frozenset[Wake]) -> None:
        self.all.append(wakes)
        self.free.wait(30)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def notifier(clock: StillClock, sent: Sent) -> Iterator[Notifier]:
    notifier = Notifier(sent)
    yield notifier
    sent.free.set()
    notifier.close()


def test_some_may_be_sent_at_once_after_a_pause(notifier: Notifier) -> None:
    some = round(AHEAD / INTERVAL_OF_ONE)
    assert [notifier.rests() for _ in range(some + 2)] == [True] * (some + 1) + [False]


def test_as_many_as_come_one_by_one_are_sent_at_once(notifier: Notifier, clock: StillClock) -> None:
    for _ in range(1000):
        clock.now += INTERVAL_OF_ONE * 1.001
        assert notifier.rests()


@pytest.mark.parametrize(("commits", "interval"), [(2, 2 * INTERVAL_OF_ONE), (1000, INTERVAL)])
def test_where_one_tells_of_many_commits_there_are_few(
    commits: int, interval: float, notifier: Notifier, clock: StillClock, sent: Sent
) -> None:
    for number in range(1, 4):
        while notifier.rests():
            pass
        for _ in range(commits):
            notifier.notify(WORKERS)
        clock.now += INTERVAL_OF_ONE * 1.001
        until(partial(_is_long, sent.all, number))
        clock.now += interval * 0.9 - INTERVAL_OF_ONE
        assert not notifier.rests()
        clock.now += interval * 0.2


def _is_long(sent: list[frozenset[Wake]], number: int) -> bool:
    return len(sent) == number


def test_the_thread_is_called_once_for_all_that_come_too_early(notifier: Notifier) -> None:
    while notifier.rests():
        pass
    with patch.object(notifier._filled, "notify", side_effect=notifier._filled.notify) as call:
        for _ in range(100):
            notifier.notify(WORKERS)
            notifier.notify(WAITERS)
        assert call.call_count == 1


def test_what_came_too_early_is_sent_together(
    notifier: Notifier, clock: StillClock, sent: Sent
) -> None:
    while notifier.rests():
        pass
    notifier.notify(WORKERS)
    notifier.notify(WAITERS)
    assert sent.all == []
    clock.now += 2 * INTERVAL
    until(lambda: sent.all)
    assert sent.all == [WORKERS | WAITERS]


def test_while_some_wait_nobody_sends_beside_them(
    notifier: Notifier, clock: StillClock, sent: Sent
) -> None:
    sent.free.clear()
    notifier.notify(WORKERS)
    until(lambda: sent.all)
    notifier.notify(WAITERS)
    assert not notifier.rests()
    sent.free.set()
    until(lambda: len(sent.all) == 2)
    assert notifier.rests()


def test_what_is_pending_at_the_end_is_sent(clock: StillClock, sent: Sent) -> None:
    notifier = Notifier(sent)
    while notifier.rests():
        pass
    notifier.notify(WORKERS)
    notifier.close()
    assert sent.all == [WORKERS]
