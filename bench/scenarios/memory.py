"""What one worker process holds in memory, after its start and after many jobs.

The limit: a bare loop's process after as many jobs.
"""

from __future__ import annotations

import psutil

from bench.draining import bare_client, drain, ready_to_drain, texts
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application, bare_loops, wait_for_finished
from bench.sizes import Size

NAME = "memory"
CONCURRENCY = 10
MOST = Target(70.0, of_ratio=False)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Resident megabytes."""
    jobs = size.run_by_one_child
    with (
        engine.fresh() as database,
        application(database) as app,
        ready_to_drain(database, app, app.noop, jobs, 1, CONCURRENCY) as worker,
    ):
        (child,) = worker.children()
        after_start = child.memory_info().rss
        drain(database, app, jobs)
        after_jobs = child.memory_info().rss
    with (
        engine.fresh() as database,
        bare_client(database) as bare,
        bare_loops(database, 1, CONCURRENCY) as (pid,),
    ):
        bare_start = psutil.Process(pid).memory_info().rss
        bare.insert(texts(jobs))
        bare.notify()
        wait_for_finished(database, jobs)
        bare_jobs = psutil.Process(pid).memory_info().rss
    measured = [
        ("one child, after its start", after_start, bare_start),
        (f"one child, after {jobs:,} jobs", after_jobs, bare_jobs),
    ]
    return [
        Figure(NAME, name, engine.name, "MB", Better.LOWER, duly / 1e6, limit / 1e6, MOST)
        for name, duly, limit in measured
    ]
