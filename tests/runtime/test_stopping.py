"""Stopping a job: time limits, cancellation, expiry."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

import duly
from duly import App, Job, JobCancelled, JobFailed, State, TimeLimitExceeded
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import until

ENDED = (State.SUCCEEDED, State.DEAD)


def _nap(seconds: float) -> None:
    """Sleep in a way that an exception raised in the thread can interrupt."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("limit", ["timeout", "soft_timeout"])
def test_a_time_limit_ends_async_and_blocking_tasks(app: App, limit: str) -> None:
    cleaned: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("wait")

    def block() -> None:
        try:
            _nap(60)
        finally:
            cleaned.append("block")

    options: Any = {"retries": 0, limit: 0.3}
    tasks: list[Any] = [app.task(name=f.__name__, **options)(f) for f in (wait, block)]
    with app.running():
        jobs = [task.enqueue() for task in tasks]
        for job in jobs:
            with pytest.raises(JobFailed):
                job.result(timeout=30)
            assert [attempt.outcome.value for attempt in job.attempts()] == ["timed_out"]
            assert job.record.error is not None
            assert job.record.error.type == "TimeLimitExceeded"
            assert "longer than" in job.record.error.message
    assert sorted(cleaned) == ["block", "wait"]


def test_a_task_can_end_well_after_its_soft_limit(app: App) -> None:
    @app.task(soft_timeout=0.2)
    def block() -> str:
        try:
            _nap(60)
        except TimeLimitExceeded:
            return "half of it"
        return "all"

    @app.task(soft_timeout=0.2)
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "half of it"
        return "all"

    with app.running():
        jobs = [block.enqueue(), wait.enqueue()]
        assert [job.result(timeout=30) for job in jobs] == ["half of it"] * 2


def test_time_limits_that_come_at_the_very_end_lose_no_job(app: App) -> None:
    """The interruption arrives while the thread is between the task and its report."""

    @app.task(soft_timeout=0.02, retries=0)
    def block(seconds: float) -> None:
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            pass

    with app.running(workers=4):
        jobs = app.enqueue_many(block.job(0.017 + number * 0.00004) for number in range(200))
        for job in jobs:
            until(lambda job=job: job.refresh().state in ENDED)  # type: ignore[misc]


def test_a_time_limit_is_not_swallowed(app: App) -> None:
    """Python ignores what is raised in a callback of the collector and in a finaliser."""
    inside: list[str] = []

    def collected(phase: str, _: object) -> None:
        if phase == "start" and threading.current_thread().name == "duly-task" and not inside:
            inside.append("callback")
            _nap(0.3)

    class Finalised:
        def __del__(self) -> None:
            inside.append("finaliser")
            _nap(0.3)
            inside.append("left")

    @app.task(soft_timeout=0.1, retries=0)
    def by_a_callback() -> None:
        gc.collect()
        _nap(60)

    @app.task(soft_timeout=0.1, retries=0)
    def by_a_finaliser() -> None:
        Finalised()
        _nap(60)

    gc.callbacks.append(collected)
    try:
        with app.running():
            for task in (by_a_callback, by_a_finaliser):
                with pytest.raises(JobFailed, match="longer than"):
                    task.enqueue().result(timeout=30)
    finally:
        gc.callbacks.remove(collected)
    assert inside == ["callback", "finaliser", "left"]


def test_time_limits_keep_out_of_calls_to_the_store(app: App) -> None:
    """Or a connection would be in nobody's hands: a pool had none left in the end."""
    raised_in: list[list[str]] = []

    @app.task(soft_timeout=0.02, retries=0)
    def read_on() -> None:
        try:
            while True:
                app.counts()
        except TimeLimitExceeded as error:
            frames = traceback.walk_tb(error.__traceback__)
            raised_in.append([frame.f_globals["__name__"] for frame, _ in frames])
            raise

    with app.running(workers=2):
        for job in app.enqueue_many(read_on.job() for _ in range(60)):
            until(lambda job=job: job.refresh().state is State.DEAD)  # type: ignore[misc]
    # On a slow machine a limit may pass before the code has a thread.
    assert 0 < len(raised_in) <= 60
    for names in raised_in:
        inside = [name for name in names if name.startswith("duly.store")]
        assert not inside or inside[-1] == "duly.store.interruptions"


def test_cancel_before_the_start(app: App) -> None:
    @app.task
    def never() -> None:
        raise AssertionError

    job = never.using(delay=3600).enqueue()
    assert job.cancel("not needed") is duly.Cancellation.CANCELLED
    app.run_until_idle()
    with pytest.raises(JobCancelled, match="not needed"):
        job.result(timeout=5)
    assert job.attempts() == []


def test_cancel_while_it_runs(app: App) -> None:
    started = threading.Semaphore(0)
    ended: list[str] = []

    @app.task
    async def wait() -> None:
        started.release()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("wait")

    @app.task
    def look() -> str:
        started.release()
        while not duly.current().wait_cancelled(0.01):
            pass
        ended.append("look")
        return "stopped half-way"

    @app.task
    def raises() -> None:
        started.release()
        while not duly.current().cancelled:
            time.sleep(0.01)
        raise OSError("stopped")

    @app.task
    def deaf() -> str:
        started.release()
        go.wait(30)
        return "all of it"

    go = threading.Event()
    with app.running():
        jobs = [task.enqueue() for task in (wait, look, raises, deaf)]
        for _ in jobs:
            assert started.acquire(timeout=30)
        for job in jobs:
            assert job.cancel() is duly.Cancellation.REQUESTED
        for job in jobs[:3]:
            with pytest.raises(JobCancelled):
                job.result(timeout=30)
        go.set()
        assert jobs[3].result(timeout=30) == "all of it"
    assert sorted(ended) == ["look", "wait"]
    assert [job.record.reason for job in jobs[:2]] == ["cancelled on request while it ran"] * 2
    assert jobs[2].record.reason == "cancelled on request"


def test_a_claim_that_leaves_some_has_the_next_end_what_has_expired(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def work() -> None:
        ran.append(True)

    ran: list[bool] = []
    # Nobody else does it: neither the janitor nor a worker that finds nothing to claim.
    monkeypatch.setattr(app.store, "expire", lambda limit: app.store.counts())
    late = [work.using(expires=0.01).enqueue() for _ in range(3)]
    until(lambda: _is_past(late[-1]))
    on_time = work.enqueue()
    app.run_until_idle(timeout=60)
    assert on_time.refresh().state is State.SUCCEEDED
    assert {(job.refresh().state, job.record.reason) for job in late} == {
        (State.CANCELLED, "expired")
    }
    assert ran == [True]


def _is_past(job: Job[Any]) -> bool:
    expires_at = job.record.expires_at
    return expires_at is not None and datetime.now(UTC) > expires_at


def test_an_expired_job_is_cancelled_and_not_run(app: App) -> None:
    @app.task
    def never() -> None:
        raise AssertionError

    job = never.using(expires=0.05).enqueue()
    time.sleep(0.1)
    app.run_until_idle()
    with pytest.raises(JobCancelled, match="expired"):
        job.result(timeout=5)


TASKS = """
@app.task(timeout=1, retries=0)
def stubborn() -> None:
    ran()
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            pass


@app.task(timeout=1, retries=0)
async def stubborn_on_loop() -> None:
    ran()
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass


@app.task(timeout=1, retries=0)
async def blocks_the_loop() -> None:
    ran()
    time.sleep(60)


@app.task(isolate=True, timeout=1, retries=0)
def isolated() -> None:
    ran()
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            pass


@app.task(isolate=True, soft_timeout=0.5, retries=0)
def isolated_soft() -> str:
    try:
        time.sleep(60)
    except duly.TimeLimitExceeded:
        return "half"
    return "all"


@app.task(isolate=True)
def endless() -> None:
    ran()
    time.sleep(60)


@app.task(retries=0)
def neighbour() -> str:
    ran()
    hold()
    return "fine"


@app.task(retries=0, soft_timeout=0.3)
def slow_to_clean_up() -> str:
    ran()
    try:
        hold("never")
    except duly.TimeLimitExceeded:
        hold("cleaned", 20)
    return "clean"
"""


@pytest.mark.parametrize("task", ["stubborn", "stubborn_on_loop", "blocks_the_loop"])
def test_a_task_that_ignores_its_limit_costs_a_restart_and_nobody_else_an_attempt(
    fleet: MakeFleet, task: str
) -> None:
    site = fleet(TASKS)
    worker = site.start()
    (before,) = worker.children()
    neighbour = site.tasks.neighbour.enqueue()
    site.started(neighbour)
    bad = getattr(site.tasks, task).enqueue()
    site.started(bad)
    site.started(neighbour, times=2)
    site.go()
    assert neighbour.result(timeout=60) == "fine"
    assert site.outcomes(neighbour)[-1] == "succeeded"
    assert neighbour.record.attempt == 1
    assert neighbour.record.crashes == 0
    until(lambda: [each.pid for each in worker.children()] != [before.pid])
    if task == "blocks_the_loop":
        # Its supervisor has ended the process; the job is tried once more, alone.
        site.started(bad, times=2)
    record = site.finished(bad)
    assert record.state is State.DEAD
    assert site.outcomes(bad)[-1] == "timed_out"
    assert worker.terminate() == 0


def test_limits_and_force_in_isolated_processes(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start()
    (before,) = worker.children()
    timed_out = site.tasks.isolated.enqueue()
    soft = site.tasks.isolated_soft.enqueue()
    record = site.finished(timed_out)
    assert (record.state, site.outcomes(timed_out)) == (State.DEAD, ["timed_out"])
    assert soft.result(timeout=30) == "half"
    endless = site.tasks.endless.enqueue()
    pid = site.started(endless).pid
    endless.cancel()
    record = site.finished(endless)
    assert (record.state, record.reason) == (State.CANCELLED, "cancelled on request by force")
    until(lambda: pid not in [each.pid for each in worker.isolated()])
    assert [each.pid for each in worker.children()] == [before.pid]


def test_a_soft_limit_leaves_time_to_clean_up(fleet: MakeFleet) -> None:
    """It is no deadline after which the supervisor ends the process."""
    site = fleet(TASKS)
    worker = site.start()
    (before,) = worker.children()
    job = site.tasks.slow_to_clean_up.enqueue()
    site.started(job)
    time.sleep(7)
    site.go("cleaned")
    assert job.result(timeout=30) == "clean"
    assert [each.pid for each in worker.children()] == [before.pid], worker.log


def test_a_job_that_was_to_be_cancelled_is_not_run_again_after_a_crash(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start()
    job = site.tasks.neighbour.enqueue()
    site.started(job)
    worker.children()[0].suspend()
    job.cancel()
    worker.children()[0].kill()
    record = site.finished(job)
    assert record.state is State.CANCELLED
    site.go()
    assert len(site.effects("ran")) == 1
