"""Reading while others write: a few connections of their own, lent to whoever asks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from duly.store.awaiting import Recipient, fulfil
from duly.store.operation import Operation, drive
from duly.store.sqlite.connection import connect, errors_explained, execute

T = TypeVar("T")

READERS = 4


class Readers:
    """At most READERS reads at a time, each on a connection of its own.

    A blocking caller reads in its own thread, which works until the very end of the interpreter;
    an executor of the standard library takes no more work once the main thread has ended.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READERS, "duly-sqlite-reader")
        self._free = threading.Semaphore(READERS)
        self._idle: deque[apsw.Connection] = deque()
        self._closed = False

    def read(self, operation: Operation[T]) -> T:
        """Run an operation that only asks."""
        with self._lent() as connection, errors_explained(self._path):
            connection.execute("BEGIN")
            try:
                returned = drive(operation.start(), lambda each: execute(connection, each))
            finally:
                connection.execute("ROLLBACK")
        return operation.answer(returned)

    def hand_in(self, operation: Operation[Any], recipient: Recipient) -> None:
        """Run it in another thread."""
        self._threads.submit(fulfil, recipient, self.read, operation)

    def close(self) -> None:
        """Let the reads that go on finish, then close every connection."""
        self._threads.shutdown()
        self.suspend()
        self._closed = True
        self.resume()

    def suspend(self) -> None:
        """Let the reads that go on finish and close every connection; others wait."""
        for _ in range(READERS):
            self._free.acquire()
        while self._idle:
            self._idle.pop().close()

    def resume(self) -> None:
        """Go on, with new connections."""
        self._free.release(READERS)

    @contextmanager
    def _lent(self) -> Iterator[apsw.Connection]:
        with self._free:
            connection = self._idle.pop() if self._idle else connect(self._path, read_only=True)
            try:
                yield connection
            finally:
                if self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)
