"""A statement and a hint to others in one message to the server.

The driver's own pipeline sends each statement by itself: whoever waits for the second has to wait
for the client, too.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

from duly.store.operation import Row, Statement
from duly.store.postgres.arrays import as_array
from duly.store.postgres.connection import numbered

SUPPORTED = psycopg.Pipeline.is_supported()
MOST_PREPARED = 50
NO_SUCH_STATEMENT = b"26000"

Key = tuple[str, tuple[int, ...]]
"""A text and the types of its parameters."""

_numbers = count()


class _Sent(msgspec.Struct):
    """A statement on its way; `name` is what it is being prepared as."""

    key: Key
    name: bytes | None


def execute_with_hint(
    connection: psycopg.Connection[Any], statement: Statement, hint: Statement
) -> list[Row]:
    """Run a statement and after it the hint, each in a transaction of its own, in one message.

    The connection is direct, in no transaction, and has been seen by `configure`. What becomes of
    the hint nobody is told; it is sent also if the statement fails.
    """
    statements = [statement, hint]
    results = _exchange(connection, statements)
    forgotten = [each for each, result in zip(statements, results, strict=True) if _lost(result)]
    if forgotten:
        # After a rollback the driver has the server forget everything that was prepared.
        _prepared(connection).clear()
        again = _exchange(connection, forgotten)
        if forgotten[0] is statement:
            results = again
    return _rows(connection, results[0])


def _prepared(connection: psycopg.Connection[Any]) -> dict[Key, bytes]:
    """The names under which the server knows statements on this connection."""
    names: dict[Key, bytes] = connection.__dict__.setdefault("duly_prepared", {})
    return names


def _exchange(
    connection: psycopg.Connection[Any], statements: Sequence[Statement]
) -> list[pq.abc.PGresult]:
    """Send all, then receive the result of each."""
    pgconn = connection.pgconn
    try:
        pgconn.enter_pipeline_mode()
        sent = []
        for statement in statements:
            sent.append(_send(connection, statement))
            pgconn.pipeline_sync()
        received = [_received(pgconn) for _ in sent]
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Nobody knows what is still to come on this connection.
        connection.close()
        raise
    for each, results in zip(sent, received, strict=True):
        if each.name is not None and results[0].status == pq.ExecStatus.COMMAND_OK:
            _prepared(connection)[each.key] = each.name
    failed = pq.ExecStatus.FATAL_ERROR
    return [next((r for r in results if r.status == failed), results[-1]) for results in received]


def _send(connection: psycopg.Connection[Any], statement: Statement) -> _Sent:
    text, names = numbered(statement.text)
    values = [statement.parameters[name] for name in names]
    transformer = Transformer(connection)
    dumped = transformer.dump_sequence(
        [as_array(each) if type(each) is list else each for each in values],
        [PyFormat.BINARY] * len(values),
    )
    pgconn, prepared = connection.pgconn, _prepared(connection)
    sent = _Sent((text, transformer.types or ()), None)
    name = prepared.get(sent.key, b"")
    if not name and len(prepared) < MOST_PREPARED:
        name = sent.name = b"duly_%d" % next(_numbers)
    if sent.name or not name:
        # Without a name it is forgotten with the next.
        pgconn.send_prepare(name, text.encode(), sent.key[1])
    pgconn.send_query_prepared(name, dumped, transformer.formats, result_format=pq.Format.BINARY)
    return sent


def _received(pgconn: pq.abc.PGconn) -> list[pq.abc.PGresult]:
    """The results of the next statement, and of its preparation."""
    results: list[pq.abc.PGresult] = []
    while True:
        while (unsent := pgconn.flush()) or pgconn.is_busy():
            _wait(pgconn.socket, unsent)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(pgconn.get_error_message())
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


def _wait(socket: int, unsent: int) -> None:
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
    poll.poll()


def _lost(result: pq.abc.PGresult) -> bool:
    return result.error_field(pq.DiagnosticField.SQLSTATE) == NO_SUCH_STATEMENT


def _rows(connection: psycopg.Connection[Any], result: pq.abc.PGresult) -> list[Row]:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result, connection.info.encoding)
    if not result.nfields:
        return []
    transformer = Transformer(connection)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)
