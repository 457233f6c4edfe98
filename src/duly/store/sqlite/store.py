"""The embedded store: verbs, one writer thread, a few reader threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from duly.errors import StoreError, WrongConnection
from duly.model.journal import Journal
from duly.store.awaiting import Awaited, Recipient
from duly.store.interruptions import put_off, raise_what_was_put_off
from duly.store.operation import Operation, Wake
from duly.store.protocol import Change
from duly.store.sqlite.claiming import Claiming
from duly.store.sqlite.connection import (
    connect,
    errors_explained,
    warn_when_unsound,
)
from duly.store.sqlite.control import Control
from duly.store.sqlite.declarations import Declarations
from duly.store.sqlite.events import Events
from duly.store.sqlite.fleet import Fleet
from duly.store.sqlite.flows import Flows
from duly.store.sqlite.forking import register
from duly.store.sqlite.journal import JournalLog, keep_journal
from duly.store.sqlite.readers import Readers
from duly.store.sqlite.reading import Reading
from duly.store.sqlite.reports import Reports
from duly.store.sqlite.retention import Retention
from duly.store.sqlite.schedules import Schedules
from duly.store.sqlite.schema import bring_up_to_date
from duly.store.sqlite.settling import Settling
from duly.store.sqlite.steps import StepLog
from duly.store.sqlite.submission import Submission
from duly.store.sqlite.transaction import SqliteTransaction
from duly.store.sqlite.transactions import Enqueue
from duly.store.sqlite.watch import CommitSignal, FileWatch, announce
from duly.store.sqlite.writer import Writer

T = TypeVar("T")

TRANSACTION_LIMIT = 5.0


class _Engine:
    """What one process holds open: it does not survive a fork."""

    def __init__(
        self, path: str, signal: CommitSignal, journal: Journal | None, enqueue: Enqueue
    ) -> None:
        self.process = os.getpid()
        self.path = path
        connection = connect(path)
        with errors_explained(path):
            self.applied = bring_up_to_date(connection, path or "memory")
            if journal is not None:
                keep_journal(connection, journal)
        committed = partial(announce, path) if path else signal.send
        self.writer = Writer(connection, path, TRANSACTION_LIMIT, committed, enqueue)
        # A database in memory is on one connection, the writer's.
        self._readers = Readers(path) if path else None
        self.torn = False
        """Whether a fork came in the middle of a transaction of the thread that forked."""

    def run(self, operation: Operation[T]) -> T:
        if operation.writes or self._readers is None:
            return self.writer.run(operation)
        return self._readers.read(operation)

    def try_to_run(self, operation: Operation[T]) -> tuple[T] | None:
        return self.writer.try_to_run(operation)

    def hand_in(self, operation: Operation[T], recipient: Recipient) -> None:
        if operation.writes or self._readers is None:
            self.writer.hand_in(operation, recipient)
        else:
            self._readers.hand_in(operation, recipient)

    def close(self) -> None:
        self.writer.close()
        if self._readers is not None:
            self._readers.close()

    def suspend(self) -> None:
        self.torn = self.writer.is_used_here()
        if not self.torn:
            self.writer.suspend()
            if self._readers is not None:
                self._readers.suspend()

    def resume(self) -> None:
        if not self.torn:
            self.writer.resume()
            if self._readers is not None:
                self._readers.resume()
        self.torn = False


class SqliteStore(
    Submission,
    Claiming,
    Settling,
    Control,
    Reading,
    Fleet,
    Reports,
    Retention,
    Schedules,
    Declarations,
    Flows,
    StepLog,
    Events,
    JournalLog,
):
    """A store in one SQLite file, or in memory when the path is empty.

    `journal` says whether the database is to keep one; None leaves that as it is.
    """

    drops_whole_days = False

    def __init__(self, path: str, journal: Journal | None = None) -> None:
        self.path = path
        self._wanted_journal = journal
        self._engine: _Engine | None = None
        self._opening = threading.Lock()
        self._signal = CommitSignal()
        self._process = os.getpid()
        if path:
            register(self)

    @property
    def url(self) -> str:
        """See Store.url."""
        return f"sqlite:///{self.path}" if self.path else "sqlite://"

    def run(self, operation: Operation[T]) -> T:
        """See Store.run."""
        result = self._open().run(operation)
        if put_off:
            raise_what_was_put_off()
        return result

    async def arun(self, operation: Operation[T]) -> T:
        """See Store.arun."""
        engine = self._engine
        if engine is None or engine.process != os.getpid():
            engine = await asyncio.to_thread(self._open)
        if operation.early:
            returned = engine.try_to_run(operation)
            if returned is not None:
                return returned[0]
        awaited: Awaited[T] = Awaited()
        engine.hand_in(operation, awaited)
        return await awaited.future

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """See Store.transaction. It holds the only writer: keep it short."""
        with self._open().writer.lease() as (connection, lease):
            yield SqliteTransaction(connection, lease, self.path, self)

    def carry(self, connection: object) -> SqliteTransaction:
        """See Store.carry. Only a connection that this store handed out will do."""
        if not isinstance(connection, SqliteTransaction):
            self._refuse(connection)
        elsewhere = connection.path != self.path
        if elsewhere or (not self.path and connection.store is not self):
            raise WrongConnection(
                f"the connection belongs to {connection.path or 'another database in memory'}, "
                f"the app's jobs are in {self.path or 'memory'}"
            )
        return connection

    async def acarry(self, connection: object) -> Any:
        """See Store.acarry."""
        return _OffLoop(self.carry(connection))

    def watch(self, wake: Wake) -> Change:
        """See Store.watch. In memory, every commit wakes everybody."""
        self._open()
        return FileWatch(self.path, wake) if self.path else self._signal.watch()

    def migrate(self) -> list[str]:
        """See Store.migrate. An embedded store migrates whenever it is opened."""
        return self._open().applied

    def tend(self, oldest: datetime) -> list[str]:
        """See Store.tend. There are no partitions here."""
        return []

    def close(self) -> None:
        """See Store.close. A database in memory is gone with it."""
        if self._process != os.getpid():
            # Nothing was open when this process was forked; the lock may have been held.
            return
        with self._opening:
            engine, self._engine = self._engine, None
        if engine is not None and engine.process == os.getpid():
            engine.close()

    def suspend(self) -> None:
        """See forking.Suspendable."""
        self._opening.acquire()
        if self._engine is not None and self._engine.process == os.getpid():
            self._engine.suspend()

    def resume(self) -> None:
        """See forking.Suspendable."""
        if self._engine is not None and self._engine.process == os.getpid():
            self._engine.resume()
        self._opening.release()

    def _open(self) -> _Engine:
        engine = self._engine
        if engine is not None and engine.process == os.getpid():
            return engine
        if self._process != os.getpid():
            if not self.path:
                raise StoreError(
                    "a database in memory does not survive a fork: use a file (sqlite:///duly.db)"
                )
            if engine is not None and engine.torn:
                raise StoreError(
                    f"this process was forked inside a transaction on {self.path} and cannot use "
                    "it: fork before the block, or after it"
                )
            # The fork came while the lock was held.
            self._opening = threading.Lock()
            self._signal = CommitSignal()
            self._process = os.getpid()
        with self._opening:
            if self._engine is None or self._engine.process != os.getpid():
                if self._engine is not None:
                    # A parent's connections are left alone: closing them here would harm it.
                    _abandoned.append(self._engine)
                warn_when_unsound()
                if self.path:
                    Path(self.path).parent.mkdir(parents=True, exist_ok=True)
                self._engine = _Engine(self.path, self._signal, self._wanted_journal, self.enqueue)
            return self._engine

    def _refuse(self, connection: object) -> NoReturn:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        why = (
            "closing one of the standard library's connections drops this library's locks on the "
            "same file, and committed work can vanish"
            if type(connection).__module__.startswith("sqlite3")
            else "the jobs are in SQLite"
        )
        raise WrongConnection(
            f"a {kind} cannot carry a job into {self.url}: {why}; use "
            "`with app.transaction() as connection`"
        )


class _OffLoop:
    """A transaction whose blocking calls are made off the event loop."""

    def __init__(self, transaction: SqliteTransaction) -> None:
        self._transaction = transaction

    async def arun(self, operation: Operation[T]) -> T:
        return await asyncio.to_thread(self._transaction.run, operation)


_abandoned: list[_Engine] = []
