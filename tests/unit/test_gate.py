"""How many calls use connections at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from duly.store.postgres import gate as gate_module
from duly.store.postgres.gate import AT_FIRST, MOST_ON_LOOPS, Gate
from tests.support.stores import until

PATIENCE = 30.0


class Calls:
    """Calls that are inside until they are told to leave."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.gate = Gate()
        self._threads = threads
        self._inside: list[threading.Event] = []

    @property
    def inside(self) -> int:
        return len(self._inside)

    def come(self) -> Future[None]:
        return self._threads.submit(self._call)

    def leave(self) -> None:
        self._inside.pop().set()

    def _call(self) -> None:
        told = threading.Event()
        with self.gate.passed():
            self._inside.append(told)
            assert told.wait(PATIENCE)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setattr(gate_module, "PATIENCE", PATIENCE)
    return Calls(ThreadPoolExecutor(8))


def fill(calls: Calls) -> None:
    for _ in range(AT_FIRST):
        calls.come()
    until(lambda: calls.inside == AT_FIRST)


def test_one_waits_until_another_has_left(calls: Calls) -> None:
    fill(calls)
    waiting = calls.come()
    until(lambda: calls.gate._waiting is not None)
    assert calls.inside == AT_FIRST
    calls.leave()
    until(lambda: calls.inside == AT_FIRST)
    while calls.inside:
        calls.leave()
    waiting.result(PATIENCE)


def test_who_finds_somebody_waiting_goes_through(calls: Calls) -> None:
    fill(calls)
    calls.come()
    until(lambda: calls.gate._waiting is not None)
    calls.come()
    until(lambda: calls.inside == AT_FIRST + 1)
    for _ in range(AT_FIRST + 1):
        calls.leave()
    until(lambda: calls.inside == 1)
    calls.leave()
    for _ in range(AT_FIRST + 1):
        calls.come()
    until(lambda: calls.inside == AT_FIRST + 1)
    while calls.inside:
        calls.leave()


def test_nobody_waits_for_long(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "PATIENCE", 0.01)
    fill(calls)
    calls.come()
    until(lambda: calls.inside == AT_FIRST + 1)
    while calls.inside:
        calls.leave()


def test_an_event_loop_is_let_in_only_where_there_is_room(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "PATIENCE_WITH_LOOPS", PATIENCE)
    gate = calls.gate
    assert [gate.enter_from_loop() for _ in range(AT_FIRST + 1)] == [True] * AT_FIRST + [False]
    waiting = calls.come()
    until(lambda: gate._waiting is not None)
    gate.leave_from_loop()
    until(lambda: calls.inside == 1)
    assert not gate.enter_from_loop()
    for _ in range(AT_FIRST - 1):
        gate.leave_from_loop()
    calls.leave()
    waiting.result(PATIENCE)
    until(lambda: gate._free == AT_FIRST)
    assert gate.used_by_loops == 0


def test_event_loops_have_only_some_of_the_places(calls: Calls) -> None:
    calls.gate._free = 10
    entered = [calls.gate.enter_from_loop() for _ in range(MOST_ON_LOOPS + 1)]
    assert entered == [True] * MOST_ON_LOOPS + [False]


def test_a_thread_does_not_wait_for_its_own_event_loop(calls: Calls) -> None:
    gate = calls.gate
    while gate.enter_from_loop():
        pass
    with gate.passed(), gate.passed():
        pass
    while gate.used_by_loops:
        gate.leave_from_loop()
    assert gate._free == AT_FIRST


def test_others_wait_only_a_moment_for_an_event_loop(calls: Calls) -> None:
    while calls.gate.enter_from_loop():
        pass
    calls.come()
    until(lambda: calls.inside == 1)
    calls.leave()


def test_a_place_is_left_to_who_waits_for_it(calls: Calls) -> None:
    gate = calls.gate
    fill(calls)
    waiting = calls.come()
    until(lambda: gate._waiting is not None)
    calls.leave()
    until(lambda: calls.inside == AT_FIRST)
    assert gate._free == 0
    while calls.inside:
        calls.leave()
    waiting.result(PATIENCE)
    until(lambda: gate._free == AT_FIRST)


@pytest.mark.parametrize("handed", [False, True])
def test_who_is_interrupted_while_waiting_leaves_the_gate_as_it_was(
    calls: Calls, handed: bool
) -> None:
    class Interrupted:
        """A place that is waited for in vain, or left just before the interrupt."""

        def acquire(self, timeout: float) -> bool:
            if handed:
                calls.leave()
                until(lambda: gate._waiting is None)
            raise KeyboardInterrupt

        def release(self) -> None:
            pass

    gate = calls.gate
    fill(calls)
    place: Any = Interrupted()
    gate._waiting = place
    with pytest.raises(KeyboardInterrupt):
        gate._wait(place)
    assert gate._waiting is None
    while calls.inside:
        calls.leave()
    until(lambda: gate._free == AT_FIRST)


def test_a_place_that_was_left_to_one_is_not_waited_for_by_two(
    calls: Calls, switch_rarely: None
) -> None:
    """Who comes between the leaving and the waking of the one it was left to must neither keep
    that one waiting nor wait for longer itself."""
    gate = calls.gate
    for _ in range(AT_FIRST - 1):
        calls.come()
    until(lambda: calls.inside == AT_FIRST - 1)
    threading.Thread(target=leave_when, args=[calls, AT_FIRST]).start()
    with gate.passed():
        first = calls.come()
        until(lambda: gate._waiting is not None)
    # The first one has not woken up: this thread has not let go of the interpreter since.
    with gate.passed():
        pass
    while calls.inside:
        calls.leave()
    first.result(PATIENCE)
    until(lambda: gate._free == AT_FIRST)


def leave_when(calls: Calls, inside: int) -> None:
    until(lambda: calls.inside == inside)
    calls.leave()


@pytest.fixture
def switch_rarely() -> Iterator[None]:
    """No thread has to make way for another before it waits for something."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10.0)
    yield
    sys.setswitchinterval(interval)
