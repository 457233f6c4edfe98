"""The store of a simulated world: in memory, with a journal, and ready in no time."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, TypeVar
from uuid import UUID

import apsw

from duly.model.journal import Journal
from duly.store.operation import Operation, drive
from duly.store.sqlite.connection import execute
from duly.store.sqlite.inline import InlineSqliteStore
from duly.store.sqlite.journal import keep_journal
from duly.store.sqlite.schema import bring_up_to_date
from duly.testing.simulation.clock import VirtualClock

ALL_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'migrations'"
MOST_STATEMENTS = 512


T = TypeVar("T")


class WorldStore(InlineSqliteStore):
    """Its clock is the simulation's, and there is a table for effects."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Journal.FULL)
        self._database = _Database.spare.pop() if _Database.spare else _Database()
        self._database.clock = clock
        self._connection = self._database.connection

    def is_done(self) -> bool:
        """Whether no job is live."""
        return not list(self._connected().execute("SELECT 1 FROM jobs LIMIT 1"))

    def paid(self) -> list[tuple[UUID, int]]:
        """The committed effects of transactional jobs."""
        rows = self._connected().execute("SELECT job, token FROM paid ORDER BY rowid")
        return [(UUID(bytes=job), token) for job, token in rows]

    def charged(self) -> list[UUID]:
        """The jobs of committed effects of transactional steps."""
        return [UUID(bytes=job) for (job,) in self._connected().execute("SELECT job FROM charged")]

    def _run(self, operation: Operation[T]) -> T:
        """Nothing happens beside it: what only reads needs no transaction."""
        connection = self._connected()
        steps, perform = operation.start(), partial(execute, connection)
        if not operation.writes:
            return operation.answer(drive(steps, perform))
        self._begun()
        try:
            result = drive(steps, perform)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT", can_cache=False)
        return operation.answer(result)

    def close(self) -> None:
        """See Store.close: the next world finds an empty database."""
        self._connection = None
        self._database.empty()
        _Database.spare.append(self._database)


class _Connection(apsw.Connection):
    """One on which nobody sets an authorizer: SQLite would prepare all statements again."""

    authorizer = None


class _Database:
    """What the worlds of a process have one after the other: to prepare some hundred statements
    takes longer than to run them."""

    spare: ClassVar[list[_Database]] = []

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.connection = _Connection(":memory:", statementcachesize=MOST_STATEMENTS)
        self.connection.execute("PRAGMA temp_store = MEMORY")
        bring_up_to_date(self.connection, "memory")
        keep_journal(self.connection, Journal.FULL)
        self.connection.create_scalar_function("unixepoch", self._now)
        self.connection.execute("CREATE TABLE paid (job BLOB, token INTEGER)")
        self.connection.execute("CREATE TABLE charged (job BLOB)")

    def empty(self) -> None:
        for (table,) in list(self.connection.execute(ALL_TABLES)):
            self.connection.execute(f"DELETE FROM {table}")

    def _now(self, *unused: object) -> float:
        return self.clock.now().timestamp()
