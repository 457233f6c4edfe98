"""What a backlog of pending jobs costs: claims, submissions and drains beside it.

The limits are those of a bare engine without a backlog.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

from bench.application import Application
from bench.draining import bare_client, bare_rate, drain, fill, ready_to_drain, texts
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Point, Target, percentile
from bench.processes import application
from bench.sizes import Size
from duly.model.identifiers import new_id
from duly.model.query import Demand
from duly.model.settlement import succeed
from duly.model.worker import Worker

NAME = "backlog"
CLAIMED = 100
"""Jobs a claim."""

WARMING = 10
"""Claims before those that count: connections open, statements get prepared and planned."""


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds a claim, jobs a second in submissions and drains, for each backlog."""
    bare_claims, bare_submission = _bare_claims(engine, size.claims)
    bare_drain = bare_rate(engine, size.drained_per_backlog)
    figures: list[Figure] = []
    medians: list[float] = []
    submissions: list[float] = []
    with engine.fresh() as database, application(database) as app:
        loaded = 0
        for backlog in size.backlogs:
            if backlog > loaded:
                database.load_pending(backlog - loaded, app.noop.name)
                loaded = backlog
            claims, submission = _duly_claims(app, size.claims)
            medians.append(percentile(claims, 50))
            submissions.append(submission)
            figures += [
                Figure(
                    NAME,
                    f"claim of {CLAIMED}, {backlog:,} pending, p{percent}",
                    engine.name,
                    "ms",
                    Better.LOWER,
                    percentile(claims, percent),
                    percentile(bare_claims, percent),
                )
                for percent in (50, 99)
            ]
            figures += [
                Figure(
                    NAME,
                    f"submission in bulk, {backlog:,} pending",
                    engine.name,
                    "jobs/s",
                    Better.HIGHER,
                    submission,
                    bare_submission,
                ),
                _drain(engine, database, app, size, backlog, bare_drain),
            ]
    most = size.backlogs[-1]
    growths = [
        (f"time of a claim, {most:,} by 0 pending", medians[-1] / medians[0], 1.3),
        (f"time of submission, {most:,} by 0 pending", submissions[0] / submissions[-1], 1.5),
    ]
    return figures + [
        Figure(
            NAME,
            name,
            engine.name,
            "times",
            Better.LOWER,
            growth,
            target=Target(bound, of_ratio=False),
        )
        for name, growth, bound in growths
    ]


def _drain(
    engine: Engine,
    database: Database,
    app: Application,
    size: Size,
    backlog: int,
    limit: float,
) -> Figure:
    jobs = size.drained_per_backlog
    with ready_to_drain(database, app, app.noop, jobs):
        rate = drain(database, app, jobs)
    return Figure(
        NAME,
        f"drain, {backlog:,} pending",
        engine.name,
        "jobs/s",
        Better.HIGHER,
        rate,
        limit,
        point=Point("backlog", backlog),
    )


def _duly_claims(app: Application, claims: int) -> tuple[list[float], float]:
    """Submit, claim by the store's own verb, as a worker does, and settle what was claimed;
    answers the milliseconds of each claim, and jobs a second of the submission."""
    store = app.app.store
    worker = Worker(
        id=new_id(),
        name="bench",
        machine="bench",
        pid=os.getpid(),
        process_started=0,
        queues=(),
        tasks=(app.noop.name,),
        version="0",
    )
    store.run(store.register_worker(worker, timedelta(hours=1)))
    demand = Demand(worker=worker.id, queues=(), tasks=worker.tasks, limit=CLAIMED)
    submission = fill(app, app.noop, (WARMING + claims) * CLAIMED)
    trips = []
    for _ in range(WARMING + claims):
        begun = time.perf_counter()
        jobs = store.run(store.claim(demand))
        trips.append((time.perf_counter() - begun) * 1000)
        store.run(store.settle([succeed(job.id, job.token, None) for job in jobs]))
    store.run(store.reap([worker.id], "the benchmark has ended", expired_only=False))
    return trips[WARMING:], submission


def _bare_claims(engine: Engine, claims: int) -> tuple[list[float], float]:
    trips = []
    with engine.fresh() as database, bare_client(database) as bare:
        begun = time.perf_counter()
        bare.insert(texts((WARMING + claims) * CLAIMED))
        submission = (WARMING + claims) * CLAIMED / (time.perf_counter() - begun)
        for _ in range(WARMING + claims):
            begun = time.perf_counter()
            jobs = bare.claim(CLAIMED)
            trips.append((time.perf_counter() - begun) * 1000)
            bare.finish(jobs, "null")
    return trips[WARMING:], submission
