"""Transactions on the writer's connection: one operation, or several that share a commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import apsw

from duly.errors import StoreError, StoreUnavailable
from duly.model.job import Draft, joined
from duly.model.query import Enqueued, Stored
from duly.store.awaiting import Recipient
from duly.store.operation import Operation, Row, Statement, Steps, Wake, drive
from duly.store.sqlite.connection import (
    CHECKPOINT,
    Patience,
    connect,
    errors_explained,
    execute,
)
from duly.store.sqlite.syncing import Synced, Syncing

T = TypeVar("T")

Request = tuple[Operation[Any], Recipient]
Outcome = tuple[Request, Any, BaseException | None]
Enqueue = Callable[[Sequence[Draft]], Operation[Sequence[Enqueued]]]


TRIES, PAUSE = 20, 0.005
"""How often a new log is tried to begin, and the seconds in between."""


class _Declined(Exception):
    """What there is to do may not be done early."""


class Transactions:
    """Of one thread at a time. `before_waiting` is called when another process has the file locked,
    `committed` when what was `run` may concern others.

    What an operation has done is on the disk when it is answered, and before others see it, but for
    two kinds: what is done `early` is on the disk when `sync` is called, or with the next commit.
    A submission that is alone is synced when it has let go of the file and others have been told of
    it: they write meanwhile, and start it.

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
        committed: Callable[[frozenset[Wake]], None],
    ) -> None:
        self._path = path
        self._enqueue = enqueue
        self._committed = committed
        self._patience = Patience(before_waiting)
        self._syncing = Syncing(path)
        self.connection: apsw.Connection | None = None
        self._use(connection)

    def ready(self, synced: Synced = Synced.AT_ONCE) -> apsw.Connection:
        """The connection, in no transaction; opened again if it was let go."""
        if self.connection is None:
            self._use(connect(self._path))
        assert self.connection is not None
        if self.connection.in_transaction:
            # Whoever was here before was interrupted before he could undo what he had begun.
            self.connection.execute("ROLLBACK")
        if self._syncing.has_failed:
            self._begin_anew(self.connection)
        self._syncing.prepare(self.connection, synced)
        return self.connection

    def committed(self) -> None:
        """What somebody began on the connection that is `ready` is committed; what that was, only
        he knows."""
        self._syncing.sync_all()

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
        early = self._run_early(operation)
        if early is not None:
            return early[0]
        synced = Synced.BEFORE_ANSWER if operation.drafts else Synced.AT_ONCE
        returned: T | None = self._hope_for(operation, synced=synced)
        if returned is None:
            returned = self._transact(partial(self._drive, operation), synced=synced)
        self._announce([operation])
        if operation.drafts:
            self._syncing.sync_all()
        return returned

    def try_to_run(self, operation: Operation[T]) -> tuple[T] | None:
        """Do what can be done `early`, unless another process has the file; what may take long is
        left to the next."""
        connection = self.connection
        if connection is None or self._syncing.has_failed:
            return None
        try:
            self._patience.waits = False
            connection.wal_autocheckpoint(0)
            return self._run_early(operation)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, apsw.BusyError):
                return None
            raise
        finally:
            # In this order: an interrupt comes when a call has ended, not before.
            self._patience.waits = True
            connection.wal_autocheckpoint(CHECKPOINT)

    def run_together(
        self, batch: Sequence[Request], before_commit: Callable[[], None]
    ) -> list[Outcome]:
        """Run operations in one transaction. `before_commit` is called when only the engine has
        work left, during which other threads have the interpreter for themselves."""
        operations = [operation for operation, _ in batch]
        if not all(operation.drafts for operation in operations):
            early = self._run_early(operations[0], before_commit) if len(batch) == 1 else None
            if early is not None:
                return [(batch[0], early[0], None)]
            outcomes = self._transact(lambda each: self._perform(batch, each), before_commit)
            self._announce(operations)
            return outcomes
        try:
            outcomes = self._submit(batch, before_commit)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                raise
            # One of them is refused, or too large for the disk: that is not the others' fault.
            outcomes = self._transact(partial(self._apart, batch), before_commit)
        self._announce(operations)
        if len(batch) == 1:
            self._syncing.sync_all()
        return outcomes

    def _announce(self, operations: Sequence[Operation[Any]]) -> None:
        """Tell those whom what was committed may concern."""
        # Reads come here too when the database is in memory: whoever looks must wake nobody.
        wakes = frozenset[Wake]().union(*[operation.wakes for operation in operations])
        if wakes:
            self._committed(wakes)

    def _use(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(self._patience)
        self.connection = connection

    def _transact(
        self,
        work: Callable[[apsw.Connection], T],
        before_commit: Callable[[], None] | None = None,
        synced: Synced = Synced.AT_ONCE,
    ) -> T:
        with errors_explained(self._path):
            connection = self.ready(synced)
            try:
                self._begin(connection)
                result = work(connection)
                if before_commit is not None:
                    before_commit()
                connection.execute("COMMIT")
            except BaseException as error:
                if isinstance(_cause(error), apsw.IOError):
                    self._syncing.failed()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                    self._syncing.undone()
                raise
            self._syncing.done(connection)
        return result

    def _begin(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            self._syncing.undone()
            raise

    def _begin_anew(self, connection: apsw.Connection) -> None:
        """With a new log, in a few tries: whoever waits for readers has the file locked."""
        waited, self._patience.waits = self._patience.waits, False
        try:
            for _ in range(TRIES):
                if self._syncing.begin_anew(connection):
                    return
                time.sleep(PAUSE)
        finally:
            self._patience.waits = waited
        raise StoreUnavailable(
            f"{self._path}: a sync has failed, and others read what is to be written anew: end "
            "transactions that were left open, and try again"
        )

    def _run_early(
        self, operation: Operation[T], before_commit: Callable[[], None] | None = None
    ) -> tuple[T] | None:
        """What its steps return, if it has an `early` way and that is one."""
        steps = operation.early
        if steps is None:
            return None

        def work(connection: apsw.Connection) -> T:
            returned: T | None = self._driven(steps, connection)
            if returned is None:
                raise _Declined
            return returned

        try:
            return (self._transact(work, before_commit, Synced.AFTER_ANSWER),)
        except _Declined:
            return None

    def _submit(self, batch: Sequence[Request], before_commit: Callable[[], None]) -> list[Outcome]:
        """Store submissions as one; it fails if one of them is refused."""
        together = self._together(batch)
        # To sync apart takes a turn of the interpreter, for which those who share would wait.
        synced = Synced.BEFORE_ANSWER if len(batch) == 1 else Synced.AT_ONCE
        stored = self._hope_for(together, before_commit, synced)
        if stored is not None:
            return [(each, Stored(each[0].drafts, stored.at), None) for each in batch]
        answers = self._transact(partial(self._drive, together), before_commit, synced)
        return _shares(answers, batch)

    def _together(self, batch: Sequence[Request]) -> Operation[Sequence[Enqueued]]:
        return self._enqueue(joined([operation.drafts for operation, _ in batch]))

    def _hope_for(
        self,
        operation: Operation[Any],
        before_commit: Callable[[], None] | None = None,
        synced: Synced = Synced.AT_ONCE,
    ) -> Any:
        """Run an operation the quicker way, as one statement that is a transaction of its own;
        answers None if there is no such way, or it has stored nothing. It has read the clock, and
        what counts is the time at which it has the file: where it has to wait, it begins anew."""
        if operation.hopefully is None:
            return None
        with errors_explained(self._path):
            connection = self.ready(synced)

            def store(statement: Statement) -> list[Row]:
                if before_commit is not None:
                    before_commit()
                return execute(connection, statement)

            self._patience.waits = False
            tries = 0
            try:
                while True:
                    try:
                        stored = drive(operation.hopefully(), store)
                        break
                    except apsw.ConstraintError:
                        stored = None
                        break
                    except apsw.IOError:
                        self._syncing.failed()
                        raise
                    except apsw.BusyError:
                        if not self._patience.nap(tries):
                            raise
                        tries += 1
            finally:
                self._patience.waits = True
            if stored is None:
                self._syncing.undone()
            else:
                self._syncing.done(connection)
            return stored

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
        return self._driven(operation.start, connection)

    def _driven(self, start: Callable[[], Steps[T]], connection: apsw.Connection) -> T:
        with errors_explained(self._path):
            return drive(start(), lambda each: execute(connection, each))


def _cause(error: BaseException) -> BaseException:
    """The engine's own error."""
    return error.__cause__ if isinstance(error, StoreError) and error.__cause__ else error


def _shares(answers: Sequence[Enqueued], batch: Sequence[Request]) -> list[Outcome]:
    """To each its part of what submissions that were stored as one are answered with."""
    outcomes: list[Outcome] = []
    start = 0
    for request in batch:
        end = start + len(request[0].drafts)
        outcomes.append((request, answers[start:end], None))
        start = end
    return outcomes
