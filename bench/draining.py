"""Draining a queue: Duly's workers, or bare loops, with every process up before the first start."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bench.application import Application
from bench.engines.protocol import Bare, Database, Engine
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from duly.client.task import Task
from tests.support.fleet import WorkerProcess

QUEUE = "default"
BATCH = 200
CORES = os.cpu_count() or 1


def fill(app: Application, task: Task[[], None], jobs: int) -> float:
    """Submit so many jobs in bulk; answers how many a second."""
    begun = time.perf_counter()
    app.app.enqueue_many(task.job() for _ in range(jobs))
    return jobs / (time.perf_counter() - begun)


@contextmanager
def ready_to_drain(
    database: Database,
    app: Application,
    task: Task[[], None],
    jobs: int,
    processes: int = CORES,
    concurrency: int = BATCH,
) -> Iterator[WorkerProcess]:
    """Warm workers before a full queue that is paused."""
    store = app.app.store
    store.run(store.pause_queue(QUEUE))
    fill(app, task, jobs)
    with warm_workers(database, app, processes, concurrency) as worker:
        yield worker


def drain(database: Database, app: Application, jobs: int) -> float:
    """Let the workers begin, wait for the end; answers jobs a second, from the first start to the
    last settlement by the store's own times."""
    before, since = database.finished(), time.time()
    store = app.app.store
    store.run(store.resume_queue(QUEUE))
    wait_for_finished(database, before + jobs)
    span = database.span(since)
    return jobs / (span.last_finished - span.first_started)


def duly_rate(
    engine: Engine, task: str, jobs: int, processes: int = CORES, concurrency: int = BATCH
) -> float:
    """Jobs a second of `duly worker` in a drain."""
    with engine.fresh() as database, application(database) as app:
        drained = getattr(app, task)
        with ready_to_drain(database, app, drained, jobs, processes, concurrency):
            return drain(database, app, jobs)


def bare_rate(engine: Engine, jobs: int, batch: int = BATCH) -> float:
    """Jobs a second of bare loops in a drain."""
    with engine.fresh() as database, bare_client(database) as bare:
        with bare_loops(database, engine.writers, batch):
            bare.insert(texts(jobs))
            bare.notify()
            wait_for_finished(database, jobs)
        span = database.span()
        return jobs / (span.last_finished - span.first_started)


@contextmanager
def bare_client(database: Database) -> Iterator[Bare]:
    """A bare client on a database with the bare tables in it."""
    bare = database.bare()
    try:
        bare.create()
        yield bare
    finally:
        bare.close()


def texts(jobs: int) -> Iterable[str]:
    """The arguments of so many jobs without any."""
    return ("{}" for _ in range(jobs))
