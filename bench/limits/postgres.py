"""The bare loop on PostgreSQL: psycopg, prepared statements, one statement a call."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.limits.identifiers import new_id

QUEUE, TASK, PRIORITY = "default", "noop", 5

_COLUMNS = (
    "id, task, queue, priority, state, run_at, created_at, arguments, token, attempt,"
    " worker, started_at"
)
_TABLES = """
CREATE SCHEMA bare;
CREATE TABLE bare.jobs (
    id uuid PRIMARY KEY, task text NOT NULL, queue text NOT NULL, priority smallint NOT NULL,
    state text NOT NULL, run_at timestamptz NOT NULL, created_at timestamptz NOT NULL,
    arguments text NOT NULL, token integer NOT NULL, attempt integer NOT NULL,
    worker uuid, started_at timestamptz
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX jobs_lane ON bare.jobs (queue, task, priority, run_at, id) WHERE state = 'pending';
CREATE TABLE bare.archive (
    id uuid NOT NULL, task text NOT NULL, queue text NOT NULL, priority smallint NOT NULL,
    state text NOT NULL, run_at timestamptz NOT NULL, created_at timestamptz NOT NULL,
    arguments text NOT NULL, token integer NOT NULL, attempt integer NOT NULL,
    worker uuid, started_at timestamptz, finished_at timestamptz NOT NULL, result text
);
CREATE INDEX archive_id ON bare.archive (id);
"""
_VALUES = ("id", "task", "queue", "priority", "state", "run_at", "created_at", "arguments")
_COPY = f"COPY bare.jobs ({', '.join(_VALUES)}, token, attempt) FROM STDIN (FORMAT BINARY)"
_TYPES = ("uuid", "text", "text", "int2", "text", "timestamptz", "timestamptz", "text")
_INSERT = """
INSERT INTO bare.jobs (id, task, queue, priority, state, run_at, created_at, arguments,
    token, attempt)
VALUES (%s, %s, %s, %s, 'pending', clock_timestamp(), clock_timestamp(), %s, 0, 0)
"""
_CLAIM = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM bare.jobs
    WHERE state = 'pending' AND queue = %s AND task = %s AND priority = %s
    AND run_at <= (SELECT clock_timestamp())
    ORDER BY run_at, id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE bare.jobs SET state = 'running', token = token + 1, attempt = attempt + 1, worker = %s,
    started_at = clock_timestamp()
FROM chosen WHERE jobs.id = chosen.id RETURNING jobs.id, jobs.token
"""
_FINISH = f"""
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest(%s::uuid[], %s::integer[]) AS ended (job, number)
),
gone AS (
    DELETE FROM bare.jobs USING ended
    WHERE id = job AND token = number AND state = 'running' RETURNING jobs.*
)
INSERT INTO bare.archive ({_COLUMNS}, finished_at, result)
SELECT {_COLUMNS.replace("state", "'succeeded'")}, clock_timestamp(), %s FROM gone
"""


class BarePostgres:
    """See bench.engines.protocol.Bare."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._worker = uuid.uuid4()
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._connection.prepare_threshold = 0
        self._listener: psycopg.Connection[Any] | None = None

    def create(self) -> None:
        """Make the tables."""
        self._connection.execute(_TABLES, prepare=False)

    def insert(self, arguments: Iterable[str]) -> None:
        """COPY one due job for each text."""
        with self._connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types([*_TYPES, "int4", "int4"])
            for each in arguments:
                now = datetime.now(UTC)
                copy.write_row((new_id(), TASK, QUEUE, PRIORITY, "pending", now, now, each, 0, 0))

    def insert_one(self, arguments: str) -> None:
        """Insert one due job."""
        self._connection.execute(_INSERT, (new_id(), TASK, QUEUE, PRIORITY, arguments))

    def notify(self) -> None:
        """Wake whoever waits."""
        self._connection.execute("SELECT pg_notify('bare', '')")

    def listen(self) -> None:
        """Be woken from now on."""
        self._listener = psycopg.connect(self._url, autocommit=True)
        self._listener.execute("LISTEN bare")

    def wait(self, timeout: float) -> None:
        """Wait for a notification."""
        if self._listener is not None:
            for _ in self._listener.notifies(timeout=timeout, stop_after=1):
                return

    def claim(self, limit: int) -> list[tuple[object, int]]:
        """Make up to `limit` due jobs running."""
        values = (QUEUE, TASK, PRIORITY, limit, self._worker)
        return self._connection.execute(_CLAIM, values, binary=True).fetchall()

    def finish(self, jobs: list[tuple[object, int]], result: str) -> None:
        """Move these jobs to the archive."""
        ids, tokens = [job for job, _ in jobs], [token for _, token in jobs]
        self._connection.execute(_FINISH, (ids, tokens, result))

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()
        if self._listener is not None:
            self._listener.close()
