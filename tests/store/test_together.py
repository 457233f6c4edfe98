"""Several statements in one message: what they answer, and what is left when something breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from duly.store.operation import Operation, Statement, Wake
from duly.store.postgres import store as store_module
from duly.store.postgres.connection import configure
from duly.store.postgres.store import PostgresStore
from duly.store.postgres.together import execute_together
from tests.support.stores import Scene, draft, until

ECHO = "SELECT %(value)s::text, %(number)s::integer"
WRITE = "INSERT INTO notes VALUES (%(value)s::text) RETURNING value"
COUNT = "SELECT count(*) FROM notes"
WRONG = "SELECT 1 / %(number)s::integer"


@pytest.fixture
def connection(shared_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared_database, autocommit=True) as connection:
        configure(connection)
        connection.execute("CREATE TEMPORARY TABLE notes (value text)")
        yield connection


def echo(value: str, number: int) -> Statement:
    return Statement(ECHO, {"value": value, "number": number})


def write(value: str) -> Statement:
    return Statement(WRITE, {"value": value})


def test_each_answers_for_itself(connection: psycopg.Connection[Any]) -> None:
    for number in (1, 70_000, -3):
        assert execute_together(connection, [echo("a", number), echo("b", 2)]) == [
            [("a", number)],
            [("b", 2)],
        ]
    assert connection.execute("SELECT 'still usable'").fetchone() == ("still usable",)


def test_the_second_sees_what_the_first_has_committed(connection: psycopg.Connection[Any]) -> None:
    ids = Statement("SELECT pg_current_xact_id()::text", {})
    first, second = execute_together(connection, [ids, ids])
    assert first != second
    _, counted = execute_together(connection, [write("one"), Statement(COUNT, {})])
    assert counted == [(1,)]


def test_large_values_go_both_ways(connection: psycopg.Connection[Any]) -> None:
    large = "x" * 3_000_000
    assert execute_together(connection, [echo(large, 1), echo(large, 2)]) == [
        [(large, 1)],
        [(large, 2)],
    ]


@pytest.mark.parametrize("place", [0, 1])
def test_an_error_is_told_and_the_others_have_run(
    connection: psycopg.Connection[Any], place: int
) -> None:
    statements = [write("kept")]
    statements.insert(place, Statement(WRONG, {"number": 0}))
    with pytest.raises(psycopg.errors.DivisionByZero):
        execute_together(connection, statements)
    assert connection.execute("SELECT value FROM notes").fetchall() == [("kept",)]


def test_a_text_that_cannot_be_prepared_is_told_each_time(
    connection: psycopg.Connection[Any],
) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            execute_together(connection, [Statement("SELECT * FROM nowhere", {}), echo("a", 1)])
    assert execute_together(connection, [echo("a", 1)]) == [[("a", 1)]]


def test_a_connection_that_breaks_is_an_error_and_is_closed(
    connection: psycopg.Connection[Any], shared_database: str
) -> None:
    def end() -> None:
        with psycopg.connect(shared_database, autocommit=True) as other:
            asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            until(lambda: other.execute(asleep, (connection.info.backend_pid,)).fetchone())
            other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(psycopg.OperationalError):
        execute_together(connection, [Statement("SELECT pg_sleep(60)", {}), echo("a", 1)])
    ending.join()
    assert connection.closed


def test_a_submission_after_a_pause_carries_its_notification(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(shared_database)
    try:
        store.migrate()
        scene = Scene(store)
        scene.submit()
        watch = store.watch(Wake.WORKERS)
        until(lambda: not watch.wait(0.05))
        # Nobody else may send one now.
        monkeypatch.setattr(store._open().notifier, "notify", lambda wakes: None)
        until(lambda: store._open().notifier.rests())
        until(lambda: _sends(store, monkeypatch))
        assert watch.wait(20)
        watch.close()
    finally:
        store.close()


def _sends(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Submit a job; answers whether it went in one message with its notification."""
    messages: list[int] = []

    def counted(connection: Any, statements: list[Statement]) -> list[list[Any]]:
        messages.append(len(statements))
        return execute_together(connection, statements)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "execute_together", counted)
        operation: Operation[Any] = store.enqueue([draft()])
        store.run(operation)
    return messages == [2]
