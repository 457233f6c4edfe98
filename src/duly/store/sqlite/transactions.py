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
from duly.store.sqlite.connection import (
    CHECKPOINT,
    Patience,
    connect,
    errors_explained,
    execute,
)
from duly.store.sqlite.syncing import Syncing

T = TypeVar("T")

Request = tuple[Operation[Any], Recipient]
Outcome = tuple[Request, Any, BaseException | None]
Enqueue = Callable[[Sequence[Draft]], Operation[Sequence[Enqueued]]]


class Transactions:
    """Of one thread at a time. `before_waiting` is called when another process has the file locked.

    What is committed is on the disk, but for operations that are `early`: these are when `sync` is
    called, or with the next commit. A submission that is alone is synced when it has let go of the
    file, before it is answered: others can write meanwhile.

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
        self._syncing = Syncing(path)
        self.connection: apsw.Connection | None = None
        self._use(connection)

    def ready(self, is_synced_later: bool = False) -> apsw.Connection:
        """The connection, in no transaction; opened again if it was let go."""
        if self.connection is None:
            self._use(connect(self._path))
        assert self.connection is not None
        if self.connection.in_transaction:
            # Whoever was here before was interrupted before he could undo what he had begun.
            self.connection.execute("ROLLBACK")
        self._syncing.prepare(self.connection, is_synced_later)
        return self.connection

    def let_go(self) -> None:
        """Close the connection until one is needed."""
        connection, self.connection = self.connection, None
        try:
            self._syncing.let_go()
        finally:
            if connection is not None:
                connection.close()

    @property
    def is_unsynced(self) -> bool:
        """Whether something is committed that may not be on the disk."""
        return self._syncing.is_due

    def sync(self) -> None:
        """Have everything on the disk that is committed."""
        self._syncing.sync()

    def run(self, operation: Operation[T]) -> T:
        """Run one operation in a transaction of its own; answers what its steps return."""
        later = operation.early or bool(operation.drafts)
        returned: T | None = self._hope_for(operation, is_synced_later=later)
        if returned is None:
            returned = self._transact(partial(self._drive, operation), is_synced_later=later)
        if later and not operation.early:
            self._syncing.sync()
        return returned

    def try_to_run(self, operation: Operation[T]) -> tuple[T] | None:
        """Run one operation that is `early`, unless another process has the file; what may take
        long is left to the next."""
        with errors_explained(self._path):
            connection = self.ready(is_synced_later=True)
        self._patience.waits = False
        connection.wal_autocheckpoint(0)
        try:
            return (self._transact(partial(self._drive, operation), is_synced_later=True),)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, apsw.BusyError):
                return None
            raise
        finally:
            connection.wal_autocheckpoint(CHECKPOINT)
            self._patience.waits = True

    def run_together(
        self, batch: Sequence[Request], before_commit: Callable[[], None]
    ) -> list[Outcome]:
        """Run operations in one transaction. `before_commit` is called when only the engine has
        work left, during which other threads have the interpreter for themselves."""
        if not all(operation.drafts for operation, _ in batch):
            early = all(operation.early for operation, _ in batch)
            return self._transact(lambda each: self._perform(batch, each), before_commit, early)
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
        is_synced_later: bool = False,
    ) -> T:
        with errors_explained(self._path):
            connection = self.ready(is_synced_later)
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
        answers = self._transact(partial(self._drive, together), before_commit)
        return _shares(answers, batch)

    def _together(self, batch: Sequence[Request]) -> Operation[Sequence[Enqueued]]:
        return self._enqueue(joined([operation.drafts for operation, _ in batch]))

    def _hope_for(
        self,
        operation: Operation[Any],
        before_commit: Callable[[], None] | None = None,
        is_synced_later: bool = False,
    ) -> Any:
        """Run an operation the quicker way, as one statement that is a transaction of its own;
        answers None if there is no such way, or it has stored nothing. It has read the clock, and
        what counts is the time at which it has the file: where it has to wait, it begins anew."""
        if operation.hopefully is None:
            return None
        with errors_explained(self._path):
            connection = self.ready(is_synced_later)

            def store(statement: Statement) -> list[Row]:
                if before_commit is not None:
                    before_commit()
                return execute(connection, statement)

            self._patience.waits = False
            tries = 0
            try:
                while True:
                    try:
                        return drive(operation.hopefully(), store)
                    except apsw.ConstraintError:
                        return None
                    except apsw.BusyError:
                        if not self._patience.nap(tries):
                            raise
                        tries += 1
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
