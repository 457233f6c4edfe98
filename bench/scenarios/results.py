"""Waiting for results: a client that submits a job, waits for its result and submits the next; and
one that asks for the results of jobs that have ended, one after another.

The limits: the start of the same jobs, and one look at each of the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import PATIENCE, application, warm_workers
from bench.sizes import Size

NAME = "results"
ROUND, ENDED = Target(5.0), Target(20.0)
"""Targets of our own, which tell a nap from work."""


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds, the medians."""
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app),
    ):

        def submit_and_wait(given: int) -> int:
            return app.stamp.enqueue(given).result(timeout=PATIENCE)

        rounds, starts = [], []
        for _ in range(size.on_idle_system):
            given = time.time_ns() // 1000
            starts.append((submit_and_wait(given) - given) / 1000)
            rounds.append((time.time_ns() // 1000 - given) / 1000)
        jobs = app.app.list(task=app.stamp.name, limit=size.on_idle_system)
        results = [_milliseconds(partial(job.result, timeout=PATIENCE)) for job in jobs]
        looks = [_milliseconds(job.refresh) for job in jobs]
    return [
        _figure("submit to result, one after another", engine, rounds, starts, ROUND),
        _figure("results of ended jobs", engine, results, looks, ENDED),
    ]


def _milliseconds(ask: Callable[[], object]) -> float:
    begun = time.perf_counter()
    ask()
    return 1000 * (time.perf_counter() - begun)


def _figure(
    name: str, engine: Engine, duly: list[float], limit: list[float], target: Target
) -> Figure:
    values = percentile(duly, 50), percentile(limit, 50)
    return Figure(NAME, f"{name}, p50", engine.name, "ms", Better.LOWER, *values, target)
