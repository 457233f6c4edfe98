"""How many calls use connections at a time."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from duly.store.postgres import gate as gate_module
from duly.store.postgres.gate import AT_FIRST, Gate
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
    until(lambda: calls.gate._waiting)
    assert calls.inside == AT_FIRST
    calls.leave()
    until(lambda: calls.inside == AT_FIRST)
    while calls.inside:
        calls.leave()
    waiting.result(PATIENCE)


def test_who_finds_somebody_waiting_goes_through(calls: Calls) -> None:
    fill(calls)
    calls.come()
    until(lambda: calls.gate._waiting)
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


def test_a_place_is_left_to_who_waits_for_it(calls: Calls) -> None:
    gate = calls.gate
    fill(calls)
    waiting = calls.come()
    until(lambda: gate._waiting)
    calls.leave()
    until(lambda: calls.inside == AT_FIRST)
    assert gate._free == 0
    while calls.inside:
        calls.leave()
    waiting.result(PATIENCE)
    until(lambda: gate._free == AT_FIRST)


def test_who_is_interrupted_while_waiting_leaves_the_gate_as_it_was(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    gate = calls.gate
    fill(calls)
    monkeypatch.setattr(gate._changed, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt), gate.passed():
        pass
    assert not gate._waiting
    while calls.inside:
        calls.leave()
    until(lambda: gate._free == AT_FIRST)
