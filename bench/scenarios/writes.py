"""What a job costs the database in a drain: bytes written for durability and, where the server
counts them, statements.

On PostgreSQL the bytes are those of the write-ahead log; on SQLite all that the worker processes
hand to the kernel: log, checkpoints, and temporary files such as the journals of savepoints. The
limit: bare loops.
"""

from __future__ import annotations

from bench.draining import BATCH, CORES, bare_client, drain, ready_to_drain, texts
from bench.engines.protocol import CountsStatements, Engine
from bench.figures import Better, Figure
from bench.processes import application, bare_loops, wait_for_finished
from bench.sizes import Size

NAME = "writes"

Cost = tuple[float, float | None]


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Bytes and statements a job."""
    jobs = size.counted
    duly_bytes, duly_statements = _duly(engine, jobs)
    bare_bytes, bare_statements = _bare(engine, jobs)
    figures = [
        Figure(
            NAME,
            "written by claim and settle",
            engine.name,
            "bytes/job",
            Better.LOWER,
            duly_bytes,
            bare_bytes,
        )
    ]
    if duly_statements is not None:
        figures.append(
            Figure(
                NAME,
                f"claim and settle, concurrency {BATCH}",
                engine.name,
                "statements/job",
                Better.LOWER,
                duly_statements,
                bare_statements,
            )
        )
    return figures


def _duly(engine: Engine, jobs: int) -> Cost:
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
        written = (database.written_bytes(processes) - before) / jobs
        if not isinstance(database, CountsStatements):
            return written, None
        return written, sum(database.statements().values()) / jobs


def _bare(engine: Engine, jobs: int) -> Cost:
    with engine.fresh() as database, bare_client(database) as bare:
        bare.insert(texts(jobs))
        if isinstance(database, CountsStatements):
            database.forget_statements()
        before = database.written_bytes([])
        with bare_loops(database, min(CORES, engine.writers), BATCH) as processes:
            wait_for_finished(database, jobs)
            written = (database.written_bytes(processes) - before) / jobs
            if not isinstance(database, CountsStatements):
                return written, None
            return written, sum(database.statements().values()) / jobs
