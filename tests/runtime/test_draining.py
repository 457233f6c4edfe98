"""Stopping a worker: signals, recycling, reloading."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from duly import App, Job, State
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import long_only, send, until

TASKS = """
@app.task(retries=0)
def short() -> str:
    ran()
    hold("short", 30)
    return "done"


@app.task(retries=0)
def long() -> str:
    ran()
    hold("long", 60)
    return "done"


@app.task(retries=0)
async def long_on_loop() -> str:
    ran()
    await asyncio.sleep(0 if (HERE / "long").exists() else 60)
    return "done"


@app.task(retries=0, isolate=True)
def long_isolated() -> str:
    ran()
    hold("long", 60)
    return "done"


@app.task(retries=0)
def quick(number: int = 0) -> int:
    ran()
    return VERSION


@app.task(retries=0)
def leak() -> int:
    kept.append(bytearray(30_000_000))
    ran()
    return len(kept)


kept = []
VERSION = 1
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=long_only)])
def test_short_jobs_finish_and_long_ones_are_released(
    fleet: MakeFleet, number: signal.Signals
) -> None:
    site = fleet(TASKS)
    worker = site.start("--grace", "3s")
    tasks = site.tasks
    short = tasks.short.enqueue()
    long = [tasks.long.enqueue(), tasks.long_on_loop.enqueue(), tasks.long_isolated.enqueue()]
    for job in (short, *long):
        site.started(job)
    worker.process.send_signal(number)
    until(lambda: "stopping" in worker.log)
    waiting = tasks.quick.enqueue()
    site.go("short")
    assert worker.process.wait(60) == 0, worker.log
    assert short.refresh().state is State.SUCCEEDED
    for job in long:
        record = job.refresh().record
        assert (record.state, record.attempt, record.alone) == (State.PENDING, 0, False)
        assert site.outcomes(job) == ["released"]
    assert waiting.refresh().state is State.PENDING
    assert site.registered() == []
    until(lambda: not site.survivors(), why="nothing is left")
    site.go("long")
    site.start()
    assert {record.state for record in site.settled([*long, waiting])} == {State.SUCCEEDED}


def test_what_is_given_back_is_not_claimed_again_on_the_way_out(app: App) -> None:
    """A claim that is under way when the worker stops would find the released job, and die
    with it."""

    @app.task(retries=0)
    async def long() -> None:
        started.set()
        await asyncio.sleep(60)

    started = threading.Event()
    for _ in range(15):
        started.clear()
        app.start(workers=4)
        jobs = [long.enqueue() for _ in range(4)]
        assert started.wait(30)
        app.stop(wait=False)
        for job in jobs:
            record = job.refresh().record
            assert (record.state, record.alone) == (State.PENDING, False)
            assert {attempt.outcome.value for attempt in job.attempts()} <= {"released"}
            job.cancel()


def test_the_second_signal_stops_at_once(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start("--grace", "60s")
    jobs = [site.tasks.long.enqueue(), site.tasks.long_isolated.enqueue()]
    for job in jobs:
        site.started(job)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in worker.log)
    asked = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - asked < 15
    for job in jobs:
        assert site.outcomes(job) == ["released"]
        assert (job.refresh().state, job.record.attempt) == (State.PENDING, 0)


def test_a_signal_to_every_process_of_a_service_is_one_request(fleet: MakeFleet) -> None:
    """As service managers send it: to the supervisor, its children and isolated processes."""
    site = fleet(TASKS)
    worker = site.start("--grace", "30s")
    jobs = [site.tasks.short.enqueue(), site.tasks.long_isolated.enqueue()]
    for job in jobs:
        site.started(job)
    for pid in worker.tree():
        send(pid, signal.SIGTERM)
    until(lambda: "stopping" in worker.log)
    time.sleep(1)
    site.go("short")
    site.go("long")
    assert worker.process.wait(60) == 0, worker.log
    assert [site.outcomes(job) for job in jobs] == [["succeeded"], ["succeeded"]]


def test_children_are_recycled_without_loss(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start("--max-jobs", 20, "--concurrency", 4)
    jobs: list[Job[None]] = []
    for recycled in range(1, 4):
        jobs += site.app.enqueue_many(site.tasks.quick.job() for _ in range(50))
        site.settled(jobs)
        until(lambda least=recycled: worker.log.count("recycled after") >= least)  # type: ignore[misc]
    records = site.settled(jobs)
    assert {(record.state, record.attempt) for record in records} == {(State.SUCCEEDED, 1)}
    assert "Traceback" not in worker.log


def test_a_child_that_holds_too_much_memory_is_recycled(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start("--max-memory", 120, "--concurrency", 1)
    jobs = [site.tasks.leak.enqueue() for _ in range(6)]
    assert {record.state for record in site.settled(jobs)} == {State.SUCCEEDED}
    until(lambda: "recycled" in worker.log or len({each.pid for each in site.effects()}) > 1)
    assert site.tasks.quick.enqueue().result(timeout=60) == 1


def test_reload_takes_the_new_code(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start("--reload", "--grace", "1s")
    assert site.tasks.quick.enqueue().result(timeout=60) == 1
    site.write_tasks(TASKS.replace("VERSION = 1", "VERSION = 2"))
    until(lambda: "changed: starting anew" in worker.log)
    assert site.tasks.quick.enqueue().result(timeout=60) == 2
    site.write_tasks(TASKS + "a line that is not (Python")
    worker.said("Waiting for a change")
    site.write_tasks(TASKS.replace("VERSION = 1", "VERSION = 3"))
    assert site.tasks.quick.enqueue().result(timeout=60) == 3
    assert worker.terminate() == 0


def test_a_removed_task_waits_for_a_worker_that_knows_it(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    site.write_tasks(TASKS.replace("def quick(", "def other("))
    worker = site.start()
    job = site.tasks.quick.enqueue()
    done = site.tasks.short.enqueue()
    site.go("short")
    site.finished(done)
    assert (job.refresh().state, job.record.attempt, job.record.token) == (State.PENDING, 0, 0)
    assert worker.terminate() == 0
    site.write_tasks(TASKS)
    site.start()
    assert job.result(timeout=60) == 1


ELSEWHERE = """
@app.task
def first() -> str:
    return str(second.enqueue().id)


@app.task
def second() -> str:
    return app.store.url


@app.task(isolate=True)
def isolated() -> str:
    second.enqueue()
    return app.store.url
"""


def test_a_worker_at_another_url_is_there_with_all_that_its_tasks_do(fleet: MakeFleet) -> None:
    """Also what they submit, in isolated processes too."""
    works = fleet(ELSEWHERE)
    other = f"sqlite:///{works.folder / 'other.db'}"
    elsewhere = App(other)
    worker = works.start("--url", other, ready=False)
    until(lambda: elsewhere.store.run(elsewhere.store.catalogue()), why="it publishes its tasks")
    jobs = [elsewhere.enqueue(name) for name in ("first", "isolated")]
    follower = elsewhere.get(jobs[0].result(timeout=60))
    assert follower.result(timeout=60) == elsewhere.store.url
    assert jobs[1].result(timeout=60) == elsewhere.store.url
    assert works.app.list() == []
    assert works.registered() == []
    assert worker.terminate() == 0
    elsewhere.close()
