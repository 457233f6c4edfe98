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
        self._waiting = False
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    @contextmanager
    def passed(self) -> Iterator[None]:
        """A connection is used inside."""
        with self._lock:
            if self._free:
                self._free -= 1
            elif not self._waiting:
                self._wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting = False
                    self._changed.notify()
                else:
                    self._free += 1

    def _wait(self) -> None:
        """Until somebody leaves their place to this one, or for as long as one waits alone."""
        self._waiting = True
        try:
            self._changed.wait_for(lambda: not self._waiting, PATIENCE)
        except BaseException:
            if not self._waiting:
                self._free += 1
            raise
        finally:
            self._waiting = False
