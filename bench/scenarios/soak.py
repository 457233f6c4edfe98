"""A steady rate for long, with retention on: does anything grow? One job of a hundred tells when
its code ran, and every ten seconds somebody looks. The first third is left out: files, caches and
heaps find their sizes then.

There is no limit to compare with: each figure is the last third by the second.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID

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
LOOK = 10.0
"""How often somebody looks, in seconds: well before what finished is forgotten."""
TELLING = 100
PARTS = 3
NO_GROWTH = Target(1.25, of_ratio=False)
LONG = 1_800.0
"""How many seconds it takes until old jobs are forgotten as fast as new ones come."""


@dataclass(slots=True)
class _Part:
    """What a third of the time came to."""

    rate: float = 0.0
    latencies: list[float] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """The rate, and how latency, tables and memory of the last third compare."""
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
        ("submit to start, p99", _p99(last) / _p99(before), NO_GROWTH),
        ("tables on the disk", max(last.disk) / max(before.disk), settled),
        ("memory of the workers", max(last.memory) / max(before.memory), NO_GROWTH),
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


def _p99(part: _Part) -> float:
    return percentile(part.latencies, 99)


def _part(database: Database, app: Application, worker: WorkerProcess, size: Size) -> _Part:
    """Submit on time for a third of it. A client that falls behind submits the more at once."""
    part = _Part()
    begun = looked = time.time()
    told: list[tuple[int, UUID]] = []
    submitted = 0
    while (passed := time.time() - begun) < size.soak_seconds / PARTS:
        wanted = int(passed * size.soak_rate) - submitted
        now = time.time_ns() // 1000
        telling = [app.stamp.job(now) for _ in range(max(1, wanted // TELLING))]
        quiet = [app.noop.job() for _ in range(wanted - len(telling))]
        jobs = app.app.enqueue_many(telling + quiet)
        told += [(now, job.id) for job in jobs[: len(telling)]]
        submitted += len(jobs)
        if time.time() - looked > LOOK:
            told = _look(part, database, app, worker, told)
            looked = time.time()
        time.sleep(PERIOD)
    part.rate = (submitted - _waiting(app)) / (time.time() - begun)
    _look(part, database, app, worker, told)
    return part


def _look(
    part: _Part,
    database: Database,
    app: Application,
    worker: WorkerProcess,
    told: list[tuple[int, UUID]],
) -> list[tuple[int, UUID]]:
    """Note how things are; answers with those that have not told yet."""
    part.disk.append(database.table_bytes())
    part.memory.append(sum(child.memory_info().rss for child in worker.children()))
    store = app.app.store
    records = store.run(store.get([job_id for _, job_id in told]))
    waiting = []
    for (given, job_id), record in zip(told, records, strict=True):
        if record is None or record.result is None:
            waiting.append((given, job_id))
        else:
            part.latencies.append((int(record.result) - given) / 1000)
    return waiting


def _waiting(app: Application) -> int:
    store = app.app.store
    return sum(count.jobs for count in store.run(store.counts()) if count.state.value == "pending")
