"""The store for a fleet: verbs, a pool of connections per process, notifications."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakSet

import psycopg

from duly.errors import StoreError, StoreUnavailable
from duly.model.journal import Journal
from duly.store.awaiting import Awaited, fulfil
from duly.store.interruptions import put_off, raise_what_was_put_off
from duly.store.migrate import SchemaVersion, require_current
from duly.store.operation import Operation, Statement, Steps, Wake, drive, drive_async
from duly.store.postgres import carriers
from duly.store.postgres.connection import (
    CONNECT_TIMEOUT,
    UNFIT,
    errors_explained,
    make_pool,
    redacted,
    restore_planner,
    with_defaults,
)
from duly.store.postgres.declarations import Declarations
from duly.store.postgres.events import Events
from duly.store.postgres.exchange import aexecute, execute, execute_with_hint, is_plain
from duly.store.postgres.fleet import Fleet
from duly.store.postgres.flows import Flows
from duly.store.postgres.gate import Gate
from duly.store.postgres.journal import JournalLog, keep_journal, require_journal
from duly.store.postgres.reports import Reports
from duly.store.postgres.retention import Retention
from duly.store.postgres.schema import (
    MIGRATIONS,
    bring_up_to_date,
    drop_partitions,
    forget_reports,
    installation_of,
    prepare_partitions,
    version_of,
)
from duly.store.postgres.sharing import SharedSubmissions
from duly.store.postgres.steps import StepLog
from duly.store.postgres.tries import Tries
from duly.store.postgres.watch import Listener, Notifier, channel

T = TypeVar("T")

POOL_SIZE = 10
KEPT_FOR_VERBS = 2
# A hint need not be on the disk: its commit does not wait for the log.
HINT = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s::text, '')"


class _Engine:
    """What one process holds open: it does not survive a fork."""

    def __init__(self, url: str, schema: str, size: int, store: PostgresStore) -> None:
        self.process = os.getpid()
        self.schema = schema
        self.pool = make_pool(url, size)
        # Who asks before its first connection is there makes it open a second.
        with errors_explained(store.url):
            self.pool.open(wait=True, timeout=CONNECT_TIMEOUT)
        self.gate = Gate()
        self.threads = ThreadPoolExecutor(size, "duly-postgres")
        self.notifier = Notifier(self._send)
        self.submissions = SharedSubmissions(store.enqueue, store.run_alone, store.arun_alone)
        self._run = store.run_alone
        self._surveying = threading.Lock()
        self.installation: UUID | None = None
        self._size = size
        self._lent: set[psycopg.Connection[Any]] = set()
        self._for_transactions = threading.BoundedSemaphore(max(1, size - KEPT_FOR_VERBS))

    def close(self) -> None:
        self.submissions.close()
        self.threads.shutdown()
        self.notifier.close()
        self.pool.close()

    @contextmanager
    def lent(self, where: str) -> Iterator[psycopg.Connection[Any]]:
        """A connection for a transaction of the caller's. Some are kept back, so that claims and
        outcomes do not wait for code that holds its transaction for long."""
        if not self._for_transactions.acquire(timeout=CONNECT_TIMEOUT):
            raise StoreUnavailable(
                f"every connection to {where} that this process has for transactions was in use "
                f"for {CONNECT_TIMEOUT:g} s: raise pool_size, or hold them for a shorter time"
            )
        try:
            with errors_explained(where):
                connection = self.pool.getconn()
            self._lent.add(connection)
            try:
                yield connection
            finally:
                self._lent.discard(connection)
                self.pool.putconn(connection)
        finally:
            self._for_transactions.release()

    @contextmanager
    def at_hand(self) -> Iterator[psycopg.Connection[Any] | None]:
        """A connection for the event loop of this thread, if there is one for which nothing has to
        wait, and enough are left for calls that block the loop meanwhile."""
        spare = self._size - len(self._lent) - self.gate.used_by_loops
        if spare <= KEPT_FOR_VERBS or not self.gate.enter_from_loop():
            yield None
            return
        try:
            connection = self.pool.at_hand()
            try:
                yield connection if connection is not None and is_plain(connection) else None
            finally:
                if connection is not None:
                    self.pool.putconn(connection)
        finally:
            self.gate.leave_from_loop()

    def hints_at_once(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether a submission is to carry its notification with it: there were none of late, and
        no pooler stands between."""
        return is_plain(connection) and self.notifier.rests()

    def hint(self, wake: Wake) -> Statement:
        """A notification."""
        return Statement(HINT, {"channel": channel(self.schema, wake)})

    def hints(self, wakes: frozenset[Wake]) -> list[Statement]:
        """Notifications to send now, on the connection at hand, if it is about work and there were
        none of late; else they are sent soon."""
        if Wake.WORKERS in wakes and self.notifier.rests():
            return [self.hint(wake) for wake in wakes]
        self.notifier.notify(wakes)
        return []

    def survey(self, operation: Operation[None]) -> None:
        """Have this done beside all else, unless it is being done."""
        if self._surveying.acquire(blocking=False):
            try:
                self.threads.submit(self._survey, operation)
            except RuntimeError:
                # The store is being closed.
                self._surveying.release()

    def _survey(self, operation: Operation[None]) -> None:
        try:
            with suppress(StoreError):
                self._run(operation)
        finally:
            self._surveying.release()

    def _send(self, wakes: frozenset[Wake]) -> None:
        # A hint that does not arrive costs a little time, nothing else.
        with suppress(psycopg.Error), self.gate.passed(), self.pool.connection() as connection:
            for wake in wakes:
                execute(connection, self.hint(wake))


class PostgresStore(Flows, Declarations, Fleet, Reports, Retention, StepLog, Events, JournalLog):
    """A store in one schema of a PostgreSQL database.

    `listen_url` leads to the server itself when `url` leads to a pooler. `journal` says whether the
    database is to keep one; None leaves that as it is.
    """

    drops_whole_days = True

    def __init__(
        self,
        url: str,
        schema: str = "duly",
        listen_url: str | None = None,
        size: int = POOL_SIZE,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(schema)
        self._wanted_journal = journal
        self._url = url
        self._listen_url = listen_url or url
        self._size = size
        self._where = redacted(url)
        self._engine: _Engine | None = None
        self._handed_out: WeakSet[Any] = WeakSet()
        self._opening = threading.Lock()
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """See Store.url."""
        return self._where

    def run(self, operation: Operation[T]) -> T:
        """See Store.run."""
        if operation.drafts:
            shared: Any = self._open().submissions
            result: T = shared.run(operation)
        else:
            result = self.run_alone(operation)
        if put_off:
            raise_what_was_put_off()
        return result

    def run_alone(self, operation: Operation[T]) -> T:
        """As `run`, but together with nothing else."""
        return self._run(self._open(), operation, Tries(operation))

    async def arun(self, operation: Operation[T]) -> T:
        """See Store.arun."""
        if operation.drafts:
            engine: Any = await self._opened()
            result: T = await engine.submissions.arun(operation)
            return result
        return await self.arun_alone(operation)

    async def arun_alone(self, operation: Operation[T]) -> T:
        """As `arun`, but together with nothing else: on the event loop itself, if a connection is
        at hand; else, and whatever has to wait or to be tried again, in a thread."""
        engine = await self._opened()
        tries = Tries(operation)
        pause = 0.0
        if not operation.atomic:
            with engine.at_hand() as connection:
                if connection is not None:
                    try:
                        result = await self._atry(engine, operation, tries.start, connection)
                    except StoreError as error:
                        pause = tries.pause_after(error)
                    else:
                        self._look_out(engine)
                        return result
        awaited: Awaited[T] = Awaited()
        engine.threads.submit(fulfil, awaited, self._run, engine, operation, tries, pause)
        return await awaited.future

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """See Store.transaction."""
        engine = self._open()
        with engine.lent(self._where) as connection:
            self._handed_out.add(connection)
            committing = False
            try:
                with connection.transaction():
                    restore_planner(connection)
                    yield connection
                    committing = True
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not committing:
                    raise
                raise StoreUnavailable(
                    f"the connection to {self._where} broke off while it committed: {error}",
                    unknown=True,
                ) from error
            finally:
                self._handed_out.discard(connection)
        engine.notifier.notify(frozenset({Wake.WORKERS}))

    def carry(self, connection: object) -> carriers.Carrier:
        """See Store.carry. A connection of this store's own needs no proof of where it leads."""
        if connection in self._handed_out:
            return carriers.own(connection, self.schema)
        return carriers.carry(connection, self.schema, self._where, self._installation())

    async def acarry(self, connection: object) -> carriers.AsyncCarrier:
        """See Store.acarry."""
        installation = await asyncio.to_thread(self._installation)
        return await carriers.acarry(connection, self.schema, self._where, installation)

    def watch(self, wake: Wake) -> Listener:
        """See Store.watch."""
        return Listener(with_defaults(self._listen_url), self.schema, wake)

    def migrate(self) -> list[str]:
        """See Store.migrate."""
        with self._connected() as connection:
            applied = bring_up_to_date(connection, self.schema)
            if self._wanted_journal is not None:
                keep_journal(connection, self.schema, self._wanted_journal)
            where = f"{self._where}, schema {self.schema}"
            require_current(MIGRATIONS, version_of(connection, self.schema), where)
            return applied

    def tend(self, oldest: datetime) -> list[str]:
        """See Store.tend."""
        with self._connected() as connection:
            made = prepare_partitions(connection, self.schema, datetime.now(UTC).date())
            dropped = drop_partitions(connection, self.schema, oldest.date())
            forget_reports(connection, self.schema, oldest)
            return [f"{name} made" for name in made] + [f"{name} dropped" for name in dropped]

    def version(self) -> SchemaVersion:
        """Where the database stands."""
        with self._connected() as connection:
            return version_of(connection, self.schema)

    def close(self) -> None:
        """See Store.close."""
        with self._opening:
            engine, self._engine = self._engine, None
        if engine is not None and engine.process == os.getpid():
            engine.close()

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection beside the pool, for what is done before there is one."""
        url = with_defaults(self._url)
        with errors_explained(self._where), psycopg.connect(url, autocommit=True) as connection:
            yield connection

    def _run(
        self, engine: _Engine, operation: Operation[T], tries: Tries[T], pause: float = 0.0
    ) -> T:
        while True:
            if pause:
                time.sleep(pause)
            try:
                result = self._try(engine, operation, tries.start)
            except StoreError as error:
                pause = tries.pause_after(error)
            else:
                self._look_out(engine)
                return result

    def _look_out(self, engine: _Engine) -> None:
        if self.survey_is_due:
            engine.survey(self.survey())

    def _try(self, engine: _Engine, operation: Operation[T], start: Callable[[], Steps[T]]) -> T:
        sent = False
        try:
            with (
                errors_explained(self._where),
                engine.gate.passed(),
                engine.pool.connection() as connection,
            ):
                if operation.atomic:
                    with connection.transaction():
                        result = drive(start(), partial(execute, connection))
                        sent = operation.writes
                else:
                    sent = operation.writes
                    if operation.drafts and engine.hints_at_once(connection):
                        hint = engine.hint(Wake.WORKERS)
                        return drive(
                            start(), lambda each: execute_with_hint(connection, each, hint)
                        )
                    result = drive(start(), partial(execute, connection))
                if operation.wakes and (result or not operation.quiet):
                    try:
                        for hint in engine.hints(operation.wakes):
                            execute(connection, hint)
                    except psycopg.Error:
                        engine.notifier.notify(operation.wakes)
                return result
        except StoreUnavailable as error:
            # Before anything that commits was sent, the server rolls back what it had.
            error.unknown = sent and not isinstance(error.__cause__, UNFIT)
            raise

    async def _atry(
        self,
        engine: _Engine,
        operation: Operation[T],
        start: Callable[[], Steps[T]],
        connection: psycopg.Connection[Any],
    ) -> T:
        """The same on the event loop, of an operation that needs no transaction around it."""
        try:
            with errors_explained(self._where):
                if operation.drafts and engine.hints_at_once(connection):
                    hint = engine.hint(Wake.WORKERS)
                    return await drive_async(start(), lambda each: aexecute(connection, each, hint))
                result = await drive_async(start(), partial(aexecute, connection))
                if operation.wakes and (result or not operation.quiet):
                    try:
                        for hint in engine.hints(operation.wakes):
                            await aexecute(connection, hint)
                    except psycopg.Error:
                        engine.notifier.notify(operation.wakes)
                return result
        except StoreUnavailable as error:
            error.unknown = operation.writes and not isinstance(error.__cause__, UNFIT)
            raise
        except asyncio.CancelledError:
            # What was sent the server does all the same.
            if operation.wakes:
                engine.notifier.notify(operation.wakes)
            raise

    async def _opened(self) -> _Engine:
        engine = self._engine
        if engine is None or engine.process != os.getpid():
            engine = await asyncio.to_thread(self._open)
        return engine

    def _installation(self) -> UUID:
        engine = self._open()
        if engine.installation is None:
            with errors_explained(self._where), engine.pool.connection() as connection:
                engine.installation = installation_of(connection, self.schema)
        return engine.installation

    def _require_current(self) -> None:
        with self._connected() as connection:
            where = f"{self._where}, schema {self.schema}"
            require_current(MIGRATIONS, version_of(connection, self.schema), where)
            if self._wanted_journal is not None:
                require_journal(connection, self.schema, self._wanted_journal)

    def _open(self) -> _Engine:
        engine = self._engine
        if engine is not None and engine.process == os.getpid():
            return engine
        if self._process != os.getpid():
            # Another thread of the parent may have held the lock at the moment of the fork.
            self._opening = threading.Lock()
            self._process = os.getpid()
        with self._opening:
            if self._engine is None or self._engine.process != os.getpid():
                if self._engine is not None:
                    # A parent's connections are left alone: closing them here would end them there.
                    _abandoned.append(self._engine)
                self._require_current()
                self._engine = _Engine(self._url, self.schema, self._size, self)
            return self._engine


_abandoned: list[_Engine] = []
