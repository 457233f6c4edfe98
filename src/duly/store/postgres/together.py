"""Several statements in one message to the server.

The driver's own pipeline sends each statement by itself: whoever waits for the second has to wait
for the client, too.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from itertools import count
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

from duly.store.operation import Row, Statement
from duly.store.postgres.arrays import as_array
from duly.store.postgres.connection import numbered

SUPPORTED = psycopg.Pipeline.is_supported()

Prepared = dict[tuple[str, tuple[int, ...]], bytes]
"""The names under which a server knows texts, by the types of their parameters."""

_numbers = count()


def execute_together(
    connection: psycopg.Connection[Any], statements: Sequence[Statement]
) -> list[list[Row]]:
    """Run statements one after another, each committed by itself, with one trip to the server.

    The connection is direct, in no transaction, and has been seen by `configure`. An error is that
    of the first statement that failed; the others have been run all the same.
    """
    pgconn = connection.pgconn
    prepared: Prepared = connection.__dict__.setdefault("duly_prepared", {})
    try:
        pgconn.enter_pipeline_mode()
        new: Prepared = {}
        for statement in statements:
            new |= _send(connection, statement, prepared)
            pgconn.pipeline_sync()
        results = [_received(pgconn) for _ in statements]
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Nobody knows what is still to come on this connection.
        connection.close()
        raise
    answers = [_rows(connection, result) for result in results]
    prepared |= new
    return answers


def _send(
    connection: psycopg.Connection[Any], statement: Statement, prepared: Prepared
) -> Prepared:
    """Send a statement; answers how it is to be known from now on, if it was not known yet."""
    text, names = numbered(statement.text)
    values = [statement.parameters[name] for name in names]
    transformer = Transformer(connection)
    dumped = transformer.dump_sequence(
        [as_array(each) if type(each) is list else each for each in values],
        [PyFormat.BINARY] * len(values),
    )
    key = (text, transformer.types or ())
    name = prepared.get(key)
    new: Prepared = {}
    if name is None:
        # Of one that failed nobody knows whether it was prepared: its name is not used again.
        name = b"duly_%d" % next(_numbers)
        new[key] = name
        connection.pgconn.send_prepare(name, text.encode(), key[1])
    connection.pgconn.send_query_prepared(
        name, dumped, transformer.formats, result_format=pq.Format.BINARY
    )
    return new


def _received(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    """The result of the next statement; one that failed if its preparation did."""
    result: pq.abc.PGresult | None = None
    while True:
        while (unsent := pgconn.flush()) or pgconn.is_busy():
            _wait(pgconn.socket, unsent)
            pgconn.consume_input()
        each = pgconn.get_result()
        if each is None:
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(pgconn.get_error_message())
            continue
        if each.status == pq.ExecStatus.PIPELINE_SYNC:
            assert result is not None
            return result
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            result = each


def _wait(socket: int, unsent: int) -> None:
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
    poll.poll()


def _rows(connection: psycopg.Connection[Any], result: pq.abc.PGresult) -> list[Row]:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result, connection.info.encoding)
    if not result.nfields:
        return []
    transformer = Transformer(connection)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)
