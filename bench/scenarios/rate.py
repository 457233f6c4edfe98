"""From submission to start at a steady rate. Eight clients take turns; each job counts from the
moment at which it should have been submitted, so a client that falls behind does not hide it.

The limit: bare clients and a bare loop at the same rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from bench.draining import bare_client
from bench.engines.protocol import Bare, Database, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, bare_loops, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "rate"
CLIENTS = 8
CONCURRENCY = 50
LEAD = 0.1

BOUNDS = {50: Target(5.0), 99: Target(6.0)}

Submit = Callable[[int], object]


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds, the median and the 99th percentile."""
    return [figure for rate in size.rates for figure in _measure(engine, rate, size)]


def _measure(engine: Engine, rate: int, size: Size) -> list[Figure]:
    seconds = size.seconds_at_rate
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app, concurrency=CONCURRENCY),
    ):
        duly = _latencies(database, rate, seconds, [app.stamp.enqueue] * CLIENTS)
    with (
        engine.fresh() as database,
        bare_client(database),
        bare_loops(database, 1, CONCURRENCY),
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(closing(database.bare())) for _ in range(CLIENTS)]
        limit = _latencies(database, rate, seconds, [_inserting(client) for client in clients])
    return [
        Figure(
            NAME,
            f"submit to start at {rate:,}/s, p{percent}",
            engine.name,
            "ms",
            Better.LOWER,
            percentile(duly, percent),
            percentile(limit, percent),
            target,
        )
        for percent, target in BOUNDS.items()
    ]


def _inserting(client: Bare) -> Submit:
    def insert(given: int) -> None:
        client.insert_one(str(given))
        client.notify()

    return insert


def _latencies(database: Database, rate: int, seconds: float, clients: list[Submit]) -> list[float]:
    jobs = int(rate * seconds)
    begin = time.time_ns() // 1000 + int(LEAD * 1e6)
    moments = [begin + number * 1_000_000 // rate for number in range(jobs)]

    def submit_on_time(number: int) -> None:
        for moment in moments[number :: len(clients)]:
            time.sleep(max(0.0, moment / 1e6 - time.time()))
            clients[number](moment)

    with ThreadPoolExecutor(len(clients)) as threads:
        list(threads.map(submit_on_time, range(len(clients))))
    wait_for_finished(database, jobs)
    return [(started - given) / 1000 for given, started in database.stamps()]
