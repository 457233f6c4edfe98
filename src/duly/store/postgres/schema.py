"""The schema on PostgreSQL: migrations on request, and partitions for the days to come."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors

from duly.errors import StoreError
from duly.model.identifiers import new_id
from duly.store import migrate
from duly.store.postgres.connection import OLDEST_SERVER

MIGRATIONS = migrate.load("duly.store.postgres")
DAYS_AHEAD = 7
PARTITIONED = {"archive": "finished_at", "archived_attempts": "ended_at"}

_RECORD = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.installation (id uuid NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    number         integer PRIMARY KEY,
    name           text NOT NULL,
    oldest_release integer NOT NULL,
    applied_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
_VERSION = (
    "SELECT coalesce(max(number), 0), coalesce(max(oldest_release), 0) FROM {schema}.migrations"
)

PATIENCE_TO_DROP = "1s"
FORGET_BATCH = 5_000
_GONE = " AND ".join(
    f"NOT EXISTS (SELECT FROM {{schema}}.{place} WHERE {place}.id = said.job_id)"
    for place in ("jobs", "dead", "archive")
)
FORGET_LINES = (
    "DELETE FROM {schema}.log_lines WHERE ctid = ANY (ARRAY(SELECT ctid FROM"
    " {schema}.log_lines said WHERE at < %(before)s AND "
    f"{_GONE} LIMIT %(limit)s))"
)
FORGET_PROGRESS = (
    "DELETE FROM {schema}.progress WHERE job_id IN (SELECT job_id FROM"
    " {schema}.progress said WHERE at < %(before)s AND "
    f"{_GONE} LIMIT %(limit)s)"
)


def bring_up_to_date(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Apply what is outstanding, one transaction each; answers the names.

    Several processes may do so at once: a lock that ends with the transaction makes them take
    turns, and the loser of the race finds nothing left to do.
    """
    major = connection.info.server_version // 10000
    if major < OLDEST_SERVER:
        raise StoreError(f"the server is PostgreSQL {major}; Duly needs {OLDEST_SERVER} or later")
    applied = []
    with connection.transaction():
        _take_turn(connection, schema)
        connection.execute(in_schema(_RECORD, schema))
        connection.execute(
            in_schema(
                "INSERT INTO {schema}.installation SELECT %s"
                " WHERE NOT EXISTS (SELECT FROM {schema}.installation)",
                schema,
            ),
            (new_id(),),
        )
    for migration in MIGRATIONS:
        with connection.transaction():
            _take_turn(connection, schema)
            if version_of(connection, schema).number >= migration.number:
                continue
            connection.execute(in_schema(migration.text, schema))
            connection.execute(
                in_schema(
                    "INSERT INTO {schema}.migrations (number, name, oldest_release)"
                    " VALUES (%s, %s, %s)",
                    schema,
                ),
                (migration.number, migration.name, migration.oldest_release),
            )
            applied.append(migration.name)
    prepare_partitions(connection, schema, datetime.now(UTC).date())
    return applied


def version_of(connection: psycopg.Connection[Any], schema: str) -> migrate.SchemaVersion:
    """Where the database stands; 0 when it is new."""
    known = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".migrations',)).fetchone()
    if known is None or known[0] is None:
        return migrate.SchemaVersion(0, 0)
    row = connection.execute(in_schema(_VERSION, schema)).fetchone()
    return migrate.SchemaVersion(*row) if row else migrate.SchemaVersion(0, 0)


def installation_of(connection: psycopg.Connection[Any], schema: str) -> UUID:
    """The id that tells this installation from every other."""
    row = connection.execute(in_schema("SELECT id FROM {schema}.installation", schema)).fetchone()
    if row is None:
        raise StoreError(f"the schema {schema} has no installation id: run `duly db migrate`")
    installation: UUID = row[0]
    return installation


def prepare_partitions(connection: psycopg.Connection[Any], schema: str, today: date) -> list[str]:
    """Make the partitions of today and the days to come that do not exist; answers their names."""
    made = []
    for table, column in PARTITIONED.items():
        for day in (today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1)):
            name = f"{table}_{day:%Y%m%d}"
            with connection.transaction():
                _take_turn(connection, schema)
                if not _exists(connection, schema, name):
                    _make_partition(connection, schema, table, column, name, day)
                    made.append(name)
    return made


def drop_partitions(connection: psycopg.Connection[Any], schema: str, before: date) -> list[str]:
    """Drop the partitions of days before `before`; answers their names."""
    dropped = []
    for table in PARTITIONED:
        rows = connection.execute(
            "SELECT child.relname FROM pg_inherits"
            " JOIN pg_class child ON child.oid = inhrelid"
            " JOIN pg_class parent ON parent.oid = inhparent"
            " JOIN pg_namespace space ON space.oid = parent.relnamespace"
            " WHERE space.nspname = %s AND parent.relname = %s",
            (schema, table),
        ).fetchall()
        for (name,) in rows:
            day = name.removeprefix(f"{table}_")
            if (
                day.isdigit()
                and datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date() < before
            ) and _drop(connection, schema, name):
                dropped.append(name)
    return dropped


def _drop(connection: psycopg.Connection[Any], schema: str, name: str) -> bool:
    """Drop a partition, unless somebody uses it: outcomes would wait behind us for that."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE_TO_DROP}'".encode())
            connection.execute(in_schema(f'DROP TABLE {{schema}}."{name}"', schema))
    except errors.LockNotAvailable:
        return False
    return True


def forget_reports(connection: psycopg.Connection[Any], schema: str, before: datetime) -> None:
    """Delete, in small batches, what jobs said before that moment and that are gone since: whole
    days of them are dropped without a look at each."""
    for text in (FORGET_LINES, FORGET_PROGRESS):
        while connection.execute(
            in_schema(text, schema), {"before": before, "limit": FORGET_BATCH}
        ).rowcount:
            continue


def in_schema(text: str, schema: str) -> Any:
    """The text with the schema's name in it."""
    return text.replace("{schema}", f'"{schema}"')


def _take_turn(connection: psycopg.Connection[Any], schema: str) -> None:
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"duly migrate {schema}",)
    )


def _exists(connection: psycopg.Connection[Any], schema: str, name: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (f'"{schema}"."{name}"',)).fetchone()
    return row is not None and row[0] is not None


def _make_partition(
    connection: psycopg.Connection[Any],
    schema: str,
    table: str,
    column: str,
    name: str,
    day: date,
) -> None:
    """Make one partition, taking with it what lies in the default one meanwhile."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end = start + timedelta(days=1)
    whole = f'{{schema}}."{name}"'
    connection.execute("SET LOCAL lock_timeout = '5s'")
    connection.execute(
        in_schema(f"CREATE TABLE {whole} (LIKE {{schema}}.{table} INCLUDING DEFAULTS)", schema)
    )
    connection.execute(
        in_schema(
            f"WITH moved AS (DELETE FROM {{schema}}.{table}_default"
            f" WHERE {column} >= %(start)s AND {column} < %(end)s RETURNING *)"
            f" INSERT INTO {whole} SELECT * FROM moved",
            schema,
        ),
        {"start": start, "end": end},
    )
    connection.execute(
        in_schema(
            f"ALTER TABLE {{schema}}.{table} ATTACH PARTITION {whole}"
            f" FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')",
            schema,
        )
    )
