"""Transactions on the writer's connection: one operation, or several that share a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import apsw

from duly.errors import StoreUnavailable
from duly.model.job import Draft, joined
from duly.model.query import Enqueued, Stored
from duly.store.awaiting import Recipient
from duly.store.operation import Operation, Row, Statement, drive
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
        self._patience = Patience(before_waiting)
        self.connection: apsw.Connection | None = None
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
        returned: T | None = self._hope_for(operation)
        if returned is None:
            returned = self._transact(lambda connection: self._drive(operation, connection))
        return returned

    def run_together(
        self, batch: Sequence[Request], before_commit: Callable[[], None]
    ) -> list[Outcome]:
        """Run operations in one transaction. `before_commit` is called when only the engine has
        work left, during which other threads have the interpreter for themselves."""
        if not all(operation.drafts for operation, _ in batch):
            return self._transact(lambda each: self._perform(batch, each), before_commit)
        try:
            return self._submit(batch, before_commit)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                raise
            # One of them is refused, or too large for the disk: that is not the others' fault.
            return self._transact(lambda each: self._apart(batch, each), before_commit)

    def _use(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(self._patience)
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
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return result

    def _submit(self, batch: Sequence[Request], before_commit: Callable[[], None]) -> list[Outcome]:
        """Store submissions as one; it fails if one of them is refused."""
        together = self._together(batch)
        stored = self._hope_for(together, before_commit)
        if stored is not None:
            return [(each, Stored(each[0].drafts, stored.at), None) for each in batch]
        answers = self._transact(lambda each: self._drive(together, each), before_commit)
        return _shares(answers, batch)

    def _together(self, batch: Sequence[Request]) -> Operation[Sequence[Enqueued]]:
        return self._enqueue(joined([operation.drafts for operation, _ in batch]))

    def _hope_for(
        self, operation: Operation[Any], before_commit: Callable[[], None] | None = None
    ) -> Any:
        """Run an operation the quicker way, as one statement that is a transaction of its own;
        answers None if there is no such way, or it has stored nothing. It waits for nobody: it has
        read the clock, and what counts is the time at which it has the file."""
        if operation.hopefully is None:
            return None
        with errors_explained(self._path):
            connection = self.ready()

            def store(statement: Statement) -> list[Row]:
                if before_commit is not None:
                    before_commit()
                return execute(connection, statement)

            self._patience.waits = False
            try:
                return drive(operation.hopefully(), store)
            except (apsw.ConstraintError, apsw.BusyError):
                return None
            finally:
                self._patience.waits = True

    def _perform(self, batch: Sequence[Request], connection: apsw.Connection) -> list[Outcome]:
        """One alone that fails is rolled back with the transaction."""
        if len(batch) == 1:
            return [(batch[0], self._drive(batch[0][0], connection), None)]
        submissions = [request for request in batch if request[0].drafts]
        if len(submissions) > 1:
            together = self._together(submissions)
            answers, _ = self._saved(lambda: self._drive(together, connection), connection)
            if answers:
                others = [request for request in batch if not request[0].drafts]
                return [*_shares(answers, submissions), *self._apart(others, connection)]
        return self._apart(batch, connection)

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


def _shares(answers: Sequence[Enqueued], batch: Sequence[Request]) -> list[Outcome]:
    """To each its part of what submissions that were stored as one are answered with."""
    outcomes: list[Outcome] = []
    start = 0
    for request in batch:
        end = start + len(request[0].drafts)
        outcomes.append((request, answers[start:end], None))
        start = end
    return outcomes
