"""Submitting and running at once: one client submits batches of 200 as fast as it can while
workers run them. The limit: a bare client and bare loops that do the same, in turns."""

from __future__ import annotations

from collections.abc import Callable
from statistics import harmonic_mean

from bench.draining import BATCH, CORES, bare_client, fill
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Target
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "steady"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second, from the first submission to the last settlement."""
    jobs = size.steady // BATCH * BATCH or BATCH
    turns = [(_duly_rate(engine, jobs), _bare_rate(engine, jobs)) for _ in range(size.turns)]
    duly, limit = map(harmonic_mean, zip(*turns, strict=True))
    name = "submit and run"
    return [Figure(NAME, name, engine.name, "jobs/s", Better.HIGHER, duly, limit, Target(0.5))]


def _duly_rate(engine: Engine, jobs: int) -> float:
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app, CORES, BATCH),
    ):
        return _rate(database, jobs, lambda: fill(app, app.noop, BATCH))


def _bare_rate(engine: Engine, jobs: int) -> float:
    with (
        engine.fresh() as database,
        bare_client(database) as bare,
        bare_loops(database, engine.writers, BATCH),
    ):

        def insert() -> None:
            bare.insert(["{}"] * BATCH)
            bare.notify()

        return _rate(database, jobs, insert)


def _rate(database: Database, jobs: int, submit_batch: Callable[[], object]) -> float:
    for _ in range(jobs // BATCH):
        submit_batch()
    wait_for_finished(database, jobs)
    span = database.span()
    return jobs / (span.last_finished - span.first_created)
