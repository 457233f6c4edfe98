"""When what is committed gets on the disk: with the commit, or after it, when others may write."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum, auto

import apsw

from duly.errors import StoreUnavailable

sync_log: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Have on the disk what was written to this descriptor."""


class Synced(Enum):
    """When a commit is on the disk."""

    AT_ONCE = auto()
    """Before others see it."""
    BEFORE_ANSWER = auto()
    """When whoever asked for it calls `sync_all`, before it is answered; others see it, and write,
    meanwhile."""
    AFTER_ANSWER = auto()
    """Moments after that."""


class Syncing:
    """Of one connection at a time, by whoever has its turn. It may be interrupted anywhere.

    SQLite syncs its log while it has the file locked, and only then shows others what it has
    written. A commit that is synced later lets go of the file first. What is in the log is taken
    into the database only after SQLite has synced the log, and whatever is committed later lies
    behind it: if the machine fails in between, the last commits are missing, and nothing else.

    What was not to be answered before is on the disk when it is `done`, or when `sync_all` has been
    called after that, with all that others had committed before it: also where it has written
    nothing, and there is nothing that SQLite syncs.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._log: int | None = None
        self._may_be_later = False
        """Whether SQLite may leave the sync of this connection's commits to others."""
        self._when = Synced.AT_ONCE
        self._changes = 0
        self._was_due = False
        self.has_failed = False
        """Whether the log has to begin anew."""
        self.is_due = False
        """Whether something may be committed that is not on the disk."""

    def prepare(self, connection: apsw.Connection, when: Synced) -> None:
        """Before a transaction of this connection: when it is to be on the disk."""
        if not self._path:
            return
        self._changes, self._was_due = connection.total_changes(), self.is_due
        # Without a log of its own to sync, SQLite does it.
        self._when = when if self._has_log() else Synced.AT_ONCE
        if self._when is not Synced.AT_ONCE:
            self.is_due = True
            if not self._may_be_later:
                self._may_be_later = True
                connection.execute("PRAGMA synchronous = NORMAL")
        elif self._may_be_later:
            connection.execute("PRAGMA synchronous = FULL")
            self._may_be_later = False

    def undone(self) -> None:
        """Nothing came of the transaction."""
        self.is_due = self._was_due

    def failed(self) -> None:
        """SQLite could not write or sync it: what of the log is on the disk nobody knows."""
        self.has_failed = True

    def done(self, connection: apsw.Connection) -> None:
        """It is committed. (SQLite writes and syncs also what was changed and undone again.)"""
        if not self._path:
            return
        has_written = connection.total_changes() != self._changes
        if self._when is Synced.AFTER_ANSWER:
            self.is_due = has_written or self._was_due
        elif self._when is Synced.AT_ONCE and has_written:
            self.is_due = False
        elif self._when is Synced.AT_ONCE:
            self.sync_all()

    def sync_all(self) -> None:
        """Have everything on the disk that is committed, by whomever."""
        self.is_due = self._log is not None
        self.sync()

    def sync(self) -> None:
        """Have everything on the disk that is committed here."""
        if self.is_due and self._log is not None:
            try:
                sync_log(self._log)
            except OSError as error:
                self.has_failed = True
                self.is_due = False
                raise StoreUnavailable(
                    f"{self._path}: what was written may not be on the disk: {error}", unknown=True
                ) from error
        self.is_due = False

    def begin_anew(self, connection: apsw.Connection) -> bool:
        """After a sync that failed nobody knows what of the log is on the disk, and the kernel says
        so once. All of it is taken into the database, and it begins anew, unless others use it."""
        try:
            ((is_busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except apsw.BusyError:
            return False
        self.has_failed = bool(is_busy)
        return not is_busy

    def let_go(self) -> None:
        """The same, before the connection is closed."""
        try:
            self.sync()
        finally:
            self._may_be_later = False
            log, self._log = self._log, None
            if log is not None:
                os.close(log)

    def _has_log(self) -> bool:
        if self._log is None:
            try:
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
        return True
