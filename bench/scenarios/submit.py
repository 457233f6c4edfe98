"""Submission one job at a time: one client, and sixteen at once.

The limit of one client is a bare insert a commit. That of sixteen is perfect sharing: sixteen rows
a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.draining import bare_client
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application
from bench.sizes import Size

NAME = "submit"
CLIENTS = 16
TURNS = 4

Submit = Callable[[int], None]


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
    with (
        engine.fresh() as database,
        application(database) as app,
        ThreadPoolExecutor(CLIENTS) as threads,
    ):

        def submit(count: int) -> None:
            for _ in range(count):
                app.noop.enqueue()

        def submit_by_many(count: int) -> None:
            list(threads.map(submit, [count // CLIENTS] * CLIENTS))

        submit(10)
        submit_by_many(2 * CLIENTS)
        return _in_turns(size, submit, submit_by_many)


def _bare(engine: Engine, size: Size) -> tuple[float, float]:
    with engine.fresh() as database, bare_client(database) as bare:

        def insert(count: int) -> None:
            for _ in range(count):
                bare.insert_one("{}")

        def insert_by_many(count: int) -> None:
            for _ in range(count // CLIENTS):
                bare.insert(["{}"] * CLIENTS)

        return _in_turns(size, insert, insert_by_many)


def _in_turns(size: Size, one: Submit, many: Submit) -> tuple[float, float]:
    """Jobs a second of both, in turns: a disk is not equally fast from one second to the next."""
    taken = [0.0, 0.0]
    counts = (size.submitted_by_one // TURNS, size.submitted_by_many // TURNS // CLIENTS * CLIENTS)
    for _ in range(TURNS):
        for number, submit in enumerate((one, many)):
            begun = time.perf_counter()
            submit(counts[number])
            taken[number] += time.perf_counter() - begun
    return TURNS * counts[0] / taken[0], TURNS * counts[1] / taken[1]
