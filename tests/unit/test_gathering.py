"""Waiting for those who were stored together."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from duly.store import gathering as gathering_module
from duly.store.gathering import LONGEST_REST, SHORTEST_REST, Gathering
from tests.support.still_clock import StillClock
from tests.support.stores import until

PATIENCE = 30.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr("duly.store.gathering.time", clock)
    return clock


class Scene:
    """A queue, and a thread that gathers."""

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.lock = threading.Lock()
        self.filled = threading.Condition(self.lock)
        self.interrupted = False
        self.gathering = Gathering(self.filled, self.queue, lambda: self.interrupted)
        self._threads = ThreadPoolExecutor(1)

    def gather(self) -> Future[None]:
        return self._threads.submit(self._gather)

    def put(self) -> None:
        with self.lock:
            self.queue.append(0)
            if self.gathering.has_enough:
                self.filled.notify()

    def _gather(self) -> None:
        with self.filled:
            self.gathering.gather()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering_module, "LONGEST", PATIENCE)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering_module, "LONGEST", 0.001)


@pytest.mark.usefixtures("patient")
def test_it_goes_on_when_as_many_are_back(scene: Scene) -> None:
    scene.gathering.stores(3)
    gathered = scene.gather()
    until(lambda: not scene.gathering.has_enough)
    for _ in range(3):
        assert not gathered.done()
        assert scene.gathering.expects_company
        scene.put()
    gathered.result(PATIENCE)
    assert not scene.gathering.expects_company


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("number", [0, 1])
def test_nobody_waits_for_one_that_was_alone(scene: Scene, number: int) -> None:
    scene.gathering.stores(number)
    scene.gather().result(PATIENCE / 2)


@pytest.mark.usefixtures("patient")
def test_it_does_not_go_on_waiting_when_something_else_is_to_be_done(scene: Scene) -> None:
    scene.gathering.stores(2)
    gathered = scene.gather()
    until(lambda: not scene.gathering.has_enough)
    with scene.filled:
        scene.interrupted = True
        scene.filled.notify()
    gathered.result(PATIENCE)


@pytest.mark.usefixtures("hurried")
def test_after_waiting_in_vain_it_rests_for_longer_and_longer(
    scene: Scene, clock: StillClock
) -> None:
    rests = []
    for _ in range(8):
        scene.gathering.stores(2)
        scene.gather().result(PATIENCE)
        rests.append(scene.gathering._rests_until - clock.now)
        clock.now += rests[-1]
    assert rests[:2] == pytest.approx([SHORTEST_REST, 2 * SHORTEST_REST])
    assert rests[-2:] == pytest.approx([LONGEST_REST] * 2)
    scene.queue += [0, 0]
    scene.gathering.stores(2)
    scene.gather().result(PATIENCE)
    scene.queue.clear()
    scene.gathering.stores(2)
    scene.gather().result(PATIENCE)
    assert scene.gathering._rests_until - clock.now == pytest.approx(SHORTEST_REST)


def test_while_it_rests_nobody_is_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, clock: StillClock
) -> None:
    monkeypatch.setattr(gathering_module, "LONGEST", 0.001)
    scene.gathering.stores(2)
    scene.gather().result(PATIENCE)
    monkeypatch.setattr(gathering_module, "LONGEST", PATIENCE)
    scene.gathering.stores(2)
    scene.gather().result(PATIENCE / 2)
