"""What a job costs the database: bytes written for durability in bulk submission and in a drain
and, where the server counts them, statements.

On PostgreSQL the bytes are those of the write-ahead log; on SQLite all that the processes hand to
the kernel: log, checkpoints, and temporary files such as the journals of savepoints. The limit:
bare clients and loops.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bench.draining import BATCH, CORES, bare_client, drain, fill, ready_to_drain, texts
from bench.engines.protocol import CountsStatements, Database, Engine
from bench.figures import Better, Figure
from bench.processes import application, bare_loops, wait_for_finished
from bench.sizes import Size

NAME = "writes"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job. Without statements where nobody counts them."""

    submitted_bytes: float
    drained_bytes: float
    statements: float | None


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Bytes and statements a job."""
    duly, bare = _duly(engine, size.counted), _bare(engine, size.counted)
    figures = [
        ("written by submission in bulk", "bytes/job", duly.submitted_bytes, bare.submitted_bytes),
        ("written by claim and settle", "bytes/job", duly.drained_bytes, bare.drained_bytes),
    ]
    if duly.statements is not None and bare.statements is not None:
        name = f"claim and settle, concurrency {BATCH}"
        figures.append((name, "statements/job", duly.statements, bare.statements))
    return [
        Figure(NAME, name, engine.name, unit, Better.LOWER, value, limit)
        for name, unit, value, limit in figures
    ]


def _duly(engine: Engine, jobs: int) -> Cost:
    with engine.fresh() as database, application(database) as app:
        app.noop.enqueue()
        before = database.written_bytes([os.getpid()])
        fill(app, app.noop, jobs)
        submitted = (database.written_bytes([os.getpid()]) - before) / jobs
    with (
        engine.fresh() as database,
        application(database) as app,
        ready_to_drain(database, app, app.noop, jobs) as worker,
    ):
        processes = [child.pid for child in worker.children()]
        if isinstance(database, CountsStatements):
            database.forget_statements()
        before = database.written_bytes(processes)
        drain(database, app, jobs)
        drained = (database.written_bytes(processes) - before) / jobs
        return Cost(submitted, drained, _statements(database, jobs))


def _bare(engine: Engine, jobs: int) -> Cost:
    with engine.fresh() as database, bare_client(database) as bare:
        bare.insert_one("{}")
        before = database.written_bytes([os.getpid()])
        bare.insert(texts(jobs))
        submitted = (database.written_bytes([os.getpid()]) - before) / jobs
        if isinstance(database, CountsStatements):
            database.forget_statements()
        before = database.written_bytes([])
        with bare_loops(database, min(CORES, engine.writers), BATCH) as processes:
            wait_for_finished(database, jobs)
            drained = (database.written_bytes(processes) - before) / jobs
            return Cost(submitted, drained, _statements(database, jobs))


def _statements(database: Database, jobs: int) -> float | None:
    if not isinstance(database, CountsStatements):
        return None
    return sum(database.statements().values()) / jobs
