"""What workers that have nothing to do ask of the server. SQLite has no server that counts."""

from __future__ import annotations

import time

from bench.engines.protocol import CountsStatements, Engine
from bench.figures import Better, Figure, Target
from bench.processes import application, warm_workers
from bench.sizes import Size

NAME = "idle"
PROCESSES = 2
CALM = 1.0
"""Seconds until what belongs to the start is over."""


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Statements a second for each worker process, with and without heartbeats."""
    with engine.fresh() as database:
        if not isinstance(database, CountsStatements):
            return []
        with application(database) as app, warm_workers(database, app, PROCESSES):
            time.sleep(CALM)
            database.forget_statements()
            begun = time.monotonic()
            time.sleep(size.idle_seconds)
            statements = database.statements()
            process_seconds = (time.monotonic() - begun) * PROCESSES
    heartbeats = sum(calls for text, calls in statements.items() if _is_heartbeat(text))
    everything = sum(statements.values())
    counts = [
        ("each idle process", everything, None),
        ("the same, beyond heartbeats", everything - heartbeats, Target(0.3, of_ratio=False)),
    ]
    return [
        Figure(
            NAME,
            name,
            engine.name,
            "statements/s",
            Better.LOWER,
            count / process_seconds,
            target=target,
        )
        for name, count, target in counts
    ]


def _is_heartbeat(text: str) -> bool:
    return "UPDATE" in text and "SET lease_until" in text
