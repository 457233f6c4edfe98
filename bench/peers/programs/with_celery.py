"""Celery on Redis: prefork, results ignored, many messages prefetched, one producer for all."""

from __future__ import annotations

import redis
from celery import Celery
from common import URL, action, one_by_one, stamped, started, timed, wait_until_empty

app = Celery("with_celery", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=128,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop() -> None:
    started()


@app.task(name="stamp")
def stamp(given: int) -> None:
    stamped(given)


def submit(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


def main() -> None:
    client = redis.Redis.from_url(URL)
    wanted, count = action()
    match wanted:
        case "submit":
            timed(lambda: submit(count))
        case "wait":
            wait_until_empty(lambda: int(client.llen("celery")) + int(client.hlen("unacked")))
        case "latency":
            one_by_one(count, lambda given: stamp.delay(given))


if __name__ == "__main__":
    main()
