"""Statements on their way to the server, and their rows on the way back.

Between connections that lead to the server itself and this module stands nothing but libpq: the
driver's cursors take three times as long for a statement, and its pipeline sends each by itself.
What is said is written once, without waiting: whoever carries it waits, in a thread or on an event
loop.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Generator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import LockNotAvailable, error_from_result

from duly.store.operation import Row, Statement
from duly.store.postgres.arrays import as_array
from duly.store.postgres.connection import NoTurn

T = TypeVar("T")

PIPELINES = psycopg.Pipeline.is_supported()
MOST_PREPARED = 100
NO_SUCH_STATEMENT = b"26000"
_NAMED = re.compile(r"%\((\w+)\)s")

Key = tuple[str, tuple[int, ...]]
"""A text and the types of its parameters."""

Talk = Generator[bool, None, T]
"""Yields when the server has to answer, and whether there is something left to send to it."""

_numbers = count()


class _Message(msgspec.Struct, frozen=True):
    """A statement as it is sent; if the server does not know it yet, it is told its `text` first,
    under the name that it gets, or without one, to be forgotten with the next."""

    key: Key
    name: bytes
    text: bytes | None
    values: Sequence[Any]
    formats: Sequence[pq.Format] | None


class _Known:
    """What is kept with a connection: the names under which the server knows statements, those used
    last at the end, and what turns values into bytes and back."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.names: dict[Key, bytes] = {}
        self.dumping = Transformer(connection)
        self.loading = Transformer(connection)


def is_plain(connection: psycopg.Connection[Any]) -> bool:
    """Whether statements go through libpq here: no pooler stands between, and it is new enough.
    The connection has been seen by `configure`."""
    return PIPELINES and connection.prepare_threshold is not None


def execute(connection: psycopg.Connection[Any], statement: Statement) -> list[Row]:
    """Run one statement and fetch its rows."""
    if not is_plain(connection):
        return _execute_by_driver(connection, statement)
    return _blocking(connection, _talk(connection, [statement]))


def execute_with_hint(
    connection: psycopg.Connection[Any], statement: Statement, hint: Statement
) -> list[Row]:
    """Run a statement and after it the hint, each in a transaction of its own, in one message.

    The connection `is_plain` and in no transaction. What becomes of the hint nobody is told; it is
    sent also if the statement fails.
    """
    return _blocking(connection, _talk(connection, [statement, hint]))


async def aexecute(
    connection: psycopg.Connection[Any], statement: Statement, *hints: Statement
) -> list[Row]:
    """The same on the event loop. Cancelled, it closes the connection; the server may go on."""
    talk = _talk(connection, [statement, *hints])
    try:
        unsent = next(talk)
        while True:
            await _readiness(connection.pgconn.socket, unsent)
            unsent = talk.send(None)
    except StopIteration as stop:
        rows: list[Row] = stop.value
        return rows
    finally:
        talk.close()


def _blocking(connection: psycopg.Connection[Any], talk: Talk[T]) -> T:
    try:
        unsent = next(talk)
        while True:
            _wait(connection.pgconn.socket, unsent)
            unsent = talk.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        talk.close()


def _talk(connection: psycopg.Connection[Any], statements: Sequence[Statement]) -> Talk[list[Row]]:
    """Run all, each in a transaction of its own unless there is one; answers the first's rows."""
    known = _known(connection)
    results = yield from _exchange(connection, known, statements)
    if any(map(_lost, results)):
        # After a rollback the driver may have had the server forget everything that was prepared.
        known.names.clear()
        if connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            again = [each for each, got in zip(statements, results, strict=True) if _lost(got)]
            repeated = yield from _exchange(connection, known, again)
            if again[0] is statements[0]:
                results = repeated
    try:
        return _rows(connection, known, results[0])
    except LockNotAvailable as error:
        if statements[0].turn is None:
            raise
        raise NoTurn(str(error)) from error


def _known(connection: psycopg.Connection[Any]) -> _Known:
    known: _Known | None = connection.__dict__.get("duly_known")
    if known is None:
        known = connection.__dict__["duly_known"] = _Known(connection)
    return known


def _exchange(
    connection: psycopg.Connection[Any], known: _Known, statements: Sequence[Statement]
) -> Talk[list[pq.abc.PGresult]]:
    """Send all, then receive the result of each."""
    pgconn = connection.pgconn
    alone = pgconn.transaction_status == pq.TransactionStatus.IDLE
    transactions = [
        [_message(known, each) for each in (statement.turn if alone else None, statement) if each]
        for statement in statements
    ]
    while len(known.names) > MOST_PREPARED:
        transactions.append([_oldest_forgotten(known)])
    try:
        pgconn.enter_pipeline_mode()
        for messages in transactions:
            for message in messages:
                if message.text is not None:
                    pgconn.send_prepare(message.name, message.text, message.key[1])
                pgconn.send_query_prepared(
                    message.name, message.values, message.formats, result_format=pq.Format.BINARY
                )
            pgconn.pipeline_sync()
        received = []
        for _ in transactions:
            received.append((yield from _received(pgconn)))
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Nobody knows what is still to come on this connection.
        connection.close()
        raise
    for messages, results in zip(transactions, received, strict=True):
        _remember(known, messages, results)
    failed = pq.ExecStatus.FATAL_ERROR
    return [
        next((each for each in results if each.status == failed), results[-1])
        for results in received[: len(statements)]
    ]


def _message(known: _Known, statement: Statement) -> _Message:
    text, names = numbered(statement.text)
    parameters = statement.parameters
    values = [parameters[name] for name in names]
    dumping = known.dumping
    dumped = dumping.dump_sequence(
        [as_array(each) if type(each) is list else each for each in values],
        [PyFormat.BINARY] * len(values),
    )
    key = (text, dumping.types or ())
    name = known.names.pop(key, None)
    if name is not None:
        known.names[key] = name
        return _Message(key, name, None, dumped, dumping.formats)
    return _Message(key, b"duly_%d" % next(_numbers), text.encode(), dumped, dumping.formats)


def _remember(
    known: _Known, messages: Sequence[_Message], results: Sequence[pq.abc.PGresult]
) -> None:
    """Note under which names the server knows statements now: it prepares none behind one that
    failed."""
    left = iter(results)
    for message in messages:
        if message.text is not None:
            if next(left).status != pq.ExecStatus.COMMAND_OK:
                return
            if message.name:
                known.names[message.key] = message.name
        next(left, None)


def _oldest_forgotten(known: _Known) -> _Message:
    """Has the server forget the statement that was not used for longest."""
    name = known.names.pop(next(iter(known.names)))
    return _Message(("DEALLOCATE", ()), b"", b"DEALLOCATE " + name, (), None)


def _received(pgconn: pq.abc.PGconn) -> Talk[list[pq.abc.PGresult]]:
    """The results of the next statement, and of its preparation."""
    results: list[pq.abc.PGresult] = []
    while True:
        while (unsent := pgconn.flush()) or pgconn.is_busy():
            yield bool(unsent)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(pgconn.get_error_message())
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


def _wait(socket: int, unsent: bool) -> None:
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
    poll.poll()


async def _readiness(socket: int, unsent: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(socket, _tell, ready)
    try:
        if unsent:
            loop.add_writer(socket, _tell, ready)
        await ready
    finally:
        loop.remove_reader(socket)
        if unsent:
            loop.remove_writer(socket)


def _tell(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _lost(result: pq.abc.PGresult) -> bool:
    return result.error_field(pq.DiagnosticField.SQLSTATE) == NO_SUCH_STATEMENT


def _rows(connection: psycopg.Connection[Any], known: _Known, result: pq.abc.PGresult) -> list[Row]:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result, connection.info.encoding)
    if not result.nfields:
        return []
    known.loading.set_pgresult(result)
    rows = known.loading.load_rows(0, result.ntuples, tuple)
    known.loading.set_pgresult(None)
    return rows


def _execute_by_driver(connection: psycopg.Connection[Any], statement: Statement) -> list[Row]:
    """It would look for parameters in a long text every time, and describe each column of the
    answer only to tell that there is one."""
    text, names = numbered(statement.text)
    parameters = statement.parameters
    values = [parameters[name] for name in names]
    cursor = psycopg.RawCursor(connection)
    cursor.execute(
        text,
        [as_array(each) if type(each) is list else each for each in values],
        prepare=True if connection.prepare_threshold is not None else None,
        binary=True,
    )
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


@lru_cache(maxsize=256)
def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with $1, $2, ... for its named parameters, and their names in that order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return _NAMED.sub(number, text), tuple(names)
