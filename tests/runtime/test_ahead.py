"""Jobs are claimed a little before they are due, and start at that moment: not before, and not a
round trip later."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

import duly
from duly import App, State
from duly.runtime import ahead
from tests.support.fleet import until


@pytest.fixture(autouse=True)
def far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """So far that there is time to look at a job that is claimed and has not started."""
    monkeypatch.setattr(ahead, "SHORTEST", 300.0)


def test_the_code_starts_when_it_is_due(app: App) -> None:
    @app.task
    def stamp() -> datetime:
        return datetime.now(UTC)

    with app.running():
        job = stamp.using(delay=2).enqueue()
        due = job.record.run_at
        assert job.result(timeout=60) >= due
    assert job.record.started_at is not None
    assert job.record.started_at >= due


@pytest.mark.parametrize("patient", [False, True])
def test_what_is_claimed_and_not_due_is_given_back(app: App, patient: bool) -> None:
    @app.task(timeout=1)
    def never() -> None:
        ran.set()

    ran = threading.Event()
    app.start()
    job = never.using(delay=7).enqueue()
    until(lambda: job.refresh().state is State.RUNNING)
    assert job.record.started_at == job.record.run_at
    app.stop(wait=patient)
    record = job.refresh().record
    assert (record.state, record.attempt, record.token) == (State.PENDING, 0, 1)
    assert not ran.is_set()


def test_what_is_cancelled_before_it_is_due_does_not_start(app: App) -> None:
    @app.task
    def never() -> None:
        ran.set()

    ran = threading.Event()
    with app.running():
        job = never.using(delay=5).enqueue()
        until(lambda: job.refresh().state is State.RUNNING)
        job.cancel()
        until(lambda: job.refresh().state is State.CANCELLED)
    assert not ran.is_set()


def test_what_is_due_now_does_not_wait_for_what_is_due_soon(app: App) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    with app.running():
        later = work.using(delay=7).enqueue(1)
        until(lambda: later.refresh().state is State.RUNNING)
        now = work.enqueue(2)
        assert now.result(timeout=60) == 2
        assert now.record.finished_at is not None
        assert now.record.finished_at < later.record.run_at
        app.stop(wait=False)


def test_what_is_claimed_together_starts_each_at_its_own_time(app: App) -> None:
    @app.task
    def stamp() -> datetime:
        return datetime.now(UTC)

    with app.running():
        jobs = app.enqueue_many(stamp.using(delay=2 + 0.3 * number).job() for number in range(4))
        until(lambda: all(job.refresh().state is State.RUNNING for job in jobs))
        claimed = datetime.now(UTC)
        for job in jobs:
            ran = job.result(timeout=60)
            assert claimed < job.record.run_at <= ran
            assert job.record.started_at == job.record.run_at


def test_who_sleeps_is_run_once_more_when_that_has_ended(app: App) -> None:
    @app.task
    def sleep() -> int:
        runs.append(1)
        duly.current_blocking().sleep(1)
        return len(runs)

    runs: list[int] = []
    with app.running():
        assert sleep.enqueue().result(timeout=60) == 2


def test_whoever_waits_for_idleness_takes_only_what_is_due(app: App) -> None:
    @app.task
    def work() -> None:
        """Nothing."""

    later = work.using(delay=7).enqueue()
    now = work.enqueue()
    assert app.run_until_idle(timeout=60) == 1
    assert (now.refresh().state, later.refresh().state) == (State.SUCCEEDED, State.PENDING)
