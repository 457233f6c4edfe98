"""From submission to start on an idle system: from before `enqueue` is called to the first line of
the task's code in a worker process.

The limit: one durable insert, one notification, one claim round trip.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from bench.draining import bare_client
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "latency"
PAUSE = (0.01, 0.03)
"""Seconds between two submissions, uneven so that no timer falls into step with them."""

TURNS = 8
BOUNDS = {50: Target(2.0), 99: Target(4.0)}


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds, the median and the 99th percentile, in turns with those of the limit: a p99 is
    what the machine does to the slowest few, and that changes from one second to the next."""
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app),
        engine.fresh() as other,
        bare_client(other) as bare,
        bare_loops(other, 1, 10),
    ):

        def insert(given: int) -> None:
            bare.insert_one(str(given))
            bare.notify()

        in_a_turn = max(1, size.on_idle_system // TURNS)
        for _ in range(TURNS):
            submit_one_by_one(app.stamp.enqueue, in_a_turn)
            submit_one_by_one(insert, in_a_turn)
        duly, limit = (_latencies(each, TURNS * in_a_turn) for each in (database, other))
    return [
        Figure(
            NAME,
            f"submit to start, idle, p{percent}",
            engine.name,
            "ms",
            Better.LOWER,
            percentile(duly, percent),
            percentile(limit, percent),
            target,
        )
        for percent, target in BOUNDS.items()
    ]


def submit_one_by_one(submit: Callable[[int], object], jobs: int) -> None:
    """Submit with pauses, each job with the microsecond at which its submission began."""
    for _ in range(jobs):
        submit(time.time_ns() // 1000)
        time.sleep(random.uniform(*PAUSE))


def _latencies(database: Database, jobs: int) -> list[float]:
    wait_for_finished(database, jobs)
    return [(started - given) / 1000 for given, started in database.stamps()]
