"""Failures: backoff, what is worth another attempt, dead letters and their replay."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import duly
from duly import App, Job, JobFailed, Replay, State, Status
from duly.policy.retry import RetryPolicy, listed
from duly.registry.declaring import define
from tests.support.fleet import until


def _seconds(backoff: Any, attempts: int) -> list[float]:
    policy = define(lambda: None, name="task", backoff=backoff, jitter=False).retry
    delays = [policy.delay_after(number, random.Random(1)) for number in range(1, attempts + 1)]
    return [delay.total_seconds() for delay in delays]


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (duly.exponential(timedelta(seconds=2), 3, timedelta(seconds=20)), [2, 6, 18, 20, 20]),
        (duly.linear(timedelta(seconds=5), timedelta(seconds=12)), [5, 10, 12, 12]),
        (duly.fixed(timedelta(seconds=7)), [7, 7, 7]),
        ("1m30s", [90, 90]),
        (["1s", 60, timedelta(hours=1)], [1, 60, 3600, 3600]),
        (lambda attempt: timedelta(seconds=attempt * attempt), [1, 4, 9]),
        (lambda attempt: attempt * 1.5, [1.5, 3.0]),
    ],
)
def test_every_policy(backoff: Any, delays: list[float]) -> None:
    assert _seconds(backoff, len(delays)) == delays


def test_jitter_is_a_factor_of_a_half_to_three_halves() -> None:
    policy = RetryPolicy(backoff=listed([timedelta(seconds=100)]))
    delays = [policy.delay_after(1, random.Random(seed)).total_seconds() for seed in range(2000)]
    assert 50 <= min(delays) < 52
    assert 148 < max(delays) <= 150


def _run(app: App, task: Any, *arguments: Any) -> Job[Any]:
    """Run a job of the task once, whatever becomes of it."""
    job: Job[Any] = task.enqueue(*arguments)
    app.run_until_idle(timeout=60)
    return job.refresh()


def test_a_failed_attempt_is_followed_by_another_after_its_backoff(app: App) -> None:
    @app.task(retries=3, backoff=["1h", "3h"], jitter=False)
    def fails() -> None:
        raise OSError("no")

    job = _run(app, fails)
    assert (job.state, job.status, job.record.attempt) == (State.PENDING, Status.RETRYING, 1)
    wait = (job.record.run_at - datetime.now(UTC)).total_seconds()
    assert 3500 < wait <= 3600
    assert job.record.error is not None
    assert job.record.error.type == "OSError"
    app.store.run(app.store.run_now([job.id]))
    app.run_until_idle(timeout=60)
    assert [attempt.number for attempt in job.attempts()] == [1, 2]
    wait = (job.refresh().record.run_at - datetime.now(UTC)).total_seconds()
    assert 10_700 < wait <= 10_800


def test_after_the_last_attempt_the_job_is_dead_with_all_of_them(app: App) -> None:
    keys: list[str] = []

    @app.task(retries=2, backoff=0.01)
    def fails(order: int) -> None:
        keys.append(duly.current().idempotency_key)
        raise ValueError(f"order {order}, attempt {duly.current().attempt}")

    with app.running():
        job = fails.enqueue(7)
        with pytest.raises(JobFailed, match="order 7, attempt 3"):
            job.result(timeout=60)
    record = job.record
    assert (record.state, record.reason, record.attempt) == (State.DEAD, "attempts exhausted", 3)
    assert record.arguments == '{"order":7}'
    attempts = job.attempts()
    assert [attempt.number for attempt in attempts] == [1, 2, 3]
    assert [attempt.error and attempt.error.message for attempt in attempts] == [
        f"order 7, attempt {number}" for number in (1, 2, 3)
    ]
    assert len({attempt.error and attempt.error.fingerprint for attempt in attempts}) == 1
    assert "in fails" in ((record.error and record.error.traceback) or "")
    assert keys == [str(job.id)] * 3


@pytest.mark.parametrize(
    ("options", "error", "dead"),
    [
        ({"retry_on": OSError}, ConnectionError("in it"), False),
        ({"retry_on": OSError}, ValueError("not in it"), True),
        ({"give_up_on": ValueError}, ValueError("in it"), True),
        ({"give_up_on": ValueError}, OSError("not in it"), False),
        ({"retry_on": OSError, "give_up_on": ConnectionError}, ConnectionError("both"), True),
        ({"give_up_on": SystemExit}, SystemExit(1), True),
        ({"retry_on": OSError}, duly.Retry("asked for"), False),
        ({"retry_on": OSError}, duly.Retry(after="1h"), False),
    ],
)
def test_which_errors_are_worth_another_attempt(
    app: App, options: dict[str, Any], error: BaseException, dead: bool
) -> None:
    @app.task(retries=3, backoff="1h", **options)
    def fails() -> None:
        raise error

    job = _run(app, fails)
    if dead:
        assert (job.state, job.record.reason) == (State.DEAD, "not worth another attempt")
    else:
        assert job.status is Status.RETRYING


def test_a_task_chooses_the_delay_of_its_next_attempt(app: App) -> None:
    @app.task(retries=1, backoff="1s")
    def later() -> None:
        raise duly.Retry(after="2h")

    job = _run(app, later)
    wait = (job.record.run_at - datetime.now(UTC)).total_seconds()
    assert 7100 < wait <= 7200
    assert job.record.attempt == 1
    app.store.run(app.store.run_now([job.id]))
    app.run_until_idle(timeout=60)
    assert job.refresh().state is State.DEAD


def test_a_snooze_is_not_charged(app: App) -> None:
    @app.task(retries=0)
    def not_now() -> str:
        if len(times) < 3:
            times.append(duly.current().attempt)
            raise duly.Snooze(0.01)
        return "done"

    times: list[int] = []
    with app.running():
        job = not_now.enqueue()
        assert job.result(timeout=60) == "done"
    assert times == [1, 1, 1]
    assert job.record.attempt == 1
    outcomes = [attempt.outcome.value for attempt in job.attempts()]
    assert outcomes == ["snoozed"] * 3 + ["succeeded"]


def test_a_task_cancels_its_own_job(app: App) -> None:
    @app.task(retries=3)
    def needless() -> None:
        raise duly.Cancel("the order is gone")

    job = _run(app, needless)
    assert (job.state, job.record.reason) == (State.CANCELLED, "the order is gone")


@pytest.mark.parametrize("backoff", [lambda attempt: 1 / 0, lambda attempt: "soon"])
def test_a_backoff_that_fails_does_not_hold_the_job(
    app: App, backoff: Callable[[int], Any]
) -> None:
    @app.task(retries=3, backoff=backoff)
    def fails() -> None:
        raise OSError

    assert _run(app, fails).status is Status.RETRYING


def test_dead_jobs_are_replayed_with_other_arguments_in_a_new_generation(app: App) -> None:
    @app.task(retries=0)
    def divide(by: int) -> float:
        return 1 / by

    job = _run(app, divide, 0)
    assert job.state is State.DEAD
    assert app.replay(job.id, {"by": 2}) is Replay.REPLAYED
    app.run_until_idle(timeout=60)
    assert job.result(timeout=5) == 0.5
    assert (job.record.generation, job.record.attempt) == (2, 1)
    attempts = [(each.generation, each.outcome.value) for each in job.attempts()]
    assert attempts == [(1, "failed"), (2, "succeeded")]
    assert app.replay(job.id) is Replay.NOT_DEAD


def test_nothing_starts_before_its_time_and_a_cancelled_retry_never(app: App) -> None:
    runs = threading.Semaphore(0)

    @app.task(retries=3, backoff=0.5, jitter=False)
    def fails() -> None:
        runs.release()
        raise OSError

    with app.running():
        job = fails.enqueue()
        assert runs.acquire(timeout=30)
        until(lambda: job.refresh().status is Status.RETRYING)
        job.cancel()
        assert not runs.acquire(timeout=1.0)
    assert job.refresh().state is State.CANCELLED
    starts = [attempt.started_at for attempt in job.attempts()]
    assert len(starts) == 1
