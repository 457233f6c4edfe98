"""Statements on libpq itself: what they answer, and what is left when it breaks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from duly.errors import KeyConflict
from duly.model.job import KeyPolicy
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres import connection as connection_module
from duly.store.postgres import store as store_module
from duly.store.postgres.connection import CONNECT_TIMEOUT, configure
from duly.store.postgres.exchange import MOST_PREPARED, aexecute, execute, execute_with_hint
from duly.store.postgres.gate import MOST_ON_LOOPS
from duly.store.postgres.store import PostgresStore
from tests.support.stores import draft, until

PATIENCE = 30.0
ECHO = "SELECT %(value)s::text, %(number)s::integer"
WRITE = "INSERT INTO notes VALUES (%(value)s::text) RETURNING value"
Exchange = Callable[[psycopg.Connection[Any], Statement, Statement], list[Any]]

WRONG = Statement("SELECT 1 / %(number)s::integer", {"number": 0})


@pytest.fixture
def connection(shared_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared_database, autocommit=True) as connection:
        configure(connection)
        connection.execute("CREATE TEMPORARY TABLE notes (value text)")
        yield connection


@pytest.fixture
def store(shared_database: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(shared_database)) as store:
        store.migrate()
        yield store


def on_the_event_loop(
    connection: psycopg.Connection[Any], statement: Statement, hint: Statement
) -> list[Any]:
    return asyncio.run(aexecute(connection, statement, hint))


@pytest.fixture(params=[execute_with_hint, on_the_event_loop])
def exchange(request: pytest.FixtureRequest) -> Exchange:
    """A statement with a hint, by each who may carry it."""
    given: Exchange = request.param
    return given


def echo(value: str, number: int) -> Statement:
    return Statement(ECHO, {"value": value, "number": number})


def write(value: str) -> Statement:
    return Statement(WRITE, {"value": value})


def written(connection: psycopg.Connection[Any]) -> list[str]:
    return [value for (value,) in connection.execute("SELECT value FROM notes ORDER BY value")]


def known(connection: psycopg.Connection[Any]) -> int:
    """How many statements of ours the server has prepared on this connection."""
    asked = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'duly%'"
    ((number,),) = connection.execute(asked).fetchall()
    return int(number)


def test_the_statement_answers_and_both_have_run(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    for number in (1, 70_000, -3):
        assert exchange(connection, echo("a", number), write(f"{number}")) == [("a", number)]
    assert written(connection) == ["-3", "1", "70000"]


def test_the_hint_runs_after_the_statement_is_committed(
    connection: psycopg.Connection[Any],
    exchange: Exchange,
) -> None:
    ids = Statement("INSERT INTO notes SELECT pg_current_xact_id()::text RETURNING value", {})
    ((first,),) = exchange(connection, ids, ids)
    assert len(set(written(connection)) | {first}) == 2
    counted = Statement("INSERT INTO notes SELECT 'seen: ' || count(*) FROM notes", {})
    exchange(connection, write("one"), counted)
    assert "seen: 3" in written(connection)


def test_large_values_go_both_ways(connection: psycopg.Connection[Any], exchange: Exchange) -> None:
    large = "x" * 20_000_000
    assert exchange(connection, echo(large, 1), echo(large, 2)) == [(large, 1)]


def test_the_error_of_the_statement_is_told(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            exchange(connection, WRONG, write("kept"))
    assert written(connection) == ["kept"] * 3
    assert known(connection) == 2


def test_the_error_of_the_hint_is_nobody_s_business(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    for _ in range(3):
        assert exchange(connection, write("kept"), WRONG) == [("kept",)]
    assert written(connection) == ["kept"] * 3


def test_a_text_that_cannot_be_prepared_is_told_each_time(
    connection: psycopg.Connection[Any],
    exchange: Exchange,
) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            exchange(connection, Statement("SELECT * FROM nowhere", {}), echo("a", 1))
    assert exchange(connection, echo("a", 1), write("kept")) == [("a", 1)]


def test_a_value_that_cannot_be_sent_leaves_the_connection_as_it_was(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="cannot adapt"):
        exchange(connection, write("kept"), Statement(ECHO, {"value": object(), "number": 1}))
    assert not connection.closed
    assert written(connection) == []
    assert exchange(connection, echo("a", 1), write("kept")) == [("a", 1)]


@pytest.mark.parametrize("change", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_what_the_server_has_forgotten_is_told_again(
    connection: psycopg.Connection[Any], exchange: Exchange, change: str
) -> None:
    hint = Statement("SELECT 7", {})
    exchange(connection, echo("a", 1), hint)
    connection.execute(change.encode())
    for _ in range(2):
        assert exchange(connection, echo("a", 1), hint) == [("a", 1)]
    assert known(connection) == 2


def test_only_the_hint_was_forgotten(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    exchange(connection, echo("a", 1), write("first"))
    connection.execute("DEALLOCATE ALL")
    counted = Statement("INSERT INTO notes VALUES ('once') RETURNING value", {})
    assert exchange(connection, counted, write("second")) == [("once",)]
    assert written(connection) == ["first", "once", "second"]


def test_of_many_those_that_were_used_last_are_kept(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    for number in range(MOST_PREPARED + 20):
        text = f"SELECT {number} + %(number)s::integer"
        for added in (1, 2):
            statement = Statement(text, {"number": added})
            assert exchange(connection, statement, echo("a", 1)) == [(number + added,)]
    # One more than are kept until the next comes.
    assert known(connection) in (MOST_PREPARED, MOST_PREPARED + 1)
    names = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    texts = {text for (text,) in names}
    assert f"SELECT {MOST_PREPARED + 19} + $1::integer" in texts
    assert "SELECT $1::text, $2::integer" in texts
    assert "SELECT 0 + $1::integer" not in texts


def test_who_waits_for_a_turn_does_so_in_the_same_transaction(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    own = "INSERT INTO notes SELECT pg_current_xact_id()::text"
    for _ in range(2):
        in_turn = Statement(f"{own} RETURNING value", {}, turn=Statement(own, {}))
        exchange(connection, in_turn, echo("a", 1))
    assert len(written(connection)) == 4
    assert len(set(written(connection))) == 2
    assert known(connection) == 3


def test_what_its_turn_has_committed_is_seen(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    counted = Statement("SELECT count(*) FROM notes", {}, turn=write("before"))
    assert exchange(connection, counted, echo("a", 1)) == [(1,)]


def test_a_turn_that_does_not_come_is_an_error_and_nothing_has_run(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    waiting = Statement(WRITE, {"value": "lost"}, turn=WRONG)
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            exchange(connection, waiting, write("kept"))
    assert exchange(connection, write("kept"), echo("a", 1)) == [("kept",)]
    assert written(connection) == ["kept"] * 3
    with pytest.raises(psycopg.errors.DivisionByZero):
        exchange(
            connection, Statement(WRONG.text, WRONG.parameters, turn=write("lost")), echo("", 1)
        )
    assert written(connection) == ["kept"] * 3


def test_a_turn_that_the_server_has_forgotten_is_told_again(
    connection: psycopg.Connection[Any], exchange: Exchange
) -> None:
    in_turn = Statement(ECHO, {"value": "a", "number": 1}, turn=write("turn"))
    exchange(connection, in_turn, echo("a", 1))
    connection.execute("DEALLOCATE ALL")
    assert exchange(connection, in_turn, echo("a", 1)) == [("a", 1)]
    assert written(connection) == ["turn"] * 2


def test_inside_of_a_transaction_nobody_waits_for_a_turn(
    connection: psycopg.Connection[Any],
) -> None:
    with connection.transaction():
        in_turn = Statement(ECHO, {"value": "a", "number": 1}, turn=write("turn"))
        assert execute(connection, in_turn) == [("a", 1)]
    assert written(connection) == []


def test_a_connection_that_breaks_is_an_error_and_is_closed(
    connection: psycopg.Connection[Any], exchange: Exchange, shared_database: str
) -> None:
    def end() -> None:
        with psycopg.connect(shared_database, autocommit=True) as other:
            asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            until(lambda: other.execute(asleep, (connection.info.backend_pid,)).fetchone())
            other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(psycopg.OperationalError):
        exchange(connection, Statement("SELECT pg_sleep(60)", {}), echo("a", 1))
    ending.join()
    assert connection.closed


def submit_after_a_pause(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit a job in one message with its notification, and see that it was."""
    carried: list[Statement] = []

    def noted(connection: Any, statement: Statement, hint: Statement) -> list[Any]:
        carried.append(hint)
        return execute_with_hint(connection, statement, hint)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "execute_with_hint", noted)
        until(lambda: not store._open().notifier._pending)
        patch.setattr(store._open().notifier, "_due", 0.0)
        (answer,) = store.run(store.enqueue([draft()]))
    assert len(carried) == 1
    assert answer.created
    assert store.run(store.get([answer.job.id])) == [answer.job]


def test_a_submission_after_a_pause_carries_its_notification(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run(store.enqueue([draft()]))
    watch = store.watch(Wake.WORKERS)
    until(lambda: not watch.wait(0.05))
    # Nobody else may send one now.
    monkeypatch.setattr(store._open().notifier, "notify", lambda wakes: None)
    submit_after_a_pause(store, monkeypatch)
    assert watch.wait(20)
    watch.close()


def test_submissions_go_on_after_a_rollback(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver then forgets what it has prepared, and lets the server forget all."""
    for _ in range(10):
        store.run(store.enqueue([draft()]))
    submit_after_a_pause(store, monkeypatch)
    with pytest.raises(ZeroDivisionError), store.transaction():
        1 / 0  # noqa: B018
    submit_after_a_pause(store, monkeypatch)


def test_a_hint_that_is_refused_does_not_touch_the_submission(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HINT", "SELECT 1 / 0, %(channel)s::text")
    submit_after_a_pause(store, monkeypatch)


def test_what_was_forgotten_inside_a_transaction_is_told_again_with_all_of_it(
    store: PostgresStore,
) -> None:
    keyed = {"key": "one", "key_policy": KeyPolicy.REJECT}
    store.run(store.enqueue([draft(key="other")]))
    with store.transaction() as connection:
        connection.execute("DEALLOCATE ALL")
    store.run(store.enqueue([draft(**keyed)]))
    with pytest.raises(KeyConflict):
        store.run(store.enqueue([draft(**keyed)]))


def test_on_the_event_loop_nobody_else_waits_for_the_answer(store: PostgresStore) -> None:
    async def program() -> None:
        await store.arun(store.counts())
        sleeping = asyncio.ensure_future(store.arun(slow(0.5)))
        turns = 0
        while not sleeping.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 10

    asyncio.run(program())


def test_on_the_event_loop_no_thread_is_needed(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        await store.arun(store.counts())
        monkeypatch.setattr(store._open().threads, "submit", unwanted)
        await store.arun(store.counts())
        (answer,) = await store.arun(store.enqueue([draft()]))
        assert answer.created
        assert not store._open().submissions._alone.locked()

    def unwanted(*_: object) -> None:
        raise AssertionError("a thread was asked")

    asyncio.run(program())


def test_a_connection_that_was_not_used_for_long_is_looked_at_by_a_thread(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store._open()
    asked: list[object] = []
    submit = engine.threads.submit

    def noted(*what: Any) -> Any:
        asked.append(what)
        return submit(*what)

    async def program() -> None:
        await store.arun(store.counts())
        monkeypatch.setattr(engine.threads, "submit", noted)
        monkeypatch.setattr(connection_module, "IDLE_BEFORE_CHECK", -1.0)
        await store.arun(store.counts())
        assert len(asked) == 1

    asyncio.run(program())


def test_who_gives_up_on_the_event_loop_leaves_everything_in_order(store: PostgresStore) -> None:
    async def program() -> None:
        await store.arun(store.counts())
        gate = store._open().gate
        free = gate._free
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await store.arun(slow(1))
            await store.arun(store.counts())
        assert gate._free == free

    asyncio.run(program())


def test_many_submissions_of_one_event_loop_are_all_stored(store: PostgresStore) -> None:
    drafts = [draft() for _ in range(200)]

    async def program() -> None:
        answers = await asyncio.gather(*(store.arun(store.enqueue([each])) for each in drafts))
        assert all(answer.created for (answer,) in answers)

    asyncio.run(program())
    assert None not in store.run(store.get([each.id for each in drafts]))


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_a_call_that_blocks_its_own_event_loop_does_not_wait_for_it(
    shared_database: str, size: int
) -> None:
    async def program(store: PostgresStore) -> float:
        await store.arun(store.counts())
        held = [asyncio.ensure_future(store.arun(slow(0.05))) for _ in range(20)]
        await asyncio.sleep(0.01)
        begun = time.monotonic()
        with store.transaction():
            pass
        store.run(store.enqueue([draft()]))
        lasted = time.monotonic() - begun
        await asyncio.gather(*held)
        return lasted

    with closing(PostgresStore(shared_database, size=size)) as store:
        store.migrate()
        assert asyncio.run(program(store)) < CONNECT_TIMEOUT / 2


def test_others_do_not_wait_for_long_for_an_event_loop_that_is_busy(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.postgres.gate.PATIENCE", 10 * PATIENCE)
    engine = store._open()

    async def program() -> None:
        while len(engine.pool._pool) < MOST_ON_LOOPS:
            await asyncio.gather(*(store.arun(slow(0.01)) for _ in range(4)))
        held = [asyncio.ensure_future(store.arun(slow(0.01))) for _ in range(MOST_ON_LOOPS)]
        await asyncio.sleep(0)
        assert engine.gate.used_by_loops == MOST_ON_LOOPS
        # The event loop stands still.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(store.run, store.counts()).result(PATIENCE)
        assert not any(each.done() for each in held)
        await asyncio.gather(*held)

    asyncio.run(program())


def test_who_gives_up_a_submission_lets_others_know_of_it_all_the_same(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store._open()
    told: list[frozenset[Wake]] = []
    monkeypatch.setattr(engine.notifier, "notify", told.append)
    monkeypatch.setattr(engine.notifier, "rests", lambda: False)

    async def program() -> None:
        await store.arun(store.counts())
        submitting = asyncio.ensure_future(store.arun(store.enqueue([draft()])))
        await asyncio.sleep(0)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting

    asyncio.run(program())
    assert told == [frozenset({Wake.WORKERS})]


def test_after_a_submission_on_the_event_loop_workers_are_woken(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        await store.arun(store.counts())
        for rests in (True, False):
            monkeypatch.setattr(store._open().notifier, "rests", lambda rests=rests: rests)
            until(lambda: not watch.wait(0.05))
            await store.arun(store.enqueue([draft()]))
            assert await asyncio.to_thread(watch.wait, 20)
            until(lambda: not watch.wait(0.05))
            await store.arun(store.resume_queue("default"))
            assert await asyncio.to_thread(watch.wait, 20)

    with closing(store.watch(Wake.WORKERS)) as watch:
        watch.wait(20)
        asyncio.run(program())


def test_a_survey_that_is_due_is_made_after_a_call_on_the_event_loop(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys: list[object] = []
    monkeypatch.setattr(store._open(), "survey", surveys.append)
    monkeypatch.setattr(PostgresStore, "survey_is_due", True)

    async def program() -> None:
        await store.arun(store.counts())
        surveys.clear()
        await store.arun(store.counts())

    asyncio.run(program())
    assert len(surveys) == 1


def slow(seconds: float) -> Operation[None]:
    def sleep() -> Steps[None]:
        yield Statement("SELECT pg_sleep(%(seconds)s::float8)", {"seconds": seconds})

    return Operation(sleep, writes=False, atomic=False)
