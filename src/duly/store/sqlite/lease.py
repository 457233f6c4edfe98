"""The writer's connection in the hands of a caller: `app.transaction()` on SQLite."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import apsw


class Lease:
    """The writer's connection in the hands of one caller, for one transaction."""

    def __init__(self) -> None:
        self.granted: Future[apsw.Connection] = Future()
        self.ended: Future[None] = Future()
        self._returned = threading.Event()
        self.commits = False
        self.valid = True
        self.in_use = threading.Lock()

    def give_back(self, commit: bool) -> None:
        """End the transaction; blocks until it is committed or rolled back."""
        self.commits = commit
        self._returned.set()
        self.ended.result()

    def wait(self, limit: float) -> bool:
        """Block until the connection was given back; False when that took too long."""
        return self._returned.wait(limit)


def forbid_transaction_control(
    action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
) -> int:
    """An authorizer: the block ends the transaction, not a statement in it."""
    forbidden = action in (apsw.SQLITE_TRANSACTION, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH)
    return apsw.SQLITE_DENY if forbidden else apsw.SQLITE_OK
