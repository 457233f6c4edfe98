"""Submission one job at a time: one client, and sixteen at once.

The limit of one client is a bare insert a commit. That of sixteen is perfect sharing: sixteen rows
a commit.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from bench.draining import bare_client
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application
from bench.sizes import Size

NAME = "submit"
CLIENTS = 16


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second, and what sixteen clients gain over one."""
    one, many = _duly(engine, size)
    bare_one, bare_many = _bare(engine, size)
    return [
        Figure(NAME, "1 client", engine.name, "jobs/s", Better.HIGHER, one, bare_one),
        Figure(NAME, "16 threads", engine.name, "jobs/s", Better.HIGHER, many, bare_many),
        Figure(
            NAME,
            "16 threads by 1 client",
            engine.name,
            "times",
            Better.HIGHER,
            many / one,
            bare_many / bare_one,
            Target(5.0, of_ratio=False),
        ),
    ]


def _duly(engine: Engine, size: Size) -> tuple[float, float]:
    with engine.fresh() as database, application(database) as app:

        def submit(count: int) -> None:
            for _ in range(count):
                app.noop.enqueue()

        submit(10)
        begun = time.perf_counter()
        submit(size.submitted_by_one)
        one = size.submitted_by_one / (time.perf_counter() - begun)
        share = size.submitted_by_many // CLIENTS
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(submit, [2] * CLIENTS))
            begun = time.perf_counter()
            list(threads.map(submit, [share] * CLIENTS))
            return one, share * CLIENTS / (time.perf_counter() - begun)


def _bare(engine: Engine, size: Size) -> tuple[float, float]:
    with engine.fresh() as database, bare_client(database) as bare:
        begun = time.perf_counter()
        for _ in range(size.submitted_by_one):
            bare.insert_one("{}")
        one = size.submitted_by_one / (time.perf_counter() - begun)
        commits = size.submitted_by_many // CLIENTS
        begun = time.perf_counter()
        for _ in range(commits):
            bare.insert(["{}"] * CLIENTS)
        return one, commits * CLIENTS / (time.perf_counter() - begun)
