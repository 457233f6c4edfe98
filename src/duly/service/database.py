"""The database itself: is it there, is its schema up to date, what does it hold."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Protocol, cast

import msgspec

from duly.errors import SchemaAhead, SchemaBehind, StoreUnavailable
from duly.model.job import State
from duly.store import migrate
from duly.store.protocol import Store

_SQLITE = "sqlite:///"


class SchemaState(StrEnum):
    """How a database's schema stands to this release."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A database at one moment. `usable` says whether this release can work on it.

    `version` is the number of its last migration (None: only a newer release can tell), `needed`
    that of this release's last one; `jobs` has a count for every state, and is empty when the
    database cannot be read.
    """

    url: str
    engine: str
    version: int | None
    needed: int
    state: SchemaState
    usable: bool
    advice: str | None
    jobs: dict[State, int]


class Migrated(msgspec.Struct, frozen=True):
    """What bringing a schema up to date came to."""

    url: str
    applied: list[str]


class _Versioned(Protocol):
    def version(self) -> migrate.SchemaVersion: ...


class Database:
    """The use cases about the database of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = "sqlite" if store.url.startswith("sqlite:") else "postgres"

    def require(self) -> None:
        """Raise StoreUnavailable when the store is a file that does not exist.

        A question must not make an empty database in the wrong folder and answer from it.
        """
        path = Path(self._store.url.removeprefix(_SQLITE))
        if self._store.url.startswith(_SQLITE) and not path.exists():
            raise StoreUnavailable(
                f"there is no database at {path.absolute()}: say where it is with --url or "
                "DULY_URL, or make it with `duly db migrate`"
            )

    def migrate(self) -> Migrated:
        """Bring the schema up to date."""
        return Migrated(self._store.url, list(self._store.migrate()))

    def status(self) -> DatabaseStatus:
        """Where the database stands. StoreUnavailable when it cannot be reached."""
        self.require()
        needed = migrate.load(f"duly.store.{self._engine}")[-1].number
        problem: SchemaBehind | SchemaAhead | None = None
        jobs: Counter[State] = Counter()
        try:
            for count in self._store.run(self._store.counts()):
                jobs[count.state] += count.jobs
        except (SchemaBehind, SchemaAhead) as error:
            problem = error
        version = self._version(needed, isinstance(problem, SchemaAhead))
        return DatabaseStatus(
            url=self._store.url,
            engine=self._engine,
            version=version,
            needed=needed,
            state=_state(version, needed),
            usable=problem is None,
            advice=None if problem is None else str(problem),
            jobs={state: jobs[state] for state in State} if problem is None else {},
        )

    def _version(self, needed: int, ahead: bool) -> int | None:
        """The number of the last migration.

        The embedded store brings itself up to date when it is opened, unless it is too new.
        """
        if self._engine == "sqlite":
            return None if ahead else needed
        return cast(_Versioned, self._store).version().number


def _state(version: int | None, needed: int) -> SchemaState:
    if version is None or version > needed:
        return SchemaState.AHEAD
    return SchemaState.BEHIND if version < needed else SchemaState.CURRENT
