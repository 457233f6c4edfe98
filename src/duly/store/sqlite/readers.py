"""Reading while others write: a few connections of their own, lent to whoever asks."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import apsw

from duly.store.awaiting import Recipient, fulfil
from duly.store.operation import Operation, drive
from duly.store.sqlite.connection import connect, errors_explained, execute

T = TypeVar("T")

READERS = 4


class _Place:
    """Where one read at a time can be done."""

    def __init__(self) -> None:
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self.taken = threading.Lock()
        self.connection: apsw.Connection | None = None


class Readers:
    """At most READERS reads at a time, each on a connection of its own.

    A blocking caller reads in its own thread, which works until the very end of the interpreter;
    an executor of the standard library takes no more work once the main thread has ended.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(READERS, "duly-sqlite-reader")
        self._places = [_Place() for _ in range(READERS)]
        self._closed = False

    def read(self, operation: Operation[T]) -> T:
        """Run an operation that only asks."""
        free = [place for place in self._places if not place.taken.locked()]
        place = free[0] if free else random.choice(self._places)
        with place.taken, errors_explained(self._path):
            try:
                returned = self._ask(self._ready(place), operation)
            finally:
                if self._closed:
                    self._let_go(place)
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
        for place in self._places:
            place.taken.acquire()
            self._let_go(place)

    def resume(self) -> None:
        """Go on, with new connections."""
        for place in self._places:
            place.taken.release()

    def _ready(self, place: _Place) -> apsw.Connection:
        """The place's connection, in no transaction."""
        if place.connection is None:
            place.connection = connect(self._path, read_only=True)
        if place.connection.in_transaction:
            # Whoever was here before was interrupted before he could end what he had begun.
            place.connection.execute("ROLLBACK")
        return place.connection

    def _ask(self, connection: apsw.Connection, operation: Operation[T]) -> T:
        try:
            connection.execute("BEGIN")
            return drive(operation.start(), lambda each: execute(connection, each))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _let_go(self, place: _Place) -> None:
        connection, place.connection = place.connection, None
        if connection is not None:
            connection.close()
