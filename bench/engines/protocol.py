"""What a scenario needs of an engine, whether Duly or the bare loop works on it.

Both write the tables `jobs` and `archive` with columns of the same names, so one way of reading
serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Span:
    """When finished jobs were submitted, started and settled, in seconds of the store's clock."""

    first_created: float
    first_started: float
    last_finished: float


class Bare(Protocol):
    """A bare client of the engine: what the limit is measured with.

    Every call is one durable transaction. Jobs are pairs (id, token).
    """

    def create(self) -> None:
        """Make the tables."""
        ...

    def insert(self, arguments: Iterable[str]) -> None:
        """Insert one due job for each text, in one transaction, by the engine's fastest way."""
        ...

    def insert_one(self, arguments: str) -> None:
        """Insert one due job with a plain statement."""
        ...

    def notify(self) -> None:
        """Wake whoever waits."""
        ...

    def listen(self) -> None:
        """Be woken from now on."""
        ...

    def wait(self, timeout: float) -> None:
        """Wait for a notification, at most `timeout` seconds."""
        ...

    def claim(self, limit: int) -> list[tuple[object, int]]:
        """Make up to `limit` due jobs running, each with its next token."""
        ...

    def finish(self, jobs: list[tuple[object, int]], result: str) -> None:
        """Move these jobs to the archive, if their tokens still hold."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Database(Protocol):
    """One database, empty at first; Duly's tables or the bare ones are made in it."""

    @property
    def url(self) -> str:
        """Where Duly finds it."""
        ...

    @property
    def folder(self) -> Path:
        """A folder for files that belong to it."""
        ...

    def bare(self) -> Bare:
        """A new bare client."""
        ...

    def load_pending(self, count: int, task: str) -> None:
        """Add `count` jobs that no worker of the benchmark can run now, by plain SQL.

        A third is of this task and due in the far future, a third the same but urgent, a third
        due now but of a task that no worker knows. Duly's tables only.
        """
        ...

    def horizon_held(self) -> AbstractContextManager[None]:
        """While it lasts, a transaction that sees the database as it is now stays open."""
        ...

    def finished(self) -> int:
        """How many jobs are in the archive; those that only warmed workers up are left out."""
        ...

    def span(self, since: float = 0.0) -> Span:
        """The times of the jobs in the archive that started after `since`."""
        ...

    def stamps(self) -> list[tuple[int, int]]:
        """Of every archived job that answered with one: the microsecond it was given (when it was
        submitted, or due) and the one at which its code ran."""
        ...

    def live_bytes(self) -> int:
        """What the live jobs take on the disk, with their indexes."""
        ...

    def table_bytes(self) -> int:
        """What all tables take on the disk, with their indexes."""
        ...

    def written_bytes(self, processes: Iterable[int]) -> int:
        """What was written for durability so far: the server's log, or by these processes."""
        ...


class Engine(Protocol):
    """Makes databases."""

    @property
    def name(self) -> str:
        """The name that figures carry."""
        ...

    @property
    def writers(self) -> int:
        """How many bare loops are fastest together: one where there is one writer only."""
        ...

    def fresh(self) -> AbstractContextManager[Database]:
        """A new database, removed afterwards."""
        ...

    def description(self) -> Mapping[str, str]:
        """The versions and settings that figures depend on."""
        ...


@runtime_checkable
class CountsStatements(Protocol):
    """A database whose server counts the statements it runs."""

    def forget_statements(self) -> None:
        """Begin to count."""
        ...

    def statements(self) -> Mapping[str, int]:
        """How often each statement of clients ran since; the counting itself is left out."""
        ...
