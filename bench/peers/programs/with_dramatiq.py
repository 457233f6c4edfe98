"""Dramatiq on Redis: processes with threads, messages enqueued one after another."""

from __future__ import annotations

import dramatiq
import redis
from common import URL, action, one_by_one, stamped, started, timed, wait_until_empty
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop() -> None:
    started()


@dramatiq.actor
def stamp(given: int) -> None:
    stamped(given)


def submit(count: int) -> None:
    for _ in range(count):
        noop.send()


def main() -> None:
    client = redis.Redis.from_url(URL)
    wanted, count = action()
    match wanted:
        case "submit":
            timed(lambda: submit(count))
        case "wait":
            wait_until_empty(lambda: int(client.hlen("dramatiq:default.msgs")))
        case "latency":
            one_by_one(count, stamp.send)


if __name__ == "__main__":
    main()
