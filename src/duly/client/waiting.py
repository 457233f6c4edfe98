"""Waiting for jobs to finish: one thread asks for everybody, and only when something changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakSet

from duly.client.bell import Bell
from duly.errors import StoreError, StoreUnavailable
from duly.model.job import JobRecord
from duly.policy.states import FINAL
from duly.store.operation import Wake

if TYPE_CHECKING:
    from queue import SimpleQueue

    from duly.store.protocol import Change, Store

FIRST_LOOK, LONGEST_SILENCE = 0.05, 1.0
"""Seconds without a signal after which it looks all the same, at first and in the long run."""
SHORTEST_GAP, LONGEST_GAP = 0.0005, 0.005
"""Seconds between two looks, for those who have just come, and after looks in vain."""
LONGEST_OF_A_LOOK = 0.05
"""For how many seconds it rests after a look that took that long."""
BLIND_NAP, DEAF_NAP = 0.005, 0.05
"""Seconds for which it hears nobody come, where there is no descriptor to wait for, and where there
are no signals."""
LONGEST_END = 1.0
"""For how many seconds one waits for the end of the thread."""
LINGER = 2.0
"""Seconds for which it stays without anybody: who waits for one job after another comes back."""
LONGEST_BLOCK = 0.5
"""For how many seconds a thread blocks at a time."""


Answer = tuple[UUID, "JobRecord | Exception | None"]
"""A job's id, and its record once it is final; None if there is no job, or why nobody knows."""
Tell = Callable[[Answer], object]
"""Takes an answer in another thread. Not by a lock that Python code holds in a thread that may be
interrupted, as a future of `concurrent.futures` does: it may be held for ever."""


def answers() -> SimpleQueue[Answer]:
    """What a thread is told."""
    from queue import SimpleQueue

    return SimpleQueue()


def next_of(told: SimpleQueue[Answer], timeout: float | None) -> Answer | None:
    """Block until there is one, or for `timeout` seconds; None if there is none.

    Not all the time at once: an interrupt that comes when Python is about to block, or to another
    thread, is noticed only when that ends.
    """
    from queue import Empty

    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = LONGEST_BLOCK if deadline is None else deadline - time.monotonic()
        try:
            return told.get(timeout=max(0.0, min(left, LONGEST_BLOCK)))
        except Empty:
            if left <= 0:
                return None


class WaitingRoom:
    """Tells those who wait for jobs when they have ended.

    The thread starts with the first waiter and ends soon after the last. It asks when somebody
    comes, when the store signals a change, and now and then without one, since a signal is only a
    hint.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()
        _rooms.add(self)

    def _begin(self) -> None:
        """With nobody in it, and no thread."""
        self._waiters: dict[UUID, list[Tell]] = {}
        self._seen: dict[UUID, JobRecord] = {}
        self._arrivals = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: Bell | None = None
        """The thread's, which closes it. A thread that has another one has come to its end."""
        self._lingers = True

    def enter(self, job_id: UUID, tell: Tell) -> None:
        """Have an answer told once there is one. Whoever enters leaves, also if he was interrupted
        on his way in."""
        with self._lock:
            if self._bell is None:
                self._start()
            else:
                self._bell.ring()
            self._waiters.setdefault(job_id, []).append(tell)
            self._arrivals += 1
            self._lingers = True

    def leave(self, job_id: UUID, tell: Tell) -> None:
        """Give up waiting."""
        with self._lock:
            waiters = self._waiters.get(job_id, [])
            if tell in waiters:
                waiters.remove(tell)
            if not waiters:
                self._waiters.pop(job_id, None)
                self._seen.pop(job_id, None)

    def last_seen(self, job_id: UUID) -> JobRecord | None:
        """A job that is waited for, as of the last look at it."""
        with self._lock:
            return self._seen.get(job_id)

    def close(self) -> None:
        """End the thread, unless somebody waits; the next who comes starts another."""
        with self._lock:
            thread = self._thread
            if thread is None or self._waiters:
                return
            self._lingers = False
            if self._bell is not None:
                self._bell.ring()
        thread.join(LONGEST_END)

    def _start(self) -> None:
        bell = Bell()
        thread = threading.Thread(
            target=self._attend, args=(bell,), name="duly-waiting", daemon=True
        )
        try:
            self._bell = bell
            thread.start()
            self._thread = thread
        except BaseException:
            # If it is up all the same, it sees that nobody counts on it.
            self._thread = self._bell = None
            raise

    def _attend(self, bell: Bell) -> None:
        try:
            self._tell_all(bell)
        finally:
            self._end(bell)

    def _tell_all(self, bell: Bell) -> None:
        change = self._watch()
        patience, gap = FIRST_LOOK, SHORTEST_GAP
        known = 0
        try:
            while job_ids := self._present(bell):
                arrivals = self._arrivals
                begun = time.monotonic()
                was_in_vain = not self._look(job_ids)
                took = min(time.monotonic() - begun, LONGEST_OF_A_LOOK)
                if arrivals > known:
                    patience, gap = FIRST_LOOK, SHORTEST_GAP
                else:
                    patience = min(LONGEST_SILENCE, patience * 2)
                    gap = min(LONGEST_GAP, gap * 2) if was_in_vain else SHORTEST_GAP
                known = arrivals
                if self._waiters:
                    time.sleep(max(SHORTEST_GAP, took))
                    if not bell.wait(gap - SHORTEST_GAP):
                        change = self._rest(bell, change, patience)
        finally:
            if change is not None:
                change.close()

    def _end(self, bell: Bell) -> None:
        """Whoever waits for a thread that an error has ended is told."""
        left: list[UUID] = []
        with self._lock:
            if self._bell is bell:
                left = list(self._waiters)
                self._thread = self._bell = None
        bell.close()
        self._resolve(
            dict.fromkeys(
                left, StoreError("the thread that waits for results broke off: ask again")
            )
        )

    def _watch(self) -> Change | None:
        try:
            return self._store.watch(Wake.WAITERS)
        except Exception:
            # Without the hint it takes a little longer; that the store is broken, if so, is told
            # to the waiters by the look at it.
            self._warn("cannot watch %s for changes")
            return None

    def _warn(self, problem: str) -> None:
        import logging

        logging.getLogger("duly.client").warning(problem, self._store.url, exc_info=True)

    def _present(self, bell: Bell) -> frozenset[UUID]:
        """The jobs waited for; without any for long, the thread's time is over."""
        comes_back = True
        while True:
            with self._lock:
                if self._bell is not bell:
                    return frozenset()
                if self._waiters:
                    return frozenset(self._waiters)
                if not (comes_back and self._lingers):
                    self._thread = self._bell = None
                    return frozenset()
            comes_back = bell.wait(LINGER)

    def _rest(self, bell: Bell, change: Change | None, patience: float) -> Change | None:
        """Wait for a change or for somebody new. Answers what to watch from now on."""
        deadline = time.monotonic() + patience
        while (remaining := deadline - time.monotonic()) > 0:
            descriptor = None if change is None else change.descriptor
            if descriptor is not None:
                if bell.wait(remaining, descriptor):
                    return change
                nap = 0.0
            else:
                hears = change is not None and change.hears
                nap = min(BLIND_NAP if hears else DEAF_NAP, remaining)
            try:
                if change is None:
                    time.sleep(nap)
                elif change.wait(nap):
                    return change
            except Exception:
                self._warn("lost the watch on %s")
                if change is not None:
                    change.close()
                change = None
            if descriptor is None and bell.wait(0.0):
                return change
        return change

    def _look(self, job_ids: frozenset[UUID]) -> bool:
        """Tell those whose jobs have ended. Whether there were any."""
        wanted = sorted(job_ids)
        try:
            records = self._store.run(self._store.get(wanted))
        except StoreUnavailable:
            # The waiters' own time limits decide how long to hope for its return.
            return False
        except Exception as error:
            self._resolve(dict.fromkeys(wanted, error))
            return True
        found = dict(zip(wanted, records, strict=True))
        ended: dict[UUID, JobRecord | Exception | None] = {
            job_id: record
            for job_id, record in found.items()
            if record is None or record.state in FINAL
        }
        self._resolve(ended)
        with self._lock:
            for job_id in self._waiters.keys() & found.keys():
                record = found[job_id]
                if record is not None:
                    self._seen[job_id] = record
        return bool(ended)

    def _resolve(self, answers: Mapping[UUID, JobRecord | Exception | None]) -> None:
        with self._lock:
            ready = [self._waiters.pop(job_id, []) for job_id in answers]
            for job_id in answers:
                self._seen.pop(job_id, None)
        for waiters, answer in zip(ready, answers.items(), strict=True):
            for tell in waiters:
                tell(answer)


_rooms: WeakSet[WaitingRoom] = WeakSet()


def _forget_the_parent() -> None:
    """In a forked child: its rooms are empty, and nobody holds their locks."""
    for room in list(_rooms):
        room._begin()


os.register_at_fork(after_in_child=_forget_the_parent)
