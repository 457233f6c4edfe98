"""Waiting for jobs to finish: one thread asks for everybody, and only when something changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from duly.errors import StoreUnavailable
from duly.model.job import JobRecord
from duly.policy.states import FINAL
from duly.store.operation import Wake

if TYPE_CHECKING:
    from concurrent.futures import Future

    from duly.store.protocol import Change, Store

FIRST_LOOK = 0.05
LONGEST_NAP = 0.05
LONGEST_SILENCE = 1.0
SHORTEST_GAP = 0.005
LONGEST_BLOCK = 0.5
"""For how many seconds a thread blocks at a time."""


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

    The thread starts with the first waiter and ends with the last. It asks when the store
    signals a change, and now and then without one, since a signal is only a hint.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[UUID, list[Future[JobRecord | None]]] = {}
        self._seen: dict[UUID, JobRecord] = {}
        self._arrivals = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def enter(self, job_id: UUID) -> Future[JobRecord | None]:
        """A future that gets the job's record once it is final, or None if there is no job."""
        from concurrent.futures import Future

        if self._process != os.getpid():
            self._waiters, self._seen, self._thread = {}, {}, None
            self._lock = threading.Lock()
            self._process = os.getpid()
        future: Future[JobRecord | None] = Future()
        with self._lock:
            self._waiters.setdefault(job_id, []).append(future)
            self._arrivals += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._attend, name="duly-waiting", daemon=True
                )
                self._thread.start()
        return future

    def leave(self, job_id: UUID, future: Future[JobRecord | None]) -> None:
        """Give up waiting."""
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

    def _attend(self) -> None:
        change = self._watch()
        patience = FIRST_LOOK
        known = 0
        try:
            while job_ids := self._present():
                arrivals = self._arrivals
                self._look(job_ids)
                patience = FIRST_LOOK if arrivals > known else min(LONGEST_SILENCE, patience * 2)
                known = arrivals
                time.sleep(SHORTEST_GAP)
                change = self._rest(change, arrivals, patience)
        finally:
            if change is not None:
                change.close()

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

    def _present(self) -> frozenset[UUID]:
        """The jobs waited for; without any, the thread's time is over."""
        with self._lock:
            if not self._waiters:
                self._thread = None
            return frozenset(self._waiters)

    def _rest(self, change: Change | None, arrivals: int, patience: float) -> Change | None:
        """Wait for a change or for somebody new, in naps that keep neither waiting for long.

        Answers what to watch from now on.
        """
        deadline = time.monotonic() + patience
        while (remaining := deadline - time.monotonic()) > 0:
            nap = min(LONGEST_NAP, remaining)
            if change is None:
                time.sleep(nap)
            else:
                try:
                    if change.wait(nap):
                        return change
                except Exception:
                    self._warn("lost the watch on %s")
                    change.close()
                    change = None
            with self._lock:
                if self._arrivals > arrivals or not self._waiters:
                    return change
        return change

    def _look(self, job_ids: frozenset[UUID]) -> None:
        wanted = sorted(job_ids)
        try:
            records = self._store.run(self._store.get(wanted))
        except StoreUnavailable:
            # The waiters' own time limits decide how long to hope for its return.
            return
        except Exception as error:
            self._resolve(dict.fromkeys(wanted, error))
            return
        found = dict(zip(wanted, records, strict=True))
        self._resolve(
            {
                job_id: record
                for job_id, record in found.items()
                if record is None or record.state in FINAL
            }
        )
        with self._lock:
            for job_id in self._waiters.keys() & found.keys():
                record = found[job_id]
                if record is not None:
                    self._seen[job_id] = record

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
