"""A transaction that somebody else leaves open: on PostgreSQL nothing that was removed since can be
vacuumed, on SQLite the log cannot begin anew. What counts is how much is removed meanwhile, so the
jobs of minutes are run as fast as they can be.

The limit: bare loops beside the same open transaction.
"""

from __future__ import annotations

from bench.claiming import CLAIMED, bare_claims, duly_claims
from bench.draining import BATCH, CORES, QUEUE, bare_client, drain, fill, texts
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "horizon"
ROUNDS = 4
PERCENTS = (50, 99)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """The time of a claim before and after, and the rate of the last jobs by that of the first."""
    usual, held, rates = _duly(engine, size)
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
            ("as usual", usual, bare_usual),
            (f"after {jobs:,} jobs", held, bare_held),
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
            percentile(held, 99) / percentile(usual, 99),
            percentile(bare_held, 99) / percentile(bare_usual, 99),
            Target(3.0, of_ratio=False),
        ),
        Figure(
            NAME,
            f"drain, last of {jobs:,} jobs by first",
            engine.name,
            "times",
            Better.HIGHER,
            rates[-1] / rates[0],
            target=Target(0.9, of_ratio=False),
        ),
    ]


def _duly(engine: Engine, size: Size) -> tuple[list[float], list[float], list[float]]:
    rates = []
    with engine.fresh() as database, application(database) as app:
        store = app.app.store
        usual, _ = duly_claims(app, size.claims)
        with database.horizon_held():
            with warm_workers(database, app, CORES, BATCH):
                for _ in range(ROUNDS):
                    store.run(store.pause_queue(QUEUE))
                    fill(app, app.noop, size.behind_horizon // ROUNDS)
                    rates.append(drain(database, app, size.behind_horizon // ROUNDS))
            held, _ = duly_claims(app, size.claims)
    return usual, held, rates


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
