"""Forks, which SQLite's locks do not survive.

SQLite keeps a book of the locks that its process holds. A forked child inherits the book, but not
the locks: it would rely on locks that nobody holds, while its parent, the last to close the file
for all anybody can tell, throws the child's commits away; or it would wait for ever for a lock
that some thread of its parent had at that moment. So nothing is open while a process forks.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Suspendable(Protocol):
    """Something that has connections to files."""

    def suspend(self) -> None:
        """Close every connection, and open none until resumed."""
        ...

    def resume(self) -> None:
        """Go on, in the parent; whoever was to be suspended is, even if that failed."""
        ...


class _Forks:
    """Suspends all before a fork, resumes them in the parent and forgets them in the child."""

    def __init__(self) -> None:
        self.known: WeakSet[Suspendable] = WeakSet()
        self._suspended: list[Suspendable] = []
        self._one_at_a_time = threading.Lock()

    def before(self) -> None:
        self._one_at_a_time.acquire()
        for each in list(self.known):
            self._suspended.append(each)
            each.suspend()

    def after_in_parent(self) -> None:
        while self._suspended:
            self._suspended.pop().resume()
        self._one_at_a_time.release()


_forks = _Forks()


def register(each: Suspendable) -> None:
    """Suspend this one at every fork, for as long as it exists."""
    _forks.known.add(each)


def _forget() -> None:
    global _forks
    _forks = _Forks()


os.register_at_fork(
    before=lambda: _forks.before(),
    after_in_parent=lambda: _forks.after_in_parent(),
    after_in_child=_forget,
)
