"""Waiting for jobs to finish: one thread asks for everybody, and only when something changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from duly.client.bell import Bell
from duly.errors import StoreError, StoreUnavailable
from duly.model.job import JobRecord
from duly.policy.states import FINAL
from duly.store.operation import Wake

if TYPE_CHECKING:
    from concurrent.futures import Future

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


def awaited() -> Future[JobRecord | None]:
    """What somebody enters a waiting room with."""
    from concurrent.futures import Future

    return Future()


def first_of(
    futures: Iterable[Future[JobRecord | None]], timeout: float | None
) -> set[Future[JobRecord | None]]:
    """Block until one of them is done, or for `timeout` seconds; answers those that are.

    Not all the time at once: an interrupt that comes when Python is about to block, or to another
    thread, is noticed only when that ends.
    """
    from concurrent.futures import FIRST_COMPLETED, wait

    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = LONGEST_BLOCK if deadline is None else deadline - time.monotonic()
        done, _ = wait(futures, max(0.0, min(left, LONGEST_BLOCK)), FIRST_COMPLETED)
        if done or left <= 0:
            return done


class WaitingRoom:
    """Futures of finished jobs.

    The thread starts with the first waiter and ends soon after the last. It asks when somebody
    comes, when the store signals a change, and now and then without one, since a signal is only a
    hint.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[UUID, list[Future[JobRecord | None]]] = {}
        self._seen: dict[UUID, JobRecord] = {}
        self._arrivals = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: Bell | None = None
        """The thread's. Without one, or with another, a thread has come to its end."""
        self._lingers = True
        self._process = os.getpid()

    def enter(self, job_id: UUID, future: Future[JobRecord | None]) -> None:
        """Have this future told the job's record once it is final, or None if there is no job.
        Whoever enters leaves, also if he was interrupted on his way in."""
        if self._process != os.getpid():
            self._waiters, self._seen = {}, {}
            self._thread = self._bell = None
            self._lock = threading.Lock()
            self._process = os.getpid()
        with self._lock:
            if self._bell is None:
                self._start()
            else:
                self._bell.ring()
            self._waiters.setdefault(job_id, []).append(future)
            self._arrivals += 1
            self._lingers = True

    def leave(self, job_id: UUID, future: Future[JobRecord | None]) -> None:
        """Give up waiting."""
        if self._process != os.getpid():
            return
        with self._lock:
            waiters = self._waiters.get(job_id, [])
            if future in waiters:
                waiters.remove(future)
            if not waiters:
                self._waiters.pop(job_id, None)
                self._seen.pop(job_id, None)

    def last_seen(self, job_id: UUID) -> JobRecord | None:
        """A job that is waited for, as of the last look at it."""
        with self._lock:
            return self._seen.get(job_id)

    def close(self) -> None:
        """End the thread, unless somebody waits; the next who comes starts another."""
        if self._process != os.getpid():
            return
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
        left: dict[UUID, list[Future[JobRecord | None]]] = {}
        with self._lock:
            if self._bell is bell:
                left, self._waiters = self._waiters, {}
                self._seen = {}
                self._thread = self._bell = None
        for futures in left.values():
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(
                        StoreError("the thread that waits for results broke off: ask again")
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

    def _resolve(self, answers: dict[UUID, JobRecord | Exception | None]) -> None:
        with self._lock:
            ready = [(self._waiters.pop(job_id, []), answer) for job_id, answer in answers.items()]
            for job_id in answers:
                self._seen.pop(job_id, None)
        for futures, answer in ready:
            for future in futures:
                if not future.set_running_or_notify_cancel():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
