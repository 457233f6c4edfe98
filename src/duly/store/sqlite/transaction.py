"""The caller's transaction on SQLite, on a connection that the store hands out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import apsw

from duly.errors import StoreError, TransactionEnded
from duly.store.operation import Operation, Row, drive
from duly.store.sqlite.connection import errors_explained, execute
from duly.store.sqlite.writer import Lease

T = TypeVar("T")


class SqliteTransaction:
    """A connection for the caller's own writes, committed together with the jobs enqueued on it.

    The transaction is ended by the block that it was handed out for, not by a statement.
    """

    def __init__(self, connection: apsw.Connection, lease: Lease, path: str) -> None:
        self._connection = connection
        self._lease = lease
        self.path = path

    def execute(self, text: str, parameters: Any = None) -> list[Row]:
        """Run a statement and return its rows."""
        with self._lease.in_use:
            self._require_valid()
            try:
                return list(self._connection.execute(text, parameters))
            except apsw.AuthError as error:
                raise StoreError(
                    "BEGIN, COMMIT, ROLLBACK, ATTACH and DETACH are not yours to run here: the "
                    "block ends the transaction, by leaving it or by an exception"
                ) from error
            except apsw.InterruptError as error:
                raise TransactionEnded("the transaction took too long and was ended") from error

    def executemany(self, text: str, parameters: Iterable[Any]) -> list[Row]:
        """Run a statement once for each of the parameters and return all rows."""
        with self._lease.in_use:
            self._require_valid()
            return list(self._connection.executemany(text, parameters))

    def run(self, operation: Operation[T]) -> T:
        """Run a store's operation in this transaction."""
        with self._lease.in_use:
            self._require_valid()
            connection = self._connection
            with errors_explained(self.path):
                connection.execute("SAVEPOINT operation")
                try:
                    result = drive(operation.start(), lambda each: execute(connection, each))
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK TO operation")
                        connection.execute("RELEASE operation")
                    raise
                connection.execute("RELEASE operation")
                return result

    def _require_valid(self) -> None:
        if not self._lease.valid:
            raise TransactionEnded(
                "this connection's transaction has ended; use it inside its block only, and not "
                "for longer than the limit"
            )
