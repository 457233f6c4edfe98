"""The one writer of a process: a connection, a thread, and commits that callers share."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from duly.errors import StoreError, TransactionEnded
from duly.store.awaiting import Blocked, Recipient, Relay
from duly.store.gathering import Gathering
from duly.store.operation import Operation, Wake
from duly.store.sqlite.connection import errors_explained
from duly.store.sqlite.lease import Lease, forbid_transaction_control
from duly.store.sqlite.transactions import Enqueue, Outcome, Request, Transactions

T = TypeVar("T")

SHARED_COMMIT = 256
RETURN = 0.000016
"""About how many seconds a thread takes to come back with its next submission, while others do; a
little less, for twice as many commits take processor time of their own."""
OF_THE_LAST = 0.2
"""How much the last time of several counts."""
NAP = 0.0001
"""Seconds between two looks whether an event loop has ended what it began: some ten thousandths."""
LONG_HERE = 0.005
"""Seconds for which an event loop should not be held up,"""
REST_AFTER_LONG = 1.0
"""and for which it leaves its operations to the writer's thread after that."""
LONG_HOLD = 0.05
REST_AFTER_HOLD = 0.1
LONGEST_REST = 0.02

logger = logging.getLogger("duly.store")


class _Here(threading.local):
    """Of each thread: whether it is in the middle of a transaction."""

    writes = False


class Writer:
    """Runs operations one after another; those that wait together are committed together.

    Whoever finds nobody writing does so in his own thread, and is spared two changes of threads.
    He never works for others: he may be interrupted at any point. Others queue for the writer's
    thread. Whoever waits for an operation hears of it after the commit that made it durable, but
    for one that is `early`: it is synced while he goes on.

    Threads that submit one job after another come back one by one, which takes some RETURN each. If
    that is longer than to store them, they come back while others are stored: those that have been
    are told when only the engine has work left for the next ones, which needs no interpreter. If it
    is not, all are waited for, and share the next commit.
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
        self._transactions = Transactions(
            connection, path, enqueue, self._another_has_the_file, committed
        )
        self._queue: deque[Request | Lease] = deque()
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._queueing = threading.Lock()
        self._filled = threading.Condition(self._queueing)
        self._gathering = Gathering(
            self._filled, self._queue, lambda: self._closing or self._suspending
        )
        self._relay = Relay()
        self._storing = 0.0
        """How many seconds it takes of late to store what came together."""
        self._untold: list[Outcome] = []
        """What is committed, but nobody knows; the next that is queued is written first."""
        self._turn = threading.Lock()
        """Held by the thread that uses the connection, or has lent it."""
        self._here = _Here()
        self._loops: set[int] = set()
        """The threads of event loops that are about to use the connection, or do."""
        self._callers: set[int] = set()
        """Other threads that do."""
        self._works = False
        """Whether the writer's thread does something, or is about to."""
        self._rests_until = 0.0
        self._closing = False
        self._suspending = False
        self._rests = False
        self._thread = threading.Thread(target=self._work, name="duly-sqlite-writer", daemon=True)
        self._thread.start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, at once if nobody else writes."""
        self.refuse_to_wait_for_oneself()
        if not self._is_busy:
            thread = threading.get_ident()
            try:
                self._here.writes = True
                self._callers.add(thread)
                at_once = not self._loops
                if at_once:
                    with self._turn:
                        at_once = self._transactions.connection is not None
                        if at_once:
                            returned = self._transactions.run(operation)
            finally:
                self._here.writes = False
                self._callers.discard(thread)
            if at_once:
                return self._answer(operation, returned)
        blocked: Blocked[T] = Blocked()
        self._put((operation, blocked))
        return blocked.wait()

    def try_to_run(self, operation: Operation[T]) -> tuple[T] | None:
        """Do in this thread, an event loop's, what can be done `early`, unless somebody writes or
        the last such took long."""
        begun = time.monotonic()
        loop = threading.get_ident()
        try:
            self._here.writes = True
            # From here on nobody else begins anything, or has said so before.
            self._loops.add(loop)
            if begun < self._rests_until or self._works or self._callers or self._is_busy:
                return None
            with self._turn:
                returned = self._transactions.try_to_run(operation)
        finally:
            self._here.writes = False
            self._loops.discard(loop)
        ended = time.monotonic()
        if ended - begun > LONG_HERE:
            self._rests_until = ended + REST_AFTER_LONG
        return None if returned is None else (self._answer(operation, returned[0]),)

    @property
    def _is_busy(self) -> bool:
        """Whether somebody writes, or is about to."""
        return bool(self._queue) or self._gathering.expects_company or self._turn.locked()

    def _answer(self, operation: Operation[T], returned: Any) -> T:
        """What an operation of this thread is answered with."""
        if self._is_unsynced:
            with self._queueing:
                self._filled.notify()
        return operation.answer(returned)

    def is_used_here(self) -> bool:
        """Whether this thread is in the middle of a transaction."""
        return self._here.writes

    def refuse_to_wait_for_oneself(self) -> None:
        """Raise an error if this thread is in the middle of a transaction."""
        if self._here.writes:
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
                self._tell_all()
                self._rest()
            if self._is_unsynced and not self._queue:
                self._tell_all()
                self._sync()
            with self._filled:
                self._works = False
                if not self._untold:
                    self._gathering.gather()
                while not (self._queue or self._closing or self._suspending or self._is_unsynced):
                    self._relay.finish()
                    self._filled.wait()
                self._works = True
                if self._suspending:
                    continue
                if not self._queue:
                    if self._closing:
                        break
                    continue
                batch: list[Request] = []
                lease: Lease | None = None
                while self._queue and len(batch) < SHARED_COMMIT:
                    item = self._queue.popleft()
                    if isinstance(item, Lease):
                        lease = item
                        break
                    batch.append(item)
            self._wait_for_loops()
            if batch:
                self._write(batch)
            if lease is not None:
                self._tell_all()
                started = time.monotonic()
                with self._turn:
                    self._serve(lease)
                self._let_others_in(time.monotonic() - started)
        self._tell_all()
        self._let_go()

    def _write(self, batch: list[Request]) -> None:
        """Commit what came together, and tell those who wait for it, or leave that for the time of
        the next commit."""
        begun = time.monotonic()
        submissions = [operation.drafts for operation, _ in batch if operation.drafts]
        self._gathering.stores(len(submissions))
        is_short = len(submissions) == len(batch) and sum(map(len, submissions)) <= SHARED_COMMIT
        if not (is_short and self._turn.acquire(blocking=False)):
            self._tell_all()
            self._turn.acquire()
        try:
            self._commit(batch)
        finally:
            self._turn.release()
        if is_short:
            self._storing += OF_THE_LAST * (time.monotonic() - begun - self._storing)
        company = len(submissions) + sum(map(_is_submission, list(self._queue)))
        if not is_short or self._storing > company * RETURN:
            self._gathering.expects(company if submissions else 0)
            self._tell()
        elif not self._queue:
            self._gathering.expects(company // 2)
            self._tell()

    @property
    def _is_unsynced(self) -> bool:
        return self._transactions.is_unsynced

    def _sync(self) -> None:
        """Have on the disk what was committed and answered early."""
        self._wait_for_loops()
        with self._turn:
            try:
                self._transactions.sync()
            except StoreError as error:
                logger.error("%s", error)

    def _wait_for_loops(self) -> None:
        """Until no event loop uses the connection: none begins to while the thread `_works`."""
        while self._loops:
            time.sleep(NAP)

    def _let_others_in(self, held: float) -> None:
        """Rest after a transaction that took long: other processes look for the lock in short
        naps, and would hardly ever find it free between two of them."""
        if held > LONG_HOLD:
            time.sleep(min(held * REST_AFTER_HOLD, LONGEST_REST))

    def _let_go(self) -> None:
        self._wait_for_loops()
        with self._turn:
            try:
                self._transactions.let_go()
            except StoreError as error:
                logger.error("%s", error)

    def _rest(self) -> None:
        """Hold nothing open until resumed."""
        self._let_go()
        with self._filled:
            self._rests = True
            self._filled.notify_all()
            while self._suspending:
                self._filled.wait()
            self._rests = False

    def _commit(self, batch: list[Request]) -> None:
        batch = [request for request in batch if request[1].set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            outcomes = self._transactions.run_together(batch, self._tell)
        except BaseException as error:
            self._tell()
            for _, recipient in batch:
                recipient.set_exception(error)
            return
        self._untold = outcomes

    def _tell(self) -> None:
        """Tell those whose operations are committed, one after another."""
        self._relay.hurry()
        if self._untold:
            outcomes, self._untold = self._untold, []
            self._relay.begin(map(_answered, outcomes))

    def _tell_all(self) -> None:
        """The same at once: what comes next may take long."""
        self._tell()
        self._relay.finish()

    def _another_has_the_file(self) -> None:
        if threading.get_ident() == self._thread.ident:
            self._tell_all()

    def _serve(self, lease: Lease) -> None:
        try:
            with errors_explained(self._path):
                connection = self._transactions.ready()
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
                if kept and in_time and lease.commits:
                    connection.execute("COMMIT")
                    self._transactions.committed()
                elif kept:
                    connection.execute("ROLLBACK")
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


def _is_submission(item: Request | Lease) -> bool:
    return not isinstance(item, Lease) and bool(item[0].drafts)


def _answered(outcome: Outcome) -> tuple[Recipient, Any, BaseException | None]:
    """Whom to tell, and what."""
    (operation, recipient), returned, failure = outcome
    if failure is None:
        try:
            return recipient, operation.answer(returned), None
        except BaseException as error:
            failure = error
    return recipient, None, failure
