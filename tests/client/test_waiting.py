"""Those who wait for results, when somebody breaks in: interrupts, errors, forks."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from duly import App, Job, JobCancelled, StoreError
from duly.client.bell import Bell
from tests.support.stores import until

PATIENCE = 20.0


@pytest.fixture
def endless(app: App) -> Job[None]:
    """A job that does not end by itself."""

    @app.task
    def work() -> None: ...

    return work.using(delay=3600).enqueue()


@pytest.fixture
def ended(app: App) -> Job[None]:
    """A job that has ended."""

    @app.task
    def done() -> None: ...

    job = done.enqueue()
    job.cancel()
    return job


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "duly-waiting"]


def assert_the_room_works(app: App, ended: Job[None]) -> None:
    assert not app.client.waiting._waiters
    with pytest.raises(JobCancelled):
        app.get(ended.id).result(timeout=PATIENCE)
    app.client.waiting.close()
    until(lambda: not waiting_threads())


@pytest.mark.parametrize("is_up", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whoever_is_interrupted_while_a_thread_begins_leaves_nothing_behind(
    app: App,
    endless: Job[None],
    ended: Job[None],
    monkeypatch: pytest.MonkeyPatch,
    is_up: bool,
    error: type[BaseException],
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "duly-waiting":
            start(thread)
            return
        if is_up:
            start(thread)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(error):
            endless.result(timeout=PATIENCE)
    assert_the_room_works(app, ended)


def test_whoever_is_interrupted_as_he_enters_leaves(
    app: App, endless: Job[None], ended: Job[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = app.client.waiting
    enter = room.enter

    def interrupted(*arguments: object) -> NoReturn:
        enter(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(room, "enter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            endless.result(timeout=PATIENCE)
    assert_the_room_works(app, ended)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_breaks_off_tells_those_who_wait(
    app: App, endless: Job[None], ended: Job[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()
    wait = Bell.wait

    def breaks(bell: Bell, seconds: float, other: int | None = None) -> bool:
        if broken.is_set():
            raise RuntimeError("no space for logs")
        return wait(bell, seconds, other)

    with ThreadPoolExecutor(1) as threads, monkeypatch.context() as patch:
        patch.setattr(Bell, "wait", breaks)
        waiting = threads.submit(endless.result, PATIENCE)
        until(lambda: app.client.waiting.last_seen(endless.id))
        broken.set()
        with pytest.raises(StoreError, match="ask again"):
            waiting.result(PATIENCE)
        until(lambda: not waiting_threads())
    assert_the_room_works(app, ended)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_closes_the_app_whoever_held_its_locks(app: App, ended: Job[None]) -> None:
    with pytest.raises(JobCancelled):
        ended.result(timeout=PATIENCE)
    with app.client.waiting._lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            app.close()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert_the_room_works(app, ended)
