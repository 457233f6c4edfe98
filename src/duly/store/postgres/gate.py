"""How many calls of a process use connections at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_FIRST = 2
PATIENCE = 1.0
"""For how many seconds somebody waits alone."""


class Gate:
    """Lets calls through to the pool of connections: two at first, and more as there is need.

    The pool opens another connection for every call that finds none free at that moment. Each
    costs the server a process, its own plans, and its own view of the memory they share: a worker
    that claims and settles at a time would have twice as many as it needs, for what could wait
    milliseconds. There is need when somebody waits already, or has waited for long.
    """

    def __init__(self) -> None:
        self._free = AT_FIRST
        self._waiting: threading.Lock | None = None
        """Locked for the one who waits; whoever leaves their place to that one unlocks it."""
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._lock = threading.Lock()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """A connection is used inside."""
        place = None
        with self._lock:
            if self._free:
                self._free -= 1
            elif self._waiting is None:
                place = self._waiting = threading.Lock()
                place.acquire()
        if place is not None:
            self._wait(place)
        try:
            yield
        finally:
            self.leave()

    def enter_at_once(self) -> bool:
        """Use a connection from now until `leave`, if that takes no waiting; answers whether."""
        with self._lock:
            free = self._free > 0
            self._free -= free
            return free

    def leave(self) -> None:
        """A connection is used no more."""
        with self._lock:
            place, self._waiting = self._waiting, None
            if place is None:
                self._free += 1
            else:
                place.release()

    def _wait(self, place: threading.Lock) -> None:
        """Until somebody leaves this place, or for as long as one waits alone."""
        try:
            place.acquire(timeout=PATIENCE)
        except BaseException:
            if not self._withdrawn(place):
                self.leave()
            raise
        self._withdrawn(place)

    def _withdrawn(self, place: threading.Lock) -> bool:
        """Wait no longer; answers whether nobody had left the place."""
        with self._lock:
            waited = self._waiting is place
            if waited:
                self._waiting = None
            return waited
