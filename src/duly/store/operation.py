"""Store verbs written once, without I/O.

A verb is a generator: it yields statements and is sent their rows. Whoever drives it owns the
connection: the store's own, blocking or not, or the caller's, of whatever library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from duly.model.job import Draft

T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)
Row = tuple[Any, ...]


class Statement(msgspec.Struct, frozen=True):
    """One SQL text with its parameters; with `many`, run once for each of a list of them.

    A `counted` one, on SQLite, is answered by one row with the number of rows that it has changed.
    What makes it wait for its `turn` is run before it, by those who can send both in one message as
    a transaction of their own.
    """

    text: str
    parameters: Any = None
    many: bool = False
    counted: bool = False
    turn: Statement | None = None


Steps = Generator[Statement, list[Row], T]


class Wake(StrEnum):
    """Who may want to look again after an operation has been committed."""

    WORKERS = "workers"
    WAITERS = "waiters"
    SCHEDULERS = "schedulers"


class Operation(msgspec.Struct, Generic[Answer], frozen=True):
    """A verb with its arguments, not yet run. It may be started again after a rollback.

    `hopefully` is a quicker way for the store's own connections. When a row that it writes is there
    already it fails, or answers None, and the operation is started as usual; on SQLite it is one
    statement, which is a transaction of its own. `atomic` operations need a transaction around
    their statements; others are one statement, or several that stand each on its own. `again` runs
    it once more when the connection broke and nobody knows whether the first run was committed;
    without it that is the caller's to find out. After a `quiet` one nobody is woken if its answer
    is empty: nothing has changed. One that does nothing but submit `drafts`, each on its own, may
    be run together with others. `make_ready` does what can be done before its turn, in whatever
    thread. On SQLite, which has one writer at a time, `conclude` makes the answer of what the steps
    return, when nothing is locked any more. What one does that has an `early` way wakes nobody, and
    may be answered moments before it is on the disk; that way answers None, and has written
    nothing, where what there is to do may not.
    """

    start: Callable[[], Steps[Answer]]
    hopefully: Callable[[], Steps[Any]] | None = None
    again: Callable[[], Steps[Answer]] | None = None
    writes: bool = True
    atomic: bool = True
    wakes: frozenset[Wake] = msgspec.field(default_factory=frozenset)
    quiet: bool = False
    drafts: Sequence[Draft] = ()
    make_ready: Callable[[], object] | None = None
    conclude: Callable[[Any], Any] | None = None
    early: Callable[[], Steps[Any]] | None = None

    def answer(self, returned: Any) -> Answer:
        """What the operation answers with when its steps have returned this."""
        result: Answer = returned if self.conclude is None else self.conclude(returned)
        return result


def drive(steps: Steps[T], execute: Callable[[Statement], list[Row]]) -> T:
    """Run the steps on a blocking connection."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = execute(statement)
            except BaseException:
                steps.close()
                raise
            statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Steps[T], execute: Callable[[Statement], Awaitable[list[Row]]]) -> T:
    """Run the steps on an asynchronous connection."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = await execute(statement)
            except BaseException:
                steps.close()
                raise
            statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
