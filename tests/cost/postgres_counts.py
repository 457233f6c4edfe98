"""What PostgreSQL counts: statements, pages looked at, records and bytes of its log, rows read.

The figures are those of one database, whatever others do on the same server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.cost.bounds import Cost
from tests.cost.lives import Lives

# A notification is a hint: several commits share one, as time will have it.
_COUNTS = """
SELECT /* observer */ coalesce(sum(calls), 0)::float8,
    coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8,
    coalesce(sum(wal_records), 0)::float8, coalesce(sum(wal_bytes), 0)::float8
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND toplevel AND query NOT LIKE '%observer%' AND query NOT LIKE '%pg_notify%'
"""
_FORGET = """
SELECT /* observer */ pg_stat_statements_reset(0::oid, oid, 0) FROM pg_database
WHERE datname = current_database()
"""
_ROWS_READ = """
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::float8
FROM pg_stat_user_tables WHERE schemaname = 'duly'
"""
_IDLE = """
SELECT /* observer */ coalesce(sum(calls), 0)::integer FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND toplevel AND query NOT LIKE '%observer%' AND query NOT LIKE '%SET lease_until%'
"""
UNITS = ("statements", "pages", "log records", "log bytes")


def phase_costs(lives: Lives, url: str) -> dict[str, Cost]:
    """What each phase costs a job. Bytes of the log are counted only where the server does not
    copy whole pages into it, which depends on when it made its last checkpoint."""
    costs: dict[str, Cost] = {}
    with _observing(url) as observer:
        whole_pages = _one(observer, "SHOW full_page_writes") == "on"
        for name, jobs, act in lives.phases():
            observer.execute(_FORGET)
            act()
            row = observer.execute(_COUNTS).fetchone()
            assert row is not None
            costs[name] = {
                unit: total / jobs
                for unit, total in zip(UNITS, row, strict=True)
                if not (whole_pages and unit == "log bytes")
            }
    return costs


def statements_within(url: str, seconds: float) -> int:
    """How many statements others send in that time, heartbeats left out."""
    with _observing(url) as observer:
        observer.execute(_FORGET)
        time.sleep(seconds)
        return int(_one(observer, _IDLE))


def rows_read(url: str) -> float:
    """Rows of Duly's tables that were read so far. The server learns of them when the connections
    that read them are closed."""
    with psycopg.connect(url, autocommit=True) as connection:
        return float(_one(connection, _ROWS_READ))


def execute(url: str, text: str) -> None:
    """Change the database behind Duly's back."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


@contextmanager
def _observing(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as observer:
        observer.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        yield observer


def _one(connection: psycopg.Connection[Any], text: str) -> Any:
    row = connection.execute(text.encode()).fetchone()
    assert row is not None
    return row[0]
