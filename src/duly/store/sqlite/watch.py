"""Noticing other processes' commits on an SQLite file, without asking it again and again."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time

import apsw

from duly.store.sqlite.connection import connect
from duly.store.sqlite.forking import register

_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
_POLL = 0.02

FIRST_LOOK = 0.001
LAST_LOOK = 2.0
"""How soon after a report the commit is looked for, and when that is given up, in seconds."""


class CommitSignal:
    """Commits of this process: enough for a database in memory."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def send(self) -> None:
        """Tell the watchers."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def watch(self) -> MemoryWatch:
        """Start watching."""
        return MemoryWatch(self)

    def wait_beyond(self, count: int, timeout: float) -> int:
        """Block until there were more than `count` commits; answers how many there were."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > count, timeout)
            return self._count

    @property
    def count(self) -> int:
        """How many commits there were."""
        return self._count


class MemoryWatch:
    """Waits for commits of this process."""

    hears = True

    def __init__(self, signal: CommitSignal) -> None:
        self._signal = signal
        self._seen = signal.count

    def wait(self, timeout: float) -> bool:
        """See duly.store.protocol.Change."""
        seen = self._signal.wait_beyond(self._seen, timeout)
        changed = seen > self._seen
        self._seen = seen
        return changed

    def close(self) -> None:
        """Nothing is held."""


class FileWatch:
    """Waits for the kernel to report a write to the write-ahead log.

    The report is a hint: the transaction is not committed before the log is on the disk, which
    nothing reports, or not at all. So some looks at data_version follow, at growing intervals;
    it changes with every commit of another connection.
    """

    hears = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._notifier: int | None = None
        self._next_look = FIRST_LOOK
        self._in_use = threading.Lock()
        register(self)
        with self._in_use:
            self._open()
            self._version = self._data_version()

    def wait(self, timeout: float) -> bool:
        """See duly.store.protocol.Change."""
        deadline = time.monotonic() + timeout
        while True:
            if self._moved():
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self._sleep(remaining)

    def close(self) -> None:
        """Let go of the connection and the kernel's watch."""
        self.suspend()
        self.resume()
        self._unwatch()

    def suspend(self) -> None:
        """See forking.Suspendable."""
        self._in_use.acquire()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def resume(self) -> None:
        """See forking.Suspendable."""
        self._in_use.release()

    def _open(self) -> None:
        self._connection = connect(self._path, read_only=True)
        self._data_version()
        # The last to close a file removes its log: this one may be another than before.
        self._unwatch()
        self._notifier = _watch_file(f"{self._path}-wal")
        self._next_look = FIRST_LOOK

    def _data_version(self) -> int:
        assert self._connection is not None
        version: int = self._connection.pragma("data_version")
        return version

    def _moved(self) -> bool:
        with self._in_use:
            anew = self._connection is None
            if anew:
                # Suspended meanwhile; a new connection counts from another number.
                self._open()
            version = self._data_version()
        changed = anew or version != self._version
        self._version = version
        return changed

    def _unwatch(self) -> None:
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            os.close(notifier)

    def _sleep(self, longest: float) -> None:
        if self._notifier is None:
            time.sleep(min(longest, _POLL))
            return
        looks_again = self._next_look < LAST_LOOK
        nap = min(longest, self._next_look) if looks_again else longest
        readable, _, _ = select.select([self._notifier], [], [], nap)
        if not readable:
            self._next_look = min(self._next_look * 2, LAST_LOOK)
            return
        self._next_look = FIRST_LOOK
        events = os.read(self._notifier, 65536)
        if _forgotten(events):
            # The log was removed by the last writer that left; from now on, look at times.
            self._unwatch()


def _watch_file(path: str) -> int | None:
    """A descriptor that becomes readable when the file is written; None where there is none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if library.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _forgotten(events: bytes) -> bool:
    position = 0
    while position + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, position)
        if mask & _IN_IGNORED:
            return True
        position += _EVENT.size + length
    return False
