"""A steady rate for long, with retention on: does anything grow? One job of a hundred tells when
its code ran. The first third is left out: files, caches and heaps find their sizes then.

There is no limit to compare with: each figure is the last third by the second.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.application import Application
from bench.draining import BATCH, CORES
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, warm_workers
from bench.sizes import Size
from tests.support.fleet import WorkerProcess

NAME = "soak"
RETENTION = {"DULY_KEEP_SUCCEEDED": "1m"}
PERIOD = 0.05
TELLING = 100
PARTS = 3
NO_GROWTH = Target(1.25, of_ratio=False)
LONG = 1_800.0
"""How many seconds it takes until old jobs are forgotten as fast as new ones come."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a third of the time came to."""

    rate: float
    latency: float
    live_bytes: float
    memory: float


def measure(engine: Engine, size: Size) -> list[Figure]:
    """The rate, and how latency, live tables and memory of the last third compare."""
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app, CORES, BATCH, RETENTION) as worker,
    ):
        parts = [_part(database, app, worker, size) for _ in range(PARTS)]
    before, last = parts[-2:]
    name = f"{size.soak_rate:,}/s for {size.soak_seconds:g} s"
    settled = NO_GROWTH if size.soak_seconds >= LONG else None
    compared = [
        ("submit to start, p99", last.latency / before.latency, NO_GROWTH),
        ("live jobs on the disk", last.live_bytes / before.live_bytes, settled),
        ("memory of the workers", last.memory / before.memory, NO_GROWTH),
    ]
    return [
        Figure(NAME, f"{name}, run", engine.name, "jobs/s", Better.HIGHER, last.rate),
        *[
            Figure(
                NAME,
                f"{name}, {what}",
                engine.name,
                "times",
                Better.LOWER,
                growth,
                target=target,
            )
            for what, growth, target in compared
        ],
    ]


def _part(database: Database, app: Application, worker: WorkerProcess, size: Size) -> _Part:
    """Submit on time for a third of it. A client that falls behind submits the more at once."""
    begun = time.time()
    seconds = size.soak_seconds / PARTS
    told = []
    submitted = 0
    while (passed := time.time() - begun) < seconds:
        wanted = int(passed * size.soak_rate) - submitted
        now = time.time_ns() // 1000
        telling = [app.stamp.job(now) for _ in range(max(1, wanted // TELLING))]
        quiet = [app.noop.job() for _ in range(wanted - len(telling))]
        jobs = app.app.enqueue_many(telling + quiet)
        told += [(now, job.id) for job in jobs[: len(telling)]]
        submitted += len(jobs)
        time.sleep(PERIOD)
    store = app.app.store
    records = store.run(store.get([job_id for _, job_id in told]))
    latencies = [
        (int(record.result) - given) / 1000
        for (given, _), record in zip(told, records, strict=True)
        if record is not None and record.result is not None
    ]
    waiting = sum(
        count.jobs for count in store.run(store.counts()) if count.state.value == "pending"
    )
    return _Part(
        rate=(submitted - waiting) / (time.time() - begun),
        latency=percentile(latencies, 99),
        live_bytes=database.live_bytes(),
        memory=sum(child.memory_info().rss for child in worker.children()),
    )
