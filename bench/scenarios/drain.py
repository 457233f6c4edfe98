"""Draining a full queue of jobs that do nothing, with `duly worker` processes.

The limit: bare loops that claim and archive, 200 jobs a batch.
"""

from __future__ import annotations

from bench.draining import CORES, bare_rate, duly_rate
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.sizes import Size

NAME = "drain"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second, by kind of task and number of processes."""
    jobs = size.drained
    limit = bare_rate(engine, jobs)
    kinds = [
        (f"async tasks, {CORES} processes", "noop", CORES, Target(0.5)),
        ("async tasks, 1 process", "noop", 1, None),
        (f"sync tasks, {CORES} processes", "noop_blocking", CORES, Target(0.5)),
    ]
    return [
        Figure(
            NAME,
            name,
            engine.name,
            "jobs/s",
            Better.HIGHER,
            duly_rate(engine, task, jobs, processes),
            limit,
            target,
        )
        for name, task, processes, target in kinds
    ]
