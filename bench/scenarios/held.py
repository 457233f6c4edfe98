"""Minutes at a steady rate while somebody else leaves a transaction open, in real time: does the
rate hold, and do jobs start as soon as elsewhere? The same goes on at the same time in another
database, without such a transaction, so that the machine is the same for both. `horizon` has more
jobs in less time. One job of ten tells when its code ran; claims are timed where the others were.

There is no limit to compare with: what counts is the last third by that of the other database.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from bench.application import Application
from bench.claiming import CLAIMED, claims_in_turns
from bench.engines.protocol import Database, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "held"
RATE = 1_000
CONCURRENCY = 50
PERIOD = 0.01
TELLING = 10
MOST = 3.0
HOLDS = 0.98


def measure(engine: Engine, size: Size) -> list[Figure]:
    """How many of the jobs ran in their time, when they started, and what a claim takes."""
    seconds = size.held_seconds
    with (
        engine.fresh() as database,
        application(database) as app,
        engine.fresh() as other,
        application(other) as app_of_other,
    ):
        with database.horizon_held():
            with (
                warm_workers(database, app, concurrency=CONCURRENCY),
                warm_workers(other, app_of_other, concurrency=CONCURRENCY),
                ThreadPoolExecutor(2) as clients,
            ):
                begun = time.time()
                submitted = list(
                    clients.map(lambda each: _submit(each, begun, seconds), (app, app_of_other))
                )
                wait_for_finished(database, submitted[0])
                wait_for_finished(other, submitted[1])
            claims = claims_in_turns(app, app_of_other, size.claims)
        since = begun + seconds * 2 / 3
        behind, beside = _latencies(database, since), _latencies(other, since)
        started = sum(since <= ran / 1e6 < begun + seconds for _, ran in database.stamps())
    name = f"{RATE:,}/s for {seconds:g} s"
    figures = [
        Figure(
            NAME,
            f"{name}, submit to start, p{percent}",
            engine.name,
            "ms",
            Better.LOWER,
            percentile(behind, percent),
        )
        for percent in (50, 99)
    ]
    return [
        Figure(
            NAME,
            f"{name}, run in time",
            engine.name,
            "times",
            Better.HIGHER,
            started / (RATE / TELLING * seconds / 3),
            target=Target(HOLDS, of_ratio=False),
        ),
        *figures,
        Figure(
            NAME,
            f"{name}, submit to start, p99 by elsewhere",
            engine.name,
            "times",
            Better.LOWER,
            percentile(behind, 99) / percentile(beside, 99),
            target=Target(MOST, of_ratio=False),
        ),
        Figure(
            NAME,
            f"claim of {CLAIMED}, p99, after {name} by elsewhere",
            engine.name,
            "times",
            Better.LOWER,
            claims.growth(99),
            target=Target(MOST, of_ratio=False),
        ),
    ]


def _submit(app: Application, begun: float, seconds: float) -> int:
    """Submit on time, some at once; answers how many. Who falls behind submits the more."""
    submitted, jobs = 0, int(seconds * RATE)
    while submitted < jobs:
        due = min(jobs, int((time.time() - begun) * RATE))
        now = time.time_ns() // 1000
        app.app.enqueue_many(
            app.noop.job() if number % TELLING else app.stamp.job(now)
            for number in range(submitted, due)
        )
        submitted = due
        time.sleep(PERIOD)
    return submitted


def _latencies(database: Database, since: float) -> list[float]:
    """Milliseconds of the jobs submitted since."""
    return [(ran - given) / 1000 for given, ran in database.stamps() if given / 1e6 >= since]
