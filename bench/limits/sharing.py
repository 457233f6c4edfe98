"""Bare threads that share commits: each waits for its row, another stores all that have come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Sharing:
    """Stores with `insert` what threads submit: whoever comes during a commit is in the next."""

    def __init__(self, insert: Callable[[Iterable[str]], None]) -> None:
        self._insert = insert
        self._waiting: list[tuple[str, threading.Lock]] = []
        self._queueing = threading.Lock()
        self._filled = threading.Semaphore(0)

    def submit(self, arguments: str) -> None:
        """Return when the row is stored."""
        stored = threading.Lock()
        stored.acquire()
        with self._queueing:
            self._waiting.append((arguments, stored))
            is_first = len(self._waiting) == 1
        if is_first:
            self._filled.release()
        stored.acquire()

    def work(self) -> None:
        """Store what comes, until woken for nothing."""
        while True:
            self._filled.acquire()
            with self._queueing:
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            self._insert([arguments for arguments, _ in batch])
            for _, stored in batch:
                stored.release()

    def stop(self) -> None:
        """End `work`."""
        self._filled.release()


@contextmanager
def sharing(insert: Callable[[Iterable[str]], None]) -> Iterator[Sharing]:
    """Threads may submit within the block."""
    shared = Sharing(insert)
    worker = threading.Thread(target=shared.work)
    worker.start()
    try:
        yield shared
    finally:
        shared.stop()
        worker.join()
