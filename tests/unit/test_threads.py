"""Errands: calls that can be interrupted, and the threads that take them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from duly.control import TimeLimitExceeded
from duly.runtime import threads as threads_module
from duly.runtime.shelter import Swallowed
from duly.runtime.threads import Crew, Errand
from duly.store.interruptions import put_off, raise_what_was_put_off
from tests.support.stores import until

INTERRUPTED_THEN_TRACED = """
import sys
from duly.runtime.threads import Crew, Errand

def deliver(value, failure):
    print(type(failure).__name__)

errand = Errand(lambda: errand.interrupt(), deliver)
errand.perform()
sys.settrace(lambda frame, event, argument: None)
(lambda: print("traced"))()
"""


def test_what_was_interrupted_leaves_nothing_behind_in_the_interpreter() -> None:
    """Python 3.11 would stand still at the first function that a debugger or coverage traces."""
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_THEN_TRACED],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert process.stdout.split() == ["TimeLimitExceeded", "traced"]


def test_what_is_interrupted_before_it_has_a_thread_does_not_start() -> None:
    started: list[bool] = []
    outcomes: list[tuple[object, BaseException | None]] = []
    errand = Errand(lambda: started.append(True), lambda *outcome: outcomes.append(outcome))
    errand.interrupt()
    errand.perform()
    ((value, failure),) = outcomes
    assert value is None
    assert isinstance(failure, TimeLimitExceeded)
    assert not started
    assert not put_off


def test_an_interruption_that_is_swallowed_at_the_very_end_does_not_reach_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Swallowing(dict[int, Errand]):
        """What Python does when the interruption arrives in a finaliser, just here."""

        def pop(self, *arguments: Any) -> Any:
            threads_module._swallowed._again()
            return super().pop(*arguments)

    monkeypatch.setattr(threads_module, "_interrupted", Swallowing())
    outcomes: list[BaseException | None] = []
    errand = Errand(lambda: errand.interrupt(), lambda _, failure: outcomes.append(failure))
    errand.perform()
    Errand(raise_what_was_put_off, lambda _, failure: outcomes.append(failure)).perform()
    assert [type(failure) for failure in outcomes] == [TimeLimitExceeded, type(None)]
    assert not put_off


def test_ignored_exceptions_are_told_to_whoever_listens_after_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: told.append("first"))
    swallowed = Swallowed(lambda: told.append("again"))
    swallowed.listen()
    ours = sys.unraisablehook

    def passes_on(unraisable: Any) -> None:
        told.append("later")
        ours(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", passes_on)
    swallowed.listen()
    for error in (ValueError, TimeLimitExceeded):
        sys.unraisablehook(SimpleNamespace(exc_type=error))
    assert told == ["later", "first", "again"]


PATIENCE = 60.0
SIZE = 8


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew(SIZE)
    yield crew
    crew.close()


class Calls:
    """Sends calls to a crew, and waits for their ends."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.threads: list[str] = []
        self.outcomes: list[object] = []
        self._all = threading.Condition()
        self._sent = 0

    def send(self, run: Callable[[], object]) -> None:
        self._sent += 1
        self.crew.send(self.errand(run))

    def errand(self, run: Callable[[], object], follower: Any = lambda: None) -> Errand:
        return Errand(run, self._deliver, follower)

    def _deliver(self, value: object, failure: BaseException | None) -> None:
        with self._all:
            self.threads.append(threading.current_thread().name)
            self.outcomes.append(failure or value)
            self._all.notify()

    def ended(self, count: int | None = None) -> list[object]:
        expected = self._sent if count is None else count
        with self._all:
            assert self._all.wait_for(lambda: len(self.outcomes) >= expected, PATIENCE)
        return self.outcomes


def test_calls_that_wait_run_side_by_side(crew: Crew) -> None:
    calls = Calls(crew)
    all_there = threading.Barrier(SIZE)
    for _ in range(3):
        for _ in range(SIZE):
            calls.send(lambda: all_there.wait(PATIENCE) < SIZE)
        assert set(calls.ended()) == {True}


def test_no_more_run_at_a_time_than_there_are_threads(crew: Crew) -> None:
    under_way: list[None] = []
    most: list[int] = []
    go = threading.Semaphore(0)

    def run() -> None:
        under_way.append(None)
        most.append(len(under_way))
        go.acquire(timeout=PATIENCE)
        under_way.pop()

    calls = Calls(crew)
    for _ in range(3 * SIZE):
        calls.send(run)
    for _ in range(3 * SIZE):
        go.release()
    calls.ended()
    assert max(most) <= SIZE


def test_a_call_that_takes_long_holds_nobody_up(crew: Crew) -> None:
    go = threading.Event()
    calls = Calls(crew)
    for _ in range(SIZE - 1):
        calls.send(lambda: go.wait(PATIENCE))
        calls.send(lambda: "quick")
    assert calls.ended(SIZE - 1) == ["quick"] * (SIZE - 1)
    go.set()
    assert calls.ended().count(True) == SIZE - 1


def test_calls_are_all_made_whoever_sends_them(crew: Crew) -> None:
    calls = Calls(crew)
    numbers = iter(range(20_000))

    def send() -> None:
        for _ in numbers:
            crew.send(calls.errand(lambda: None))

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len(calls.ended(20_000)) == 20_000


def test_few_threads_make_calls_that_take_no_time() -> None:
    crew = Crew(200)
    before = threading.active_count()
    calls = Calls(crew)
    for _ in range(20):
        for _ in range(200):
            calls.send(lambda: None)
        calls.ended()
    # A thread for each of the first batch would be 200.
    assert threading.active_count() - before < 100
    crew.close()


def test_what_was_sent_comes_before_what_follows(crew: Crew) -> None:
    order: list[str] = []
    calls = Calls(Crew(1))

    def first() -> None:
        calls.send(lambda: order.append("sent"))

    following = iter([calls.errand(lambda: order.append("followed"))])
    calls.crew.send(calls.errand(first, lambda: next(following, None)))
    calls.ended(2)
    assert order == ["sent"]

    last = iter([calls.errand(lambda: order.append("followed"))])
    calls.crew.send(calls.errand(lambda: None, lambda: next(last, None)))
    calls.ended(4)
    assert order == ["sent", "followed"]
    calls.crew.close()


def test_threads_end_with_their_crew() -> None:
    crew = Crew(SIZE)
    calls = Calls(crew)
    all_there = threading.Barrier(SIZE)
    threads: list[threading.Thread] = []

    def run() -> None:
        threads.append(threading.current_thread())
        all_there.wait(PATIENCE)

    for _ in range(SIZE):
        calls.send(run)
    calls.ended()
    crew.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


def test_a_thread_that_does_not_come_back_is_replaced() -> None:
    crew = Crew(1)
    calls = Calls(crew)
    go = threading.Event()
    calls.send(lambda: go.wait(PATIENCE))
    calls.send(lambda: "done")
    crew.replace_lost()
    assert calls.ended(1) == ["done"]
    go.set()
    calls.ended()
    crew.close()


class Starts:
    """Refuses to start threads while it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = True
        self.when_asked: Callable[[], None] = lambda: None
        start = threading.Thread.start

        def start_or_refuse(thread: threading.Thread) -> None:
            if thread.name == "duly-task" and self.refused:
                self.when_asked()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_refuse)


def test_where_no_thread_can_be_started_those_that_run_do_the_work(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(crew)
    calls.send(lambda: "first")
    calls.ended()
    starts = Starts(monkeypatch)
    go = threading.Event()
    calls.send(lambda: go.wait(PATIENCE))
    for _ in range(3):
        calls.send(lambda: "next")
    go.set()
    assert calls.ended() == ["first", True, "next", "next", "next"]
    assert [each.getMessage() for each in caplog.records] == [
        "can't start new thread: 1 run blocking tasks for now"
    ]
    starts.refused = False
    both = threading.Barrier(2)
    for _ in range(2):
        calls.send(lambda: both.wait(PATIENCE) < 2)
    assert calls.ended()[5:] == [True, True]


def test_without_any_thread_the_sender_is_told_and_may_try_again(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(crew)
    starts = Starts(monkeypatch)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't start"):
            crew.send(calls.errand(lambda: "refused"))
    starts.refused = False
    calls.send(lambda: "done")
    assert calls.ended() == ["done"]


def test_who_comes_to_rest_while_no_thread_can_be_started_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(2)
    calls = Calls(crew)
    go = threading.Event()
    calls.send(lambda: go.wait(PATIENCE))
    starts = Starts(monkeypatch)

    def rest_and_send() -> None:
        starts.when_asked = lambda: None
        go.set()
        until(lambda: len(crew._resting) == 1)
        # Whoever sends now believes that a thread is on its way.
        calls.send(lambda: "second")

    starts.when_asked = rest_and_send
    calls.send(lambda: "first")
    assert calls.ended() == [True, "first", "second"]
    crew.close()


def test_what_is_sent_when_a_thread_is_about_to_rest_is_not_forgotten() -> None:
    class Errands(deque[Errand]):
        """Something comes at the moment at which there is nothing."""

        def popleft(self) -> Errand:
            try:
                return super().popleft()
            except IndexError:
                if late:
                    crew.send(late.pop())
                raise

    crew = Crew(1)
    calls = Calls(crew)
    late = [calls.errand(lambda: "late")]
    crew._errands = Errands()
    crew.send(calls.errand(lambda: "first"))
    assert calls.ended(2) == ["first", "late"]
    crew.close()
