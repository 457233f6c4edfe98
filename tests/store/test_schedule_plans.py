"""100,000 schedules cost an idle scheduler next to nothing: its questions read one index entry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from duly.model.schedule import Definition
from duly.policy.recurrence import Cron, Recurrence
from duly.policy.schedule_changes import begun
from duly.store.operation import Operation, Statement
from duly.store.postgres.schema import in_schema
from duly.store.postgres.store import PostgresStore
from duly.store.sqlite.connection import connect
from duly.store.sqlite.schedules import BUFFERED, DUE, LIST, LIVE_JOBS, NEXT_DUE
from duly.store.sqlite.store import SqliteStore
from tests.support.postgres import fresh_database

SCHEDULES = 100_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOURLY = msgspec.json.encode(Recurrence((Cron("30 * * * *", "Europe/Berlin"),))).decode()
SAMPLE = begun("sample", Definition(task="t", arguments="{}", recurrence=HOURLY), NOW)


@pytest.fixture(scope="module")
def postgres(postgres_server: str) -> Iterator[tuple[PostgresStore, psycopg.Connection[Any]]]:
    with fresh_database(postgres_server) as url:
        store = PostgresStore(url)
        store.migrate()
        store.run(store.add_schedules([SAMPLE]))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                in_schema(
                    "CREATE TEMP TABLE many AS SELECT * FROM {schema}.schedules,"
                    f" generate_series(1, {SCHEDULES}) AS n;"
                    " UPDATE many SET id = 'schedule ' || n, due_at = due_at + n * interval '1 ms';"
                    " ALTER TABLE many DROP COLUMN n;"
                    " INSERT INTO {schema}.schedules SELECT * FROM many;"
                    " ANALYZE {schema}.schedules;"
                    " INSERT INTO {schema}.jobs (id, task, queue, priority, state, run_at,"
                    " created_at, arguments, token, attempt, max_attempts, crashes, max_crashes,"
                    " generation, delivery, alone) SELECT gen_random_uuid(), 't', 'q', 5,"
                    " 'pending', now(), now(), '{}', 0, 0, 1, 0, 3, 1, 'at_least_once', false"
                    " FROM generate_series(1, 20000)",
                    "duly",
                )
            )
            yield store, connection
        store.close()


def _plan(connection: psycopg.Connection[Any], operation: Operation[Any]) -> tuple[str, int]:
    """The plan of an operation's first statement, and how many buffers it touches."""
    statement: Statement = next(operation.start())
    (row,) = connection.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}".encode(), statement.parameters
    ).fetchall()
    plan = row[0][0]["Plan"]
    return str(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_an_idle_scheduler_on_postgresql(
    postgres: tuple[PostgresStore, psycopg.Connection[Any]],
) -> None:
    store, connection = postgres
    for operation in (store.due_schedules(500, NOW), store.next_schedule_due(NOW)):
        plan, buffers = _plan(connection, operation)
        assert "schedules_due" in plan
        assert "Seq Scan" not in plan
        assert "Hash" not in plan
        assert buffers < 20
    started = time.perf_counter()
    for _ in range(20):
        assert store.run(store.due_schedules(500, NOW)) == []
        assert (store.run(store.next_schedule_due(NOW)) or 0) > 0
    print(f"an idle round: {(time.perf_counter() - started) / 20 * 1e3:.2f} ms")


def test_a_busy_scheduler_on_postgresql(
    postgres: tuple[PostgresStore, psycopg.Connection[Any]],
) -> None:
    store, connection = postgres
    later = NOW + timedelta(hours=1)
    plan, buffers = _plan(connection, store.due_schedules(100, later))
    assert "schedules_due" in plan
    assert "Seq Scan" not in plan
    assert buffers < 1_000
    plan, _ = _plan(connection, store.schedules(10, "schedule 5"))
    assert "schedules_id" in plan


@pytest.fixture(scope="module")
def sqlite(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SqliteStore, apsw.Connection]]:
    path = str(tmp_path_factory.mktemp("plans") / "duly.db")
    store = SqliteStore(path)
    store.run(store.add_schedules([SAMPLE]))
    connection = connect(path)
    connection.execute(
        "CREATE TEMP TABLE many AS WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1"
        f" FROM numbers WHERE n < {SCHEDULES}) SELECT * FROM schedules, numbers;"
        "UPDATE many SET id = 'schedule ' || n, due_at = due_at + n * 1000;"
        "ALTER TABLE many DROP COLUMN n;"
        "INSERT INTO schedules SELECT * FROM many"
    )
    yield store, connection
    connection.close()
    store.close()


def test_an_idle_scheduler_on_sqlite(sqlite: tuple[SqliteStore, apsw.Connection]) -> None:
    store, connection = sqlite

    def plan(text: str, *parameters: object) -> str:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
        return "; ".join(row[3] for row in rows)

    instant = int(NOW.timestamp() * 1_000_000)
    for text, parameters in ((DUE, (instant, 500)), (NEXT_DUE, ())):
        told = plan(text, *parameters)
        assert "INDEX schedules_due" in told
        assert "SCAN jobs" not in told
        assert "TEMP B-TREE" not in told
    assert "INDEX jobs_schedule" in plan(DUE, instant, 500)
    assert "INDEX jobs_schedule" in plan(LIVE_JOBS, "s")
    assert "INDEX ticks_buffered" in plan(BUFFERED, "s")
    assert "TEMP B-TREE" not in plan(LIST, "", 10)
    started = time.perf_counter()
    for _ in range(20):
        assert store.run(store.due_schedules(500, NOW)) == []
        assert (store.run(store.next_schedule_due(NOW)) or 0) > 0
    print(f"an idle round: {(time.perf_counter() - started) / 20 * 1e3:.2f} ms")
