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
        self._waiting = 0
        self._changed = threading.Condition()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """A connection is used inside."""
        with self._changed:
            if not self._free and (self._waiting or not self._wait()):
                self._free += 1
            self._free -= 1
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify()

    def _wait(self) -> bool:
        """Until somebody has left, for as long as one waits alone; answers whether."""
        self._waiting += 1
        try:
            return self._changed.wait_for(lambda: self._free > 0, PATIENCE)
        finally:
            self._waiting -= 1
