"""Draining with batches of several sizes: what a worker process may run at a time bounds what it
claims at a time. The limit: bare loops with batches of that size."""

from __future__ import annotations

from bench.draining import bare_rate, duly_rate
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Point
from bench.sizes import Size

NAME = "batch"
JOBS_PER_SLOT = 200


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second for each size of batch; small batches are slow and get fewer jobs."""
    figures = []
    for batch in size.batches:
        jobs = min(size.drained_per_batch, batch * JOBS_PER_SLOT)
        figures.append(
            Figure(
                NAME,
                f"concurrency {batch}",
                engine.name,
                "jobs/s",
                Better.HIGHER,
                duly_rate(engine, "noop", jobs, concurrency=batch),
                bare_rate(engine, jobs, batch),
                point=Point("batch", batch),
            )
        )
    return figures
