"""Jobs that are claimed beyond the free slots: they wait a moment for room, or are given back."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

import duly
from duly import App, State
from duly.runtime import executor, holding, limits
from duly.runtime.executor import Executor
from duly.runtime.pace import Pace
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots
from duly.runtime.worker import Worker
from tests.support.fleet import until

CLAIMED = 20


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are expected to end soon, whether they do or not."""
    monkeypatch.setattr(Pace, "claimable", lambda self: CLAIMED)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So patient that there is time to look at what is held."""
    monkeypatch.setattr(holding, "LOOK", 300.0)


def test_no_more_run_at_a_time_than_there_are_slots(app: App, patient: None) -> None:
    @app.task
    def blocking(number: int) -> None:
        enter(number)
        under_way.remove(number)

    @app.task
    async def on_loop(number: int) -> None:
        enter(number)
        await asyncio.sleep(0)
        under_way.remove(number)

    def enter(number: int) -> None:
        under_way.append(number)
        ran.append(number)
        most.append(len(under_way))

    ran: list[int] = []
    under_way: list[int] = []
    most: list[int] = []
    jobs = [(blocking if number % 2 else on_loop).enqueue(number) for number in range(60)]
    with app.running(workers=2):
        for job in jobs:
            job.result(timeout=60)
    assert sorted(ran) == list(range(60))
    assert max(most) <= 2
    assert {(job.refresh().state, job.record.token) for job in jobs} == {(State.SUCCEEDED, 1)}


def test_calls_follow_one_another_in_their_thread(
    app: App, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def quick(number: int) -> int:
        assert all_added.wait(60)
        threads.add(threading.get_ident())
        if number == CLAIMED - 1:
            last_ran.set()
        return number

    def add_and_tell(self: Slots, slot: Slot) -> bool:
        has_place = add(self, slot)
        if len(self) == CLAIMED:
            all_added.set()
        return has_place

    def collect_late(self: Executor) -> None:
        """Meanwhile the event loop starts nothing."""
        assert last_ran.wait(60)
        collect(self)

    add, collect = Slots.add, Executor._collect
    monkeypatch.setattr(Slots, "add", add_and_tell)
    monkeypatch.setattr(Executor, "_collect", collect_late)
    all_added, last_ran = threading.Event(), threading.Event()
    threads: set[int] = set()
    jobs = [quick.enqueue(number) for number in range(CLAIMED)]
    with app.running(workers=1):
        assert [job.result(timeout=60) for job in jobs] == list(range(CLAIMED))
    assert len(threads) == 1
    assert {(job.refresh().state, job.record.token) for job in jobs} == {(State.SUCCEEDED, 1)}


def test_what_cannot_start_soon_is_given_back(app: App) -> None:
    @app.task
    def first() -> None:
        started.set()
        go.wait(60)

    @app.task
    def quick(number: int) -> int:
        return number

    started, go = threading.Event(), threading.Event()
    jobs = [first.enqueue(), *(quick.enqueue(number) for number in range(5))]
    app.start(workers=1)
    assert started.wait(60)
    until(lambda: all(job.refresh().record.token > 0 for job in jobs[1:]))
    until(lambda: {job.refresh().state for job in jobs[1:]} == {State.PENDING})
    for job in jobs[1:]:
        assert (job.record.attempt, job.record.alone) == (0, False)
        assert {attempt.outcome.value for attempt in job.attempts()} == {"released"}
    go.set()
    assert [job.result(timeout=60) for job in jobs[1:]] == list(range(5))
    app.stop()


def test_what_is_given_back_with_a_worker_that_gives_up_does_not_start_later(
    app: App, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(timeout=0.1)
    def stuck() -> None:
        while not end.is_set():
            with suppress(duly.TimeLimitExceeded):
                time.sleep(0.01)

    @app.task
    def neighbour() -> None:
        assert go.wait(60)
        ended.set()

    @app.task
    def quick(number: int) -> int:
        ran.append(number)
        return number

    def next_and_tell(self: Slots) -> Slot | None:
        slot = next_of(self)
        given.setdefault(self, []).append(slot)
        return slot

    next_of = Slots.next
    monkeypatch.setattr(Slots, "next", next_and_tell)
    given: dict[Slots, list[Slot | None]] = {}
    monkeypatch.setattr(limits, "REACTION", 0.1)
    end, go, ended = threading.Event(), threading.Event(), threading.Event()
    ran: list[int] = []
    jobs = [stuck.enqueue(), neighbour.enqueue(), *(quick.enqueue(n) for n in range(4))]
    app.start(workers=2)
    # Whoever takes the place of the worker that gave up runs them, each once.
    assert [job.result(timeout=60) for job in jobs[2:]] == list(range(4))
    go.set()
    assert ended.wait(60)
    end.set()
    app.stop()
    assert sorted(ran) == list(range(4))
    of_the_first_worker = next(iter(given.values()))
    assert set(of_the_first_worker) == {None}


def test_what_has_no_thread_is_given_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def quick(number: int) -> int:
        return number

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "duly-task" and not refused:
            refused.append(True)
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    refused: list[bool] = []
    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    monkeypatch.setattr(executor, "PAUSE", 0.01)
    jobs = [quick.enqueue(number) for number in range(3)]
    with app.running(workers=1):
        assert [job.result(timeout=60) for job in jobs] == list(range(3))
    assert refused
    assert jobs[0].refresh().record.attempt == 1
    assert {attempt.outcome.value for attempt in jobs[0].attempts()} == {"released", "succeeded"}


def test_a_thread_does_not_go_on_without_a_lease() -> None:
    def follower(remaining: float) -> object:
        slots = SimpleNamespace(follower=lambda ended: "the next")
        lease = SimpleNamespace(remaining=lambda: remaining)
        worker = SimpleNamespace(_slots=slots, lease=lease)
        return Worker._follower(cast(Worker, worker), cast(Slot, None))

    assert (follower(0.1), follower(0.0)) == ("the next", None)


def test_what_is_given_back_does_not_count_as_run(app: App) -> None:
    @app.task
    def first() -> None:
        go.wait(60)

    @app.task
    def quick() -> None:
        """Nothing."""

    go = threading.Event()
    ran: list[int] = []
    jobs = [first.enqueue() for _ in range(10)]
    held = [quick.enqueue() for _ in range(5)]
    running = threading.Thread(target=lambda: ran.append(app.run_until_idle()))
    running.start()
    until(lambda: all(job.refresh().record.token > 0 for job in held))
    until(lambda: {job.refresh().state for job in held} == {State.PENDING})
    go.set()
    running.join(60)
    assert ran == [len(jobs) + len(held)]


@pytest.mark.parametrize("wait", [False, True])
def test_what_is_held_does_not_start_when_the_worker_stops(
    app: App, patient: None, wait: bool
) -> None:
    @app.task(retries=0)
    async def long() -> None:
        started.set()
        await asyncio.sleep(0 if go.is_set() else 60)

    @app.task
    async def quick() -> None:
        ran.set()

    started, go, ran = threading.Event(), threading.Event(), threading.Event()
    blocker = long.enqueue()
    held = [quick.enqueue() for _ in range(5)]
    app.start(workers=1)
    assert started.wait(60)
    until(lambda: {job.refresh().state for job in held} == {State.RUNNING})
    stopping = threading.Thread(target=app.stop, kwargs={"wait": wait})
    stopping.start()
    until(lambda: {job.refresh().state for job in held} == {State.PENDING})
    if wait:
        blocker.cancel()
    stopping.join(60)
    assert not stopping.is_alive()
    assert not ran.is_set()
    assert {(job.refresh().state, job.record.attempt) for job in held} == {(State.PENDING, 0)}


def test_what_is_cancelled_while_it_is_held_does_not_run(
    app: App, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def long() -> None:
        started.set()
        await asyncio.to_thread(go.wait, 60)

    @app.task
    async def quick(number: int) -> None:
        ran.append(number)

    interrupt = Slot.interrupt

    def heed(slot: Slot) -> None:
        interrupt(slot)
        heeded.set()

    monkeypatch.setattr(Slot, "interrupt", heed)
    started, go, heeded = threading.Event(), threading.Event(), threading.Event()
    ran: list[int] = []
    long.enqueue()
    held = [quick.enqueue(number) for number in range(3)]
    with app.running(workers=1):
        assert started.wait(60)
        until(lambda: {job.refresh().state for job in held} == {State.RUNNING})
        held[1].cancel()
        assert heeded.wait(60)
        go.set()
        until(lambda: held[1].refresh().state is State.CANCELLED)
        until(lambda: {held[0].refresh().state, held[2].refresh().state} == {State.SUCCEEDED})
    assert sorted(ran) == [0, 2]
