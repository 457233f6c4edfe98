"""A transaction that somebody else leaves open: on PostgreSQL nothing that was removed since can be
vacuumed, on SQLite the log cannot begin anew. What counts is how much is removed meanwhile, so the
jobs of minutes are run as fast as they can be, in turns with another database without such a
transaction.

The limit: bare loops beside the same open transaction.
"""

from __future__ import annotations

from bench.application import Application
from bench.claiming import CLAIMED, Compared, bare_claims, claims_in_turns
from bench.draining import BATCH, CORES, QUEUE, bare_client, drain, fill, texts
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "horizon"
ROUNDS = 4
PERCENTS = (50, 99)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """The time of a claim elsewhere and here, and the rate of the later jobs by that of as
    many elsewhere."""
    claims, drained = _duly(engine, size)
    bare_usual, bare_held = _bare(engine, size)
    jobs = size.behind_horizon
    figures = [
        Figure(
            NAME,
            f"claim of {CLAIMED} {when}, p{percent}",
            engine.name,
            "ms",
            Better.LOWER,
            percentile(duly, percent),
            percentile(bare, percent),
        )
        for when, duly, bare in (
            ("as usual", claims.usual_trips, bare_usual),
            (f"after {jobs:,} jobs", claims.trips, bare_held),
        )
        for percent in PERCENTS
    ]
    return [
        *figures,
        Figure(
            NAME,
            f"claim p99, after {jobs:,} jobs by usual",
            engine.name,
            "times",
            Better.LOWER,
            claims.growth(99),
            percentile(bare_held, 99) / percentile(bare_usual, 99),
            Target(3.0, of_ratio=False),
        ),
        Figure(
            NAME,
            f"drain, last half of {jobs:,} jobs by as usual",
            engine.name,
            "times",
            Better.HIGHER,
            drained,
            target=Target(0.9, of_ratio=False),
        ),
    ]


def _duly(engine: Engine, size: Size) -> tuple[Compared, float]:
    rates: list[float] = []
    usual_rates: list[float] = []
    with (
        engine.fresh() as database,
        application(database) as app,
        engine.fresh() as other,
        application(other) as app_of_other,
        database.horizon_held(),
    ):
        with (
            warm_workers(database, app, CORES, BATCH),
            warm_workers(other, app_of_other, CORES, BATCH),
        ):
            for _ in range(ROUNDS):
                rates.append(_drain(database, app, size.behind_horizon // ROUNDS))
                usual_rates.append(_drain(other, app_of_other, size.behind_horizon // ROUNDS))
        claims = claims_in_turns(app, app_of_other, size.claims)
    return claims, sum(rates[ROUNDS // 2 :]) / sum(usual_rates[ROUNDS // 2 :])


def _drain(database: Database, app: Application, jobs: int) -> float:
    store = app.app.store
    store.run(store.pause_queue(QUEUE))
    fill(app, app.noop, jobs)
    return drain(database, app, jobs)


def _bare(engine: Engine, size: Size) -> tuple[list[float], list[float]]:
    with engine.fresh() as database, bare_client(database) as bare:
        usual, _ = bare_claims(bare, size.claims)
        before = database.finished()
        with database.horizon_held():
            bare.insert(texts(size.behind_horizon))
            with bare_loops(database, engine.writers, BATCH):
                wait_for_finished(database, before + size.behind_horizon)
            held, _ = bare_claims(bare, size.claims)
    return usual, held
