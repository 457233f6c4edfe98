"""A drain of jobs that lie in many lanes: as many queues, and four priorities. They are due at one
moment, at which the workers are up and warm.

There is no limit to compare with: what counts is the rate by that of one lane.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from bench.draining import BATCH, CORES
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import TookTooLong, application, wait_for_finished, warm_workers
from bench.sizes import Size
from duly.model.job import Priority

NAME = "lanes"
QUEUES = 25
LEAD = timedelta(seconds=3)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second of one lane and of many, and what that is of one's."""
    lanes = QUEUES * len(Priority)
    one = _rate(engine, size.drained, queues=1, priorities=[Priority.NORMAL])
    many = _rate(engine, size.drained, queues=QUEUES, priorities=list(Priority))
    return [
        Figure(NAME, "one lane", engine.name, "jobs/s", Better.HIGHER, one),
        Figure(NAME, f"{lanes} lanes", engine.name, "jobs/s", Better.HIGHER, many),
        Figure(
            NAME,
            f"{lanes} lanes by one",
            engine.name,
            "times",
            Better.HIGHER,
            many / one,
            target=Target(0.5, of_ratio=False),
        ),
    ]


def _rate(engine: Engine, jobs: int, queues: int, priorities: list[Priority]) -> float:
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app, CORES, BATCH),
    ):
        due = datetime.now(UTC) + LEAD
        tasks = [
            app.noop.using(queue=f"queue-{queue}", priority=priority, run_at=due)
            for queue in range(queues)
            for priority in priorities
        ]
        app.app.enqueue_many([random.choice(tasks).job() for _ in range(jobs)])
        if datetime.now(UTC) > due:
            raise TookTooLong(f"{jobs} jobs were not submitted within {LEAD.total_seconds():g} s")
        wait_for_finished(database, jobs)
        span = database.span()
    return jobs / (span.last_finished - span.first_started)
