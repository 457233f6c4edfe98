"""When what is committed gets on the disk: with the commit, or after it, when others may write."""

from __future__ import annotations

import os
from collections.abc import Callable

import apsw

from duly.errors import StoreUnavailable

sync_log: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Have on the disk what was written to this descriptor."""


class Syncing:
    """Of one connection at a time, by whoever has its turn.

    SQLite syncs its log while it has the file locked, and only then shows others what it has
    written. A commit that is synced later lets go of the file first. What is in the log is taken
    into the database only after SQLite has synced the log, and whatever is committed later lies
    behind it: if the machine fails in between, the last commits are missing, and nothing else.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._log: int | None = None
        self._is_later = False
        self.is_due = False
        """Whether something may not be on the disk yet."""

    def prepare(self, connection: apsw.Connection, is_later: bool) -> None:
        """Have the next commit of this connection synced at once, or by `sync`."""
        if not self._path:
            return
        if is_later is not self._is_later:
            # In no transaction, or SQLite would refuse.
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if is_later else 'FULL'}")
            self._is_later = is_later
        self.is_due = self.is_due or is_later

    def sync(self) -> None:
        """Have everything on the disk that is committed."""
        if not self.is_due:
            return
        # Not again after a failure: the kernel tells of it once.
        self.is_due = False
        try:
            if self._log is None:
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            sync_log(self._log)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path}: what was written may not be on the disk: {error}", unknown=True
            ) from error

    def let_go(self) -> None:
        """The same, before the connection is closed."""
        try:
            self.sync()
        finally:
            self._is_later = False
            log, self._log = self._log, None
            if log is not None:
                os.close(log)
