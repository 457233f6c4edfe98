"""Noticing other processes' commits on an SQLite file, without asking it again and again."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import apsw

from duly.store.operation import Wake
from duly.store.sqlite.connection import connect
from duly.store.sqlite.forking import register

_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_IN_CLOSE_NOWRITE = 0x10
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
_EVENTS = 4096
_POLL = 0.02
_LOOK = 1.0
"""How long a commit may go unnoticed whose process was killed before it could tell, in seconds."""


class _Bell(NamedTuple):
    """What is done to which file of a database to wake somebody, and what the kernel calls that."""

    suffix: str
    ring: Callable[[str], None]
    report: int


class _Library:
    """Calls to the C library that keep the interpreter's lock: one that lets go of it would let
    other threads fork, and these take nearly no time."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None, use_errno=True)
        self.open = library.open
        self.open.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self.close = library.close
        self.close.argtypes = [ctypes.c_int]
        self.inotify_init1 = library.inotify_init1
        self.inotify_add_watch = library.inotify_add_watch


@cache
def _library() -> _Library | None:
    try:
        return _Library()
    except (OSError, AttributeError):
        return None


def _touch(flags: int, path: str) -> None:
    """Open the file and close it, and let nothing come in between, neither an interrupt, which
    would leave it open, nor a fork, whose child would have it open: then nobody hears of it."""
    library = _library()
    if library is not None:
        # A map calls both without a turn of the interpreter.
        list(map(library.close, map(library.open, (os.fsencode(path),), (flags,))))


# Only the log is opened: to close any descriptor of the other files drops SQLite's locks on them.
# To set a file's times changes its inode, and where a file system has no journal the next commit
# waits for that to be written: what happens often is told by what changes nothing.
_BELLS = {
    Wake.WORKERS: _Bell("-wal", partial(_touch, os.O_RDONLY), _IN_CLOSE_NOWRITE),
    Wake.WAITERS: _Bell("-wal", partial(_touch, os.O_WRONLY), _IN_CLOSE_WRITE),
    Wake.SCHEDULERS: _Bell("", os.utime, _IN_ATTRIB),
}


def announce(path: str, wakes: frozenset[Wake]) -> None:
    """Tell those whom a commit to this database may concern, in every process.

    The kernel reports it to them when somebody rings their bell. That the log was written it would
    report too, but before the commit is on the disk, and to everybody for every page.
    """
    for wake in wakes:
        bell = _BELLS[wake]
        with suppress(OSError):
            bell.ring(path + bell.suffix)


class CommitSignal:
    """Commits of this process: enough for a database in memory."""

    def __init__(self) -> None:
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._changing = threading.Lock()
        self._changed = threading.Condition(self._changing)
        self._count = 0

    def send(self, wakes: frozenset[Wake]) -> None:
        """Tell the watchers."""
        with self._changing:
            self._count += 1
            self._changed.notify_all()

    def watch(self) -> MemoryWatch:
        """Start watching."""
        return MemoryWatch(self)

    def wait_beyond(self, count: int, timeout: float) -> int:
        """Block until there were more than `count` commits; answers how many there were."""
        with self._changing:
            self._changed.wait_for(lambda: self._count > count, timeout)
            return self._count

    @property
    def count(self) -> int:
        """How many commits there were."""
        return self._count


class MemoryWatch:
    """Waits for commits of this process."""

    hears = True
    descriptor = None

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
    """Waits for the kernel to report what `announce` did.

    Whoever was killed between a commit and that has told nobody: so, now and then, it looks at
    data_version, which changes with every commit of another connection. Where the kernel does not
    help, it looks often.
    """

    hears = True

    def __init__(self, path: str, wake: Wake) -> None:
        self._path = path
        self._bell = _BELLS[wake]
        self._connection: apsw.Connection | None = None
        self._notifier: int | None = None
        self._in_use = threading.Lock()
        register(self)
        with self._in_use:
            self._open()
            self._version = self._data_version()
        self._looked = time.monotonic()

    @property
    def descriptor(self) -> int | None:
        """See duly.store.protocol.Change."""
        return self._notifier

    def wait(self, timeout: float) -> bool:
        """See duly.store.protocol.Change."""
        now = time.monotonic()
        deadline = now + timeout
        while True:
            pause = _POLL if self._notifier is None else _LOOK
            if self._heard(max(0.0, min(deadline, self._looked + pause) - now)):
                return True
            now = time.monotonic()
            if now >= self._looked + pause or self._connection is None:
                self._looked = now
                if self._moved():
                    return True
            if now >= deadline:
                return False

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
        # The last to close a database removes its log: this one may be another than before.
        self._unwatch()
        self._notifier = _watch_file(self._path + self._bell.suffix, self._bell.report)

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

    def _heard(self, longest: float) -> bool:
        """Wait for a report."""
        if self._notifier is None:
            time.sleep(longest)
            return False
        readable = select.poll()
        readable.register(self._notifier, select.POLLIN)
        if not readable.poll(longest * 1000):
            return False
        if _forgotten(os.read(self._notifier, _EVENTS)):
            # The log was removed by the last writer that left; from now on, look often.
            self._unwatch()
        return True


def _watch_file(path: str, report: int) -> int | None:
    """A descriptor that is readable when this was done to the file; None where there is none."""
    library = _library()
    descriptor: int = -1 if library is None else library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if library is None or descriptor < 0:
        return None
    if library.inotify_add_watch(descriptor, os.fsencode(path), report) < 0:
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
