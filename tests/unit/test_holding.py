"""When jobs that wait for a slot start, and when they are given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.runtime import holding as holding_module
from duly.runtime import slots as slots_module
from duly.runtime.holding import LONGER, Holding
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots


class Timers:
    """An event loop of which nothing is used but timers; they ring when they are told."""

    def __init__(self) -> None:
        self.set: list[tuple[Any, tuple[Any, ...]]] = []

    def time(self) -> float:
        return 0.0

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
        timer = (callback, args)
        self.set.append(timer)
        return SimpleNamespace(cancel=lambda: self.set.remove(timer))

    def ring(self) -> None:
        due, self.set = self.set, []
        for callback, args in due:
            callback(*args)


class Bench:
    """One slot, with what is held before it."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.slots = Slots(1)
        self.entered: list[Slot] = []
        self.given_back: list[Slot] = []
        self.mistakes = 0
        pace = SimpleNamespace(mistaken=self._mistaken)
        self.holding = Holding(self.slots, cast(Any, pace), self._enter, self._give_back)

    def hold(self, count: int) -> None:
        for number in range(count + 1):
            job = SimpleNamespace(id=number, token=1)
            slot = Slot(cast(Any, job), cast(Any, None), cast(Any, None), False)
            if self.slots.add(slot):
                self._enter(slot)
            else:
                self.holding.watch()

    def finish(self, count: int) -> None:
        for _ in range(count):
            self.slots.remove(self.entered[-1])
            self.holding.proceed()

    def _enter(self, slot: Slot) -> None:
        slot.entered = True
        self.entered.append(slot)

    def _give_back(self, slot: Slot) -> None:
        self.given_back.append(slot)
        self.slots.remove(slot)

    def _mistaken(self) -> None:
        self.mistakes += 1


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    timers = Timers()
    loop = SimpleNamespace(get_running_loop=lambda: timers, Event=lambda: SimpleNamespace(set=int))
    monkeypatch.setattr(holding_module, "asyncio", loop)
    monkeypatch.setattr(slots_module, "asyncio", loop)
    return Bench(timers)


def test_without_an_end_everything_is_given_back(bench: Bench) -> None:
    bench.hold(3)
    bench.timers.ring()
    assert (len(bench.given_back), len(bench.entered), bench.mistakes) == (3, 1, 1)
    assert (bench.slots.holds_any, bench.timers.set) == (False, [])


def test_what_will_start_before_long_is_kept(bench: Bench) -> None:
    bench.hold(3 * LONGER)
    bench.finish(3)
    bench.timers.ring()
    assert (len(bench.given_back), len(bench.entered)) == (0, 4)
    bench.timers.ring()
    assert (len(bench.given_back), len(bench.entered)) == (3 * LONGER - 3, 4)


def test_what_would_take_long_is_given_back_although_some_have_ended(bench: Bench) -> None:
    bench.hold(3 * LONGER + 4)
    bench.finish(3)
    bench.timers.ring()
    assert (len(bench.given_back), bench.mistakes) == (3 * LONGER + 1, 1)


def test_what_a_thread_has_just_started_is_not_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.hold(3)
    started = bench.slots.held[1]
    withdraw = bench.slots.withdraw
    monkeypatch.setattr(
        bench.slots, "withdraw", lambda slot: slot is not started and withdraw(slot)
    )
    bench.timers.ring()
    assert len(bench.given_back) == 2
    assert started not in bench.given_back


def test_a_look_is_not_for_what_is_held_later(bench: Bench) -> None:
    bench.hold(1)
    assert bench.holding.looks
    # A thread goes on with it.
    bench.slots.withdraw(bench.slots.held[0])
    bench.holding.proceed()
    assert (bench.holding.looks, bench.timers.set) == (False, [])


def test_nobody_looks_any_more_when_nothing_is_held(bench: Bench) -> None:
    bench.hold(2)
    assert len(bench.timers.set) == 1
    bench.finish(2)
    assert (len(bench.entered), bench.timers.set) == (3, [])
    bench.finish(1)
    bench.hold(2)
    assert len(bench.timers.set) == 1
