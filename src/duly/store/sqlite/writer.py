"""The one writer of a process: a connection, a thread, and commits that callers share."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from duly.errors import StoreError, TransactionEnded
from duly.model.job import Draft, joined
from duly.model.query import Enqueued
from duly.store.awaiting import Blocked, Recipient, Relay
from duly.store.gathering import Gathering
from duly.store.operation import Operation, Wake, drive
from duly.store.sqlite.connection import connect, errors_explained, execute
from duly.store.sqlite.lease import Lease, forbid_transaction_control

T = TypeVar("T")

SHARED_COMMIT = 256
LONG_HOLD = 0.05
REST_AFTER_HOLD = 0.1
LONGEST_REST = 0.02

Request = tuple[Operation[Any], Recipient]
Outcome = tuple[Request, Any, BaseException | None]
Enqueue = Callable[[Sequence[Draft]], Operation[Sequence[Enqueued]]]


class Writer:
    """Runs operations one after another; those that wait together are committed together.

    Whoever finds nobody writing does so in his own thread, and is spared two changes of threads.
    He never works for others: he may be interrupted at any point. Others queue for the writer's
    thread. Where there are several, each has a savepoint of its own, so that one that fails takes
    nothing with it; only submissions that may be shared have one together, and each its own if that
    fails. Whoever waits for an operation hears of it after the commit that made it durable.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: str,
        lease_limit: float,
        committed: Callable[[frozenset[Wake]], None],
        enqueue: Enqueue,
    ) -> None:
        self._path = path
        self._lease_limit = lease_limit
        self._committed = committed
        self._enqueue = enqueue
        self._queue: deque[Request | Lease] = deque()
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._queueing = threading.Lock()
        self._filled = threading.Condition(self._queueing)
        self._gathering = Gathering(
            self._filled, self._queue, lambda: self._closing or self._suspending
        )
        self._relay = Relay()
        self._turn = threading.Lock()
        """Held by the thread that uses the connection, or has lent it."""
        self._here = threading.local()
        self._closing = False
        self._suspending = False
        self._rests = False
        self._connection: apsw.Connection | None = connection
        self._thread = threading.Thread(target=self._work, name="duly-sqlite-writer", daemon=True)
        self._thread.start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, at once if nobody else writes."""
        self.refuse_to_wait_for_oneself()
        if not (self._queue or self._gathering.expects_company or self._turn.locked()):
            try:
                self._here.writes = True
                with self._turn:
                    at_once = self._connection is not None
                    if at_once:
                        returned = self._transact(lambda each: self._drive(operation, each))
            finally:
                self._here.writes = False
            if at_once:
                if operation.wakes:
                    self._committed(operation.wakes)
                return operation.answer(returned)
        blocked: Blocked[T] = Blocked()
        self.hand_in(operation, blocked)
        return blocked.wait()

    def is_used_here(self) -> bool:
        """Whether this thread is in the middle of a transaction."""
        return getattr(self._here, "writes", False)

    def refuse_to_wait_for_oneself(self) -> None:
        """Raise an error if this thread is in the middle of a transaction."""
        if self.is_used_here():
            raise StoreError(
                "this thread is in the middle of a transaction on the only writer, and would wait "
                "for itself. In a transaction() block of another coroutine, use `await "
                "...aenqueue(...)`, and let only one coroutine at a time into such a block, with "
                "an asyncio.Lock; in a signal handler, leave a note and submit the job later"
            )

    def hand_in(self, operation: Operation[Any], recipient: Recipient) -> None:
        """Queue an operation whose outcome somebody waits for."""
        self._put((operation, recipient))

    @contextmanager
    def lease(self) -> Iterator[tuple[apsw.Connection, Lease]]:
        """The connection itself, in a transaction that ends with the block."""
        self.refuse_to_wait_for_oneself()
        lease = Lease()
        self._put(lease)
        connection = lease.granted.result()
        commit = False
        try:
            self._here.writes = True
            yield connection, lease
            commit = True
        finally:
            self._here.writes = False
            lease.give_back(commit)

    def close(self) -> None:
        """Finish what is queued, then end the thread and close the connection."""
        with self._filled:
            self._closing = True
            self._filled.notify()
        self._thread.join()

    def suspend(self) -> None:
        """Finish what is being done, close the connection and rest; what comes is queued."""
        with self._filled:
            self._suspending = True
            self._filled.notify_all()
            while not self._rests and self._thread.is_alive():
                self._filled.wait(0.1)

    def resume(self) -> None:
        """Go on, with a new connection when one is needed."""
        with self._filled:
            self._suspending = False
            self._filled.notify_all()

    def _put(self, item: Request | Lease) -> None:
        with self._queueing:
            if self._closing:
                raise StoreError("the store is being closed")
            self._queue.append(item)
            if self._gathering.has_enough:
                self._filled.notify()

    def _work(self) -> None:
        while True:
            if self._suspending:
                self._relay.finish()
                self._rest()
            with self._filled:
                self._gathering.gather()
                self._relay.finish()
                while not (self._queue or self._closing or self._suspending):
                    self._filled.wait()
                if self._suspending:
                    continue
                if not self._queue:
                    break
                batch: list[Request] = []
                lease: Lease | None = None
                while self._queue and len(batch) < SHARED_COMMIT:
                    item = self._queue.popleft()
                    if isinstance(item, Lease):
                        lease = item
                        break
                    batch.append(item)
            self._gathering.stores(sum(1 for operation, _ in batch if operation.drafts))
            if batch:
                with self._turn:
                    self._commit(batch)
            if lease is not None:
                started = time.monotonic()
                with self._turn:
                    self._serve(lease)
                self._let_others_in(time.monotonic() - started)
        self._let_go()

    def _let_others_in(self, held: float) -> None:
        """Rest after a transaction that took long: other processes look for the lock in short
        naps, and would hardly ever find it free between two of them."""
        if held > LONG_HOLD:
            time.sleep(min(held * REST_AFTER_HOLD, LONGEST_REST))

    def _let_go(self) -> None:
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _rest(self) -> None:
        """Hold nothing open until resumed."""
        self._let_go()
        with self._filled:
            self._rests = True
            self._filled.notify_all()
            while self._suspending:
                self._filled.wait()
            self._rests = False

    def _ready(self) -> apsw.Connection:
        """The connection, in no transaction; opened again if it was let go."""
        if self._connection is None:
            self._connection = connect(self._path)
        if self._connection.in_transaction:
            # Whoever was here before was interrupted before he could undo what he had begun.
            self._connection.execute("ROLLBACK")
        return self._connection

    def _transact(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something in a transaction."""
        with errors_explained(self._path):
            connection = self._ready()
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return result

    def _commit(self, batch: list[Request]) -> None:
        batch = [request for request in batch if request[1].set_running_or_notify_cancel()]
        try:
            outcomes = self._transact(lambda connection: self._perform(batch, connection))
        except BaseException as error:
            for _, recipient in batch:
                recipient.set_exception(error)
            return
        # Reads come here too when the database is in memory: whoever looks must wake nobody.
        wakes = frozenset[Wake]().union(*[operation.wakes for operation, _ in batch])
        if wakes:
            self._committed(wakes)
        self._relay.begin(map(_answered, outcomes))

    def _perform(self, batch: list[Request], connection: apsw.Connection) -> list[Outcome]:
        """Run the operations; one that fails alone is rolled back with the transaction."""
        if len(batch) == 1:
            return [(batch[0], self._drive(batch[0][0], connection), None)]
        outcomes = self._submit_together(batch, connection)
        submitted = bool(outcomes)
        for request in batch:
            if not (submitted and request[0].drafts):
                outcomes.append((request, *self._run(request[0], connection)))
        return outcomes

    def _submit_together(self, batch: list[Request], connection: apsw.Connection) -> list[Outcome]:
        """The outcomes of submissions that are stored as one; none if there are not several, or
        if one of them is refused."""
        requests = [request for request in batch if request[0].drafts]
        if len(requests) < 2:
            return []
        drafts = joined([operation.drafts for operation, _ in requests])
        answers, failure = self._run(self._enqueue(drafts), connection)
        if failure is not None:
            return []
        outcomes: list[Outcome] = []
        start = 0
        for request in requests:
            end = start + len(request[0].drafts)
            outcomes.append((request, answers[start:end], None))
            start = end
        return outcomes

    def _run(
        self, operation: Operation[Any], connection: apsw.Connection
    ) -> tuple[Any, BaseException | None]:
        """Run one of several operations inside the shared transaction; its failure is its own."""
        connection.execute("SAVEPOINT operation")
        try:
            result = self._drive(operation, connection)
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

    def _serve(self, lease: Lease) -> None:
        try:
            with errors_explained(self._path):
                connection = self._ready()
                connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            lease.granted.set_exception(error)
            return
        connection.authorizer = forbid_transaction_control
        lease.granted.set_result(connection)
        in_time = lease.wait(self._lease_limit)
        lease.valid = False
        if not in_time:
            connection.interrupt()
        try:
            with lease.in_use, errors_explained(self._path):
                connection.authorizer = None
                kept = connection.in_transaction
                if kept:
                    connection.execute("COMMIT" if in_time and lease.commits else "ROLLBACK")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            lease.ended.set_exception(error)
            return
        if in_time and lease.commits and not kept:
            lease.ended.set_exception(
                TransactionEnded("an error in the block made SQLite roll all of it back")
            )
            return
        if not in_time:
            lease.ended.set_exception(
                TransactionEnded(
                    f"a transaction held the only writer for more than {self._lease_limit:g} s "
                    "and was rolled back: do slow work outside it"
                )
            )
            return
        self._committed(frozenset(Wake))
        lease.ended.set_result(None)


def _answered(outcome: Outcome) -> tuple[Recipient, Any, BaseException | None]:
    """Whom to tell, and what."""
    (operation, recipient), returned, failure = outcome
    if failure is None:
        try:
            return recipient, operation.answer(returned), None
        except BaseException as error:
            failure = error
    return recipient, None, failure
