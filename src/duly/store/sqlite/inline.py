"""A store in memory without threads, for simulations: who asks does the work, and commits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import apsw

from duly.errors import StoreError
from duly.model.journal import Journal
from duly.store.operation import Operation, Wake, drive
from duly.store.protocol import Change
from duly.store.sqlite.connection import connect, errors_explained, execute
from duly.store.sqlite.journal import keep_journal
from duly.store.sqlite.lease import Lease, forbid_transaction_control
from duly.store.sqlite.schema import bring_up_to_date
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.transaction import SqliteTransaction

T = TypeVar("T")

LOOK_AGAIN = 0.001

Listener = Callable[[frozenset[Wake]], None]


class InlineSqliteStore(SqliteStore):
    """Operations run in the thread that asks, one at a time, each in a transaction of its own.

    Every look at the database is deterministic: nothing happens beside it. `listeners` are called
    after each commit with those whom it may concern.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        super().__init__("", journal)
        self.listeners: list[Listener] = []
        self._connection: apsw.Connection | None = None
        self._turn = threading.RLock()

    def run(self, operation: Operation[T]) -> T:
        """See Store.run."""
        with self._turn:
            result = self._run(operation)
        if result or not operation.quiet:
            self._tell(operation.wakes)
        return result

    async def arun(self, operation: Operation[T]) -> T:
        """See Store.arun. It waits only while another coroutine is in a transaction."""
        while self._connected().in_transaction:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN)
        return self.run(operation)

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """See Store.transaction."""
        with self._turn:
            connection = self._begun()
            connection.authorizer = forbid_transaction_control
            lease = Lease()
            commits = False
            try:
                yield SqliteTransaction(connection, lease, self.path, self)
                commits = True
            finally:
                lease.valid = False
                connection.authorizer = None
                if connection.in_transaction:
                    connection.execute("COMMIT" if commits else "ROLLBACK")
        self._tell(frozenset(Wake))

    def watch(self, wake: Wake) -> Change:
        """See Store.watch."""
        return self._signal.watch()

    def migrate(self) -> list[str]:
        """See Store.migrate."""
        self._connected()
        return []

    def close(self) -> None:
        """See Store.close: everything is forgotten."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _run(self, operation: Operation[T]) -> T:
        with errors_explained(self.path):
            connection = self._begun()
            try:
                result = drive(operation.start(), lambda each: execute(connection, each))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return operation.answer(result)

    def _begun(self) -> apsw.Connection:
        connection = self._connected()
        if connection.in_transaction:
            raise StoreError(
                "this thread is in a transaction() block of another coroutine and would wait for "
                "itself: use `await ...aenqueue(...)` there"
            )
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            with self._turn:
                connection = connect("")
                connection.deserialize("main", _empty())
                if self._wanted_journal is not None:
                    keep_journal(connection, self._wanted_journal)
                self._connection = connection
        return self._connection

    def _tell(self, wakes: frozenset[Wake]) -> None:
        if wakes:
            self._signal.send(wakes)
            for listener in tuple(self.listeners):
                listener(wakes)


@lru_cache(maxsize=1)
def _empty() -> bytes:
    """A database with our schema and nothing in it: made once, then copied."""
    connection = connect("")
    try:
        bring_up_to_date(connection, "memory")
        return bytes(connection.serialize("main"))
    finally:
        connection.close()
