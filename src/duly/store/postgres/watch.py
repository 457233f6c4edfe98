"""Notifications: hints that it is worth asking now. Polling stays the truth."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import pq, sql

from duly.store.operation import Wake
from duly.store.postgres.connection import is_direct

INTERVAL = 0.01
"""Seconds from one notification of a process to the next, in the long run, if each tells of several
commits,"""
INTERVAL_OF_ONE = 0.002
"""and for each commit that it tells of, if they are few."""
AHEAD = 0.04
"""How many of these seconds may be taken ahead after a pause."""
RETRY_AFTER = 1.0


def channel(schema: str, wake: Wake) -> str:
    """The channel for those whom `wake` names."""
    return f"duly_{schema}_{wake}"


class Notifier:
    """Sends notifications from a thread of its own: several commits, one notification.

    NOTIFY takes a lock on the whole database at commit, so it is kept out of the transactions
    that carry work. While there are few, whoever has a connection at hand may send one himself:
    that is sooner than a thread.
    """

    def __init__(self, send: Callable[[frozenset[Wake]], None]) -> None:
        self._send = send
        self._pending: set[Wake] = set()
        self._commits = 0
        """How many are to be told of."""
        self._due = 0.0
        """When the next would be sent if none were sent ahead."""
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._noting = threading.Lock()
        self._filled = threading.Condition(self._noting)
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="duly-notifier", daemon=True)
        self._thread.start()

    def notify(self, wakes: frozenset[Wake]) -> None:
        """Tell them soon."""
        with self._noting:
            if not self._pending:
                # Else the thread is up already, and waits for nothing but the time to send.
                self._filled.notify()
            self._pending |= wakes
            self._commits += 1

    def rests(self) -> bool:
        """Whether one may be sent now; whoever asks is taken to do so."""
        with self._noting:
            rested = not self._pending and self._early() <= 0
            if rested:
                self._count(1)
            return rested

    def close(self) -> None:
        """Send what is pending and end."""
        with self._filled:
            self._closing = True
            self._filled.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._filled:
                while not self._pending and not self._closing:
                    self._filled.wait()
                while (early := self._early()) > 0 and not self._closing:
                    self._filled.wait(early)
                wakes, self._pending = frozenset(self._pending), set()
                self._count(self._commits)
                self._commits = 0
                closing = self._closing
            if wakes:
                self._send(wakes)
            if closing:
                return

    def _early(self) -> float:
        """For how many seconds none is to be sent."""
        return self._due - AHEAD - time.monotonic()

    def _count(self, commits: int) -> None:
        interval = min(INTERVAL, commits * INTERVAL_OF_ONE)
        self._due = max(self._due, time.monotonic()) + interval


class Listener:
    """Waits for notifications on a connection of its own, which must be direct."""

    def __init__(self, url: str, schema: str, wake: Wake) -> None:
        self._url = url
        self._channel = channel(schema, wake)
        self._connection: psycopg.Connection[object] | None = None
        self.hears = True

    @property
    def descriptor(self) -> int | None:
        """See duly.store.protocol.Change."""
        return None if self._connection is None else self._connection.pgconn.socket

    def wait(self, timeout: float) -> bool:
        """See duly.store.protocol.Change."""
        deadline = time.monotonic() + timeout
        try:
            if self._connection is None:
                self._connection = self._listen()
                # Something may have happened before anybody listened.
                return True
            if not timeout:
                return _has_notifications(self._connection.pgconn)
            for _ in self._connection.notifies(timeout=timeout, stop_after=1):
                return True
        except psycopg.Error:
            self.hears = False
            self.close()
            remaining = deadline - time.monotonic()
            time.sleep(max(0.0, min(RETRY_AFTER, remaining)))
        return False

    def close(self) -> None:
        """Stop listening."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _listen(self) -> psycopg.Connection[object]:
        connection: psycopg.Connection[object] = psycopg.connect(
            self._url, autocommit=True, prepare_threshold=None
        )
        # Behind a pooler LISTEN succeeds and nothing ever arrives.
        self.hears = is_direct(connection)
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        return connection


def _has_notifications(pgconn: pq.abc.PGconn) -> bool:
    """Without waiting. They say nothing but that they have come."""
    pgconn.consume_input()
    number = 0
    while pgconn.notifies() is not None:
        number += 1
    return number > 0
