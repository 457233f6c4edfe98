"""Databases on a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.engines.protocol import Span
from bench.limits.postgres import BarePostgres
from tests.support.postgres import fresh_database

SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "max_connections": "400",
}
"""Fully durable; the log is large enough that checkpoints are made by time alone."""

# Ids begin with a millisecond of the hour before, as those of jobs that were submitted then: none
# is of the future, nor of those that another call has added.
_LOAD = """
INSERT INTO duly.jobs (id, task, queue, priority, state, run_at, created_at, arguments, token,
    attempt, max_attempts, crashes, max_crashes, generation, delivery, alone)
SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 3600000
            + number::bigint * 3599999 / %(count)s), 12, '0')
        || left(md5(number || 'of' || %(count)s), 20))::uuid,
    CASE number %% 3 WHEN 2 THEN 'unknown' ELSE %(task)s END, 'default',
    CASE number %% 3 WHEN 1 THEN 20 ELSE 5 END, 'pending',
    CASE number %% 3 WHEN 2 THEN now() ELSE
        now() + interval '1 year' + number * interval '1 microsecond' END,
    now(), '{}', 0, 0, 4, 0, 3, 1, 'at_least_once', false
FROM generate_series(1, %(count)s) AS number
"""
_LANES = """
INSERT INTO duly.lanes (queue, task, priority)
VALUES ('default', %(task)s, 5), ('default', %(task)s, 20), ('default', 'unknown', 5)
"""
_SPAN = """
SELECT extract(epoch FROM min(created_at))::float8, extract(epoch FROM min(started_at))::float8,
    extract(epoch FROM max(finished_at))::float8
FROM {schema}.archive WHERE task <> 'warm_up' AND started_at >= to_timestamp(%(since)s)
"""
_SCHEMA = """
SELECT /* observer */ CASE WHEN to_regnamespace('bare') IS NULL THEN 'duly' ELSE 'bare' END
"""
_STATEMENTS = """
SELECT query, calls FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND toplevel AND query NOT LIKE '%observer%'
ORDER BY calls DESC
"""
_FORGET = """
SELECT /* observer */ pg_stat_statements_reset(0::oid, oid, 0) FROM pg_database
WHERE datname = current_database()
"""


class PostgresDatabase:
    """See bench.engines.protocol.Database and CountsStatements."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self._schema: str | None = None

    def bare(self) -> BarePostgres:
        """A new bare client."""
        return BarePostgres(self.url)

    def load_pending(self, count: int, task: str) -> None:
        """Add jobs that no worker of the benchmark can run now, let the planner know, and have them
        on the disk: to write millions of rows keeps the server busy for long after."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_LANES, {"task": task})
            connection.execute(_LOAD, {"count": count, "task": task})
            connection.execute("VACUUM ANALYZE duly.jobs")
            connection.execute("CHECKPOINT")

    @contextmanager
    def horizon_held(self) -> Iterator[None]:
        """A transaction with a snapshot stays open."""
        with psycopg.connect(self.url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM pg_class")
            yield

    def finished(self) -> int:
        """How many jobs are in the archive."""
        ((count,),) = self._ask("SELECT count(*) FROM {schema}.archive WHERE task <> 'warm_up'")
        return int(count)

    def span(self, since: float = 0.0) -> Span:
        """The times of the jobs in the archive that started after `since`."""
        (row,) = self._ask(_SPAN, {"since": since})
        return Span(*row)

    def stamps(self) -> list[tuple[int, int]]:
        """When archived jobs were submitted, or due, and when their code ran."""
        rows = self._ask(
            "SELECT regexp_replace(arguments, '[^0-9]', '', 'g')::bigint, result::bigint"
            " FROM {schema}.archive WHERE result ~ '^[0-9]+$'"
        )
        return [(given, result) for given, result in rows]

    def live_bytes(self) -> int:
        """What the table of live jobs takes on the disk, with its indexes."""
        ((size,),) = self._ask("SELECT pg_total_relation_size('{schema}.jobs')")
        return int(size)

    def table_bytes(self) -> int:
        """What all tables take on the disk, with their indexes."""
        ((size,),) = self._ask(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'"
        )
        return int(size)

    def written_bytes(self, processes: Iterable[int]) -> int:
        """The position in the server's write-ahead log."""
        ((position,),) = self._ask("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        return int(position)

    def forget_statements(self) -> None:
        """Begin to count."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            connection.execute(_FORGET)

    def statements(self) -> Mapping[str, int]:
        """How often each statement ran since."""
        return dict(self._ask(_STATEMENTS))

    def _ask(self, text: str, values: Mapping[str, float] | None = None) -> list[Any]:
        """Ask in a way that can be told from what is measured."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            if self._schema is None:
                row = connection.execute(_SCHEMA).fetchone()
                self._schema = str(row[0]) if row else "duly"
            query = text.replace("{schema}", self._schema)
            query = query.replace("SELECT", "SELECT /* observer */", 1)
            return connection.execute(query.encode(), values).fetchall()


class PostgresEngine:
    """See bench.engines.protocol.Engine."""

    name = "postgresql"

    def __init__(self, server_url: str, directory: Path) -> None:
        self._server_url = server_url
        self._directory = directory
        self.writers = os.cpu_count() or 1

    @contextmanager
    def fresh(self) -> Iterator[PostgresDatabase]:
        """A new database on the server."""
        folder = Path(tempfile.mkdtemp(prefix="p", dir=self._directory))
        try:
            with fresh_database(self._server_url) as url:
                yield PostgresDatabase(url, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def description(self) -> Mapping[str, str]:
        """The versions and settings that figures depend on."""
        with psycopg.connect(self._server_url) as connection:
            version = str(connection.info.server_version)
            described = {"version": f"{version[:-4]}.{int(version[-4:])}"}
            for name in SETTINGS:
                row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                described[name] = str(row[0]) if row else ""
            return described
