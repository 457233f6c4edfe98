"""Procrastinate on PostgreSQL: concurrent async jobs in each worker, jobs deferred in batches."""

from __future__ import annotations

import asyncio
import time

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
from procrastinate import App, PsycopgConnector

SUBMITTED = 5_000
LIVE = "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="noop")
async def noop() -> None:
    started()


@app.task(name="stamp")
async def stamp(given: int) -> None:
    stamped(given)


async def remaining() -> int:
    row = await app.connector.execute_query_one_async(LIVE)
    return int(row["jobs"])


async def main() -> None:
    wanted, count = action()
    async with app.open_async():
        match wanted:
            case "install":
                await app.schema_manager.apply_schema_async()
            case "submit":
                begun = time.perf_counter()
                for start in range(0, count, SUBMITTED):
                    number = min(SUBMITTED, count - start)
                    await noop.batch_defer_async(*({} for _ in range(number)))
                tell(seconds=time.perf_counter() - begun)
            case "wait":
                await wait_until_empty_async(remaining)
            case "latency":
                await one_by_one_async(count, lambda given: stamp.defer_async(given=given))
            case "work":
                await app.run_worker_async(concurrency=BATCH)


if __name__ == "__main__":
    asyncio.run(main())
