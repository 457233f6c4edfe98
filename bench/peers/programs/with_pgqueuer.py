"""PgQueuer on PostgreSQL: asyncpg and uvloop, batches, jobs enqueued by lists."""

from __future__ import annotations

import time
from datetime import timedelta

import asyncpg
import uvloop
from common import (
    BATCH,
    URL,
    action,
    one_by_one_async,
    stamped,
    started,
    tell,
    wait_until_empty_async,
)
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

SUBMITTED = 5_000


async def main() -> None:
    connection = await asyncpg.connect(URL)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    wanted, count = action()
    match wanted:
        case "install":
            await queries.install()
        case "submit":
            begun = time.perf_counter()
            for start in range(0, count, SUBMITTED):
                number = min(SUBMITTED, count - start)
                await queries.enqueue(["noop"] * number, [None] * number, [0] * number)
            tell(seconds=time.perf_counter() - begun)
        case "wait":
            await wait_until_empty_async(
                lambda: connection.fetchval("SELECT count(*) FROM pgqueuer")
            )
        case "latency":
            await one_by_one_async(
                count, lambda given: queries.enqueue("stamp", str(given).encode())
            )
        case "work":
            await work(driver)


async def work(driver: AsyncpgDriver) -> None:
    application = PgQueuer(driver)

    @application.entrypoint("noop")
    async def noop(job: Job) -> None:
        started()

    @application.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        stamped(int(job.payload or b"0"))

    await application.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    uvloop.run(main())
