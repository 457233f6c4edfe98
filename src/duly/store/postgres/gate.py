"""How many calls of a process use connections at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_FIRST = 2
PATIENCE = 1.0
"""For how many seconds somebody waits alone."""
PATIENCE_WITH_LOOPS = 0.25
"""The same while an event loop has a place: it may be busy with something else for long."""
MOST_ON_LOOPS = 2


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
        self._loops: list[int] = []
        """The threads whose event loops have places."""
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._lock = threading.Lock()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """A connection is used inside. A thread whose own event loop has places does not wait for
        them: it would wait for itself."""
        place, beside = None, False
        with self._lock:
            if self._free:
                self._free -= 1
            elif threading.get_ident() in self._loops:
                beside = True
            elif self._waiting is None:
                place = self._waiting = threading.Lock()
                place.acquire()
        if place is not None:
            self._wait(place)
        try:
            yield
        finally:
            if not beside:
                self._leave()

    def enter_from_loop(self) -> bool:
        """Let this thread's event loop use a connection until `leave_from_loop`, if that takes no
        waiting; answers whether. There are not many such places: what waits for an event loop's
        answer cannot be done before the loop has its turn."""
        with self._lock:
            if not self._free or len(self._loops) >= MOST_ON_LOOPS:
                return False
            self._free -= 1
            self._loops.append(threading.get_ident())
            return True

    def leave_from_loop(self) -> None:
        """This thread's event loop uses it no more."""
        with self._lock:
            self._loops.remove(threading.get_ident())
        self._leave()

    @property
    def used_by_loops(self) -> int:
        """How many event loops use."""
        return len(self._loops)

    def _wait(self, place: threading.Lock) -> None:
        """Until somebody leaves this place, or for as long as one waits alone."""
        try:
            place.acquire(timeout=PATIENCE_WITH_LOOPS if self._loops else PATIENCE)
        except BaseException:
            if not self._withdrawn(place):
                self._leave()
            raise
        self._withdrawn(place)

    def _withdrawn(self, place: threading.Lock) -> bool:
        """Wait no longer; answers whether nobody had left the place."""
        with self._lock:
            waited = self._waiting is place
            if waited:
                self._waiting = None
            return waited

    def _leave(self) -> None:
        with self._lock:
            place, self._waiting = self._waiting, None
            if place is None:
                self._free += 1
            else:
                place.release()
