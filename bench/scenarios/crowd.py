"""Many worker processes on one queue, far more than there are processors. The limit: as many bare
loops as are fastest together."""

from __future__ import annotations

from bench.draining import CORES, bare_rate, duly_rate
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.sizes import Size

NAME = "crowd"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second of a drain, and how that compares with one process for each processor."""
    jobs = size.drained_by_crowd
    limit = bare_rate(engine, jobs)
    few = duly_rate(engine, "noop", jobs, CORES)
    many = duly_rate(engine, "noop", jobs, size.crowd)
    return [
        Figure(
            NAME,
            f"{size.crowd} processes",
            engine.name,
            "jobs/s",
            Better.HIGHER,
            many,
            limit,
        ),
        Figure(
            NAME,
            f"{size.crowd} processes by {CORES}",
            engine.name,
            "times",
            Better.HIGHER,
            many / few,
            target=Target(0.5, of_ratio=False),
        ),
    ]
