"""How late delayed jobs start, alone and with many others pending.

The limit: a bare claim round trip for one due job.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bench.draining import bare_client
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "lateness"
LEAD = 1.0
SPACING = 0.0101
"""Seconds between two due times; no multiple of a timer's period."""


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds between the due time and the first line of the task's code."""
    trips = _bare_claims(engine, size.delayed)
    figures = []
    for others in (0, size.others):
        late = _lateness(engine, size.delayed, others)
        for percent, target in ((50, None), (99, Target(3.0))):
            figures.append(
                Figure(
                    NAME,
                    f"lateness with {others:,} others, p{percent}",
                    engine.name,
                    "ms",
                    Better.LOWER,
                    percentile(late, percent),
                    percentile(trips, percent),
                    target,
                )
            )
    return figures


def _lateness(engine: Engine, jobs: int, others: int) -> list[float]:
    with engine.fresh() as database, application(database) as app:
        if others:
            database.load_pending(others, app.stamp.name)
        with warm_workers(database, app):
            begin = time.time() + LEAD
            dues = [int((begin + number * SPACING) * 1e6) for number in range(jobs)]
            app.app.enqueue_many(
                app.stamp.using(run_at=datetime.fromtimestamp(due / 1e6, UTC)).job(due)
                for due in dues
            )
            time.sleep(max(0.0, dues[-1] / 1e6 - time.time()))
            wait_for_finished(database, jobs)
            return [(started - due) / 1000 for due, started in database.stamps()]


def _bare_claims(engine: Engine, jobs: int) -> list[float]:
    trips = []
    with engine.fresh() as database, bare_client(database) as bare:
        for _ in range(jobs):
            bare.insert_one("{}")
            begun = time.perf_counter()
            claimed = bare.claim(1)
            trips.append((time.perf_counter() - begun) * 1000)
            bare.finish(claimed, "0")
    return trips
