"""The caller's transaction on SQLite, on a connection that the store hands out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from duly.errors import StoreError, TransactionEnded
from duly.store.interruptions import put_off, raise_what_was_put_off
from duly.store.operation import Operation, Row, drive
from duly.store.sqlite.connection import errors_explained, execute
from duly.store.sqlite.lease import Lease

T = TypeVar("T")


class SqliteTransaction:
    """A connection for the caller's own writes, committed together with the jobs enqueued on it.

    The transaction is ended by the block that it was handed out for, not by a statement.
    """

    def __init__(self, connection: apsw.Connection, lease: Lease, path: str, store: object) -> None:
        self._connection = connection
        self._lease = lease
        self.path = path
        self.store = store

    def execute(self, text: str, parameters: Any = None) -> list[Row]:
        """Run a statement and return its rows."""
        with self._in_use() as connection:
            return list(connection.execute(text, parameters))

    def executemany(self, text: str, parameters: Iterable[Any]) -> list[Row]:
        """Run a statement once for each of the parameters and return all rows."""
        with self._in_use() as connection:
            return list(connection.executemany(text, parameters))

    def run(self, operation: Operation[T]) -> T:
        """Run a store's operation in this transaction."""
        with self._in_use() as connection, errors_explained(self.path):
            connection.execute("SAVEPOINT operation")
            try:
                result = drive(operation.start(), lambda each: execute(connection, each))
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK TO operation")
                    connection.execute("RELEASE operation")
                raise
            connection.execute("RELEASE operation")
            return operation.answer(result)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """See Transaction.nested."""
        self.execute("SAVEPOINT nested")
        try:
            yield
        except BaseException:
            if self._lease.valid:
                self.execute("ROLLBACK TO nested")
                self.execute("RELEASE nested")
            raise
        self.execute("RELEASE nested")

    @contextmanager
    def _in_use(self) -> Iterator[apsw.Connection]:
        """The connection, for one caller at a time and only while the transaction lasts."""
        with self._lease.in_use:
            if not self._lease.valid:
                raise TransactionEnded(
                    "this connection's transaction has ended; use it inside its block only, and "
                    "not for longer than the limit"
                )
            if not self._connection.in_transaction:
                raise TransactionEnded("an earlier error made SQLite roll this transaction back")
            try:
                yield self._connection
            except apsw.AuthError as error:
                raise StoreError(
                    "BEGIN, COMMIT, ROLLBACK, ATTACH and DETACH are not yours to run here: the "
                    "block ends the transaction, by leaving it or by an exception"
                ) from error
            except apsw.InterruptError as error:
                raise TransactionEnded("the transaction took too long and was ended") from error
        if put_off:
            raise_what_was_put_off()
