"""Submission one job at a time: one client, and sixteen at once, threads and coroutines.

The limit of one client is a bare insert a commit. That of sixteen is as many bare threads that
share commits in the plainest way: the database, and threads of which one runs at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.draining import bare_client
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.limits.sharing import sharing
from bench.processes import application
from bench.sizes import Size

NAME = "submit"
CLIENTS = 16
TURNS = 4

Submit = Callable[[int], None]


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second, and what sixteen clients gain over one."""
    one, threads, coroutines = _duly(engine, size)
    bare_one, bare_threads = _bare(engine, size)
    figures = [Figure(NAME, "1 client", engine.name, "jobs/s", Better.HIGHER, one, bare_one)]
    for name, many in (("16 threads", threads), ("16 coroutines", coroutines)):
        figures += [
            Figure(NAME, name, engine.name, "jobs/s", Better.HIGHER, many, bare_threads),
            Figure(
                NAME,
                f"{name} by 1 client",
                engine.name,
                "times",
                Better.HIGHER,
                many / one,
                bare_threads / bare_one,
                Target(5.0, of_ratio=False),
            ),
        ]
    return figures


def _duly(engine: Engine, size: Size) -> list[float]:
    with (
        engine.fresh() as database,
        application(database) as app,
        ThreadPoolExecutor(CLIENTS) as threads,
        asyncio.Runner() as runner,
    ):

        def submit(count: int) -> None:
            for _ in range(count):
                app.noop.enqueue()

        def submit_by_threads(count: int) -> None:
            list(threads.map(submit, [count // CLIENTS] * CLIENTS))

        async def submit_here(count: int) -> None:
            for _ in range(count):
                await app.noop.aenqueue()

        async def submit_together(count: int) -> None:
            await asyncio.gather(*(submit_here(count // CLIENTS) for _ in range(CLIENTS)))

        def submit_by_coroutines(count: int) -> None:
            runner.run(submit_together(count))

        submit(10)
        submit_by_threads(2 * CLIENTS)
        submit_by_coroutines(2 * CLIENTS)
        return _in_turns(size, submit, submit_by_threads, submit_by_coroutines)


def _bare(engine: Engine, size: Size) -> list[float]:
    with (
        engine.fresh() as database,
        bare_client(database) as bare,
        ThreadPoolExecutor(CLIENTS) as threads,
        sharing(bare.insert) as shared,
    ):

        def insert(count: int) -> None:
            for _ in range(count):
                bare.insert_one("{}")

        def share(count: int) -> None:
            for _ in range(count):
                shared.submit("{}")

        def insert_by_threads(count: int) -> None:
            list(threads.map(share, [count // CLIENTS] * CLIENTS))

        insert_by_threads(2 * CLIENTS)
        return _in_turns(size, insert, insert_by_threads)


def _in_turns(size: Size, one: Submit, *many: Submit) -> list[float]:
    """Jobs a second of each, in turns: a disk is not equally fast from one second to the next."""
    count_of_many = size.submitted_by_many // TURNS // CLIENTS * CLIENTS
    turns = [(one, size.submitted_by_one // TURNS), *((each, count_of_many) for each in many)]
    taken = [0.0] * len(turns)
    for _ in range(TURNS):
        for number, (submit, count) in enumerate(turns):
            begun = time.perf_counter()
            submit(count)
            taken[number] += time.perf_counter() - begun
    return [TURNS * count / each for (_, count), each in zip(turns, taken, strict=True)]
