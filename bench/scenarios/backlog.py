"""What a backlog of pending jobs costs: claims, submissions and drains beside it.

The limits are those of a bare engine without a backlog. How claims and submissions grow is told by
another database without one, in turns: minutes apart the same machine is not equally fast.
"""

from __future__ import annotations

from bench.application import Application
from bench.claiming import CLAIMED, bare_claims, claims_in_turns
from bench.draining import bare_client, bare_rate, drain, ready_to_drain
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Point, Target, percentile
from bench.processes import application
from bench.sizes import Size

NAME = "backlog"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds a claim, jobs a second in submissions and drains, for each backlog."""
    with engine.fresh() as database, bare_client(database) as bare:
        bare_trips, bare_submission = bare_claims(bare, size.claims)
    bare_drain = bare_rate(engine, size.drained_per_backlog)
    figures: list[Figure] = []
    memory: list[float] = []
    with (
        engine.fresh() as database,
        application(database) as app,
        engine.fresh() as empty,
        application(empty) as app_beside_none,
    ):
        loaded = 0
        for backlog in size.backlogs:
            if backlog > loaded:
                database.load_pending(backlog - loaded, app.noop.name)
                loaded = backlog
            compared = claims_in_turns(app, app_beside_none, size.claims)
            submission = percentile(compared.rates, 50)
            figures += [
                Figure(
                    NAME,
                    f"claim of {CLAIMED}, {backlog:,} pending, p{percent}",
                    engine.name,
                    "ms",
                    Better.LOWER,
                    percentile(compared.trips, percent),
                    percentile(bare_trips, percent),
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
            ]
            drained, megabytes = _drain(engine, database, app, size, backlog, bare_drain)
            figures.append(drained)
            memory.append(megabytes)
    most = size.backlogs[-1]
    submission_growth = percentile(compared.usual_rates, 50) / submission
    growths = [
        (f"time of a claim, {most:,} by 0 pending", compared.growth(50), 1.3),
        (f"time of submission, {most:,} by 0 pending", submission_growth, 1.5),
        (f"memory of a child, {most:,} by 0 pending", memory[-1] / memory[0], 1.1),
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
) -> tuple[Figure, float]:
    """The rate of a drain, and the resident megabytes of the largest worker process after it."""
    jobs = size.drained_per_backlog
    with ready_to_drain(database, app, app.noop, jobs) as worker:
        rate = drain(database, app, jobs)
        memory = max(child.memory_info().rss for child in worker.children()) / 1e6
    figure = Figure(
        NAME,
        f"drain, {backlog:,} pending",
        engine.name,
        "jobs/s",
        Better.HIGHER,
        rate,
        limit,
        point=Point("backlog", backlog),
    )
    return figure, memory
