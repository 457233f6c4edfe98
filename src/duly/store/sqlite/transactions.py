"""Transactions on the writer's connection: one operation, or several that share a commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import apsw

from duly.errors import StoreUnavailable
from duly.model.job import Draft, joined
from duly.model.query import Enqueued
from duly.store.awaiting import Recipient
from duly.store.operation import Operation, drive
from duly.store.sqlite.connection import Patience, connect, errors_explained, execute

T = TypeVar("T")

Request = tuple[Operation[Any], Recipient]
Outcome = tuple[Request, Any, BaseException | None]
Enqueue = Callable[[Sequence[Draft]], Operation[Sequence[Enqueued]]]


class Transactions:
    """Of one thread at a time. `before_waiting` is called when another process has the file locked.

    Of several operations in one transaction each has a savepoint of its own, so that one that fails
    takes nothing with it. Only submissions that may be shared are stored as one, and each for
    itself if that fails.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: str,
        enqueue: Enqueue,
        before_waiting: Callable[[], None],
    ) -> None:
        self._path = path
        self._enqueue = enqueue
        self._before_waiting = before_waiting
        self.connection: apsw.Connection | None = None
        self.committing = 0.0
        """How many seconds the last commit took."""
        self._use(connection)

    def ready(self) -> apsw.Connection:
        """The connection, in no transaction; opened again if it was let go."""
        if self.connection is None:
            self._use(connect(self._path))
        assert self.connection is not None
        if self.connection.in_transaction:
            # Whoever was here before was interrupted before he could undo what he had begun.
            self.connection.execute("ROLLBACK")
        return self.connection

    def let_go(self) -> None:
        """Close the connection until one is needed."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def run(self, operation: Operation[T]) -> T:
        """Run one operation in a transaction of its own; answers what its steps return."""
        return self._transact(lambda connection: self._drive(operation, connection))

    def run_together(
        self, batch: Sequence[Request], before_commit: Callable[[], None]
    ) -> list[Outcome]:
        """Run operations in one transaction. `before_commit` is called when only its end is left,
        during which other threads have the interpreter for themselves."""
        if len(batch) > 1 and all(operation.drafts for operation, _ in batch):
            try:
                return self._transact(lambda each: self._as_one(batch, each), before_commit)
            except StoreUnavailable:
                raise
            except Exception:
                # One of them is refused, or too large for the disk: that is not the others' fault.
                return self._transact(lambda each: self._apart(batch, each), before_commit)
        return self._transact(lambda each: self._perform(batch, each), before_commit)

    def _use(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(Patience(self._before_waiting))
        self.connection = connection

    def _transact(
        self,
        work: Callable[[apsw.Connection], T],
        before_commit: Callable[[], None] | None = None,
    ) -> T:
        with errors_explained(self._path):
            connection = self.ready()
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                if before_commit is not None:
                    before_commit()
                begun = time.monotonic()
                connection.execute("COMMIT")
                self.committing = time.monotonic() - begun
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return result

    def _perform(self, batch: Sequence[Request], connection: apsw.Connection) -> list[Outcome]:
        """One alone that fails is rolled back with the transaction."""
        if len(batch) == 1:
            return [(batch[0], self._drive(batch[0][0], connection), None)]
        submissions = [request for request in batch if request[0].drafts]
        if len(submissions) > 1:
            stored, _ = self._saved(lambda: self._as_one(submissions, connection), connection)
            if stored:
                others = [request for request in batch if not request[0].drafts]
                return [*stored, *self._apart(others, connection)]
        return self._apart(batch, connection)

    def _as_one(self, batch: Sequence[Request], connection: apsw.Connection) -> list[Outcome]:
        """Submissions that are stored as one; it fails if one of them is refused."""
        drafts = joined([operation.drafts for operation, _ in batch])
        answers = self._drive(self._enqueue(drafts), connection)
        outcomes: list[Outcome] = []
        start = 0
        for request in batch:
            end = start + len(request[0].drafts)
            outcomes.append((request, answers[start:end], None))
            start = end
        return outcomes

    def _apart(self, batch: Sequence[Request], connection: apsw.Connection) -> list[Outcome]:
        """The failure of each is its own."""
        outcomes: list[Outcome] = []
        for request in batch:
            work = partial(self._drive, request[0], connection)
            outcomes.append((request, *self._saved(work, connection)))
        return outcomes

    def _saved(
        self, work: Callable[[], T], connection: apsw.Connection
    ) -> tuple[T | None, BaseException | None]:
        """Do something that leaves nothing behind if it fails."""
        connection.execute("SAVEPOINT operation")
        try:
            result = work()
        except BaseException as error:
            if not connection.in_transaction:
                # The engine gave up the whole transaction, as it does when the disk is full.
                raise
            connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")
            return None, error
        connection.execute("RELEASE operation")
        return result, None

    def _drive(self, operation: Operation[T], connection: apsw.Connection) -> T:
        with errors_explained(self._path):
            return drive(operation.start(), lambda each: execute(connection, each))
