"""How many connections a process opens to PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duly.store.operation import Wake
from duly.store.postgres import gate as gate_module
from duly.store.postgres.store import PostgresStore
from tests.support.stores import until

PATIENCE = 60.0
OPEN = "SELECT pid FROM pg_stat_activity WHERE application_name = 'duly' AND state IS NOT NULL"
WAITING = f"{OPEN} AND wait_event_type = 'Lock'"


@pytest.fixture
def store(postgres_store: PostgresStore, connection: psycopg.Connection) -> PostgresStore:
    # Those of an earlier test may still be leaving.
    until(lambda: count(connection, OPEN) == 0)
    return postgres_store


def count(connection: psycopg.Connection, query: str) -> int:
    here = " AND datname = current_database()"
    return len(connection.execute((query + here).encode()).fetchall())


def test_calls_one_after_another_use_one(
    store: PostgresStore, connection: psycopg.Connection
) -> None:
    for _ in range(5):
        store.run(store.counts())
    assert count(connection, OPEN) == 1


def test_a_third_call_waits_and_a_fourth_gets_another(
    store: PostgresStore,
    connection: psycopg.Connection,
    shared_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "PATIENCE", PATIENCE)
    gate = store._open().gate
    with ThreadPoolExecutor(4) as threads:
        with psycopg.connect(shared_database) as blocker:
            blocker.execute("LOCK TABLE duly.paused_queues")
            calls = [threads.submit(store.run, store.pause_queue(name)) for name in "ab"]
            until(lambda: count(connection, WAITING) == 2)
            calls.append(threads.submit(store.run, store.pause_queue("c")))
            until(lambda: gate._waiting)
            assert count(connection, OPEN) == 2
            calls.append(threads.submit(store.run, store.pause_queue("d")))
            until(lambda: count(connection, WAITING) == 3)
        for call in calls:
            call.result(PATIENCE)
    assert count(connection, OPEN) == 3


def test_a_notification_waits_for_its_turn_too(
    store: PostgresStore, connection: psycopg.Connection
) -> None:
    engine = store._open()
    store.run(store.counts())
    with ThreadPoolExecutor(1) as threads, engine.gate.passed():
        with engine.gate.passed():
            sending = threads.submit(engine._send, frozenset({Wake.WORKERS}))
            until(lambda: engine.gate._waiting)
        sending.result(PATIENCE)
