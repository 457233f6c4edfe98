"""Waiting for jobs to finish: one thread asks for everybody, and only when something changed."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from uuid import UUID

from duly.errors import StoreUnavailable
from duly.model.job import JobRecord
from duly.policy.states import FINAL
from duly.store.operation import Wake
from duly.store.protocol import Store

FIRST_LOOK = 0.05
LONGEST_SILENCE = 1.0
SHORTEST_GAP = 0.005


class WaitingRoom:
    """Futures of finished jobs.

    The thread starts with the first waiter and ends with the last. It asks when the store
    signals a change, and now and then without one, since a signal is only a hint.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[UUID, list[Future[JobRecord | None]]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def enter(self, job_id: UUID) -> Future[JobRecord | None]:
        """A future that gets the job's record once it is final, or None if there is no job."""
        if self._process != os.getpid():
            self._waiters, self._thread = {}, None
            self._lock = threading.Lock()
            self._process = os.getpid()
        future: Future[JobRecord | None] = Future()
        with self._lock:
            self._waiters.setdefault(job_id, []).append(future)
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

    def _attend(self) -> None:
        change = self._store.watch(Wake.WAITERS)
        patience = FIRST_LOOK
        known: frozenset[UUID] = frozenset()
        try:
            while True:
                with self._lock:
                    job_ids = frozenset(self._waiters)
                    if not job_ids:
                        self._thread = None
                        return
                self._look(job_ids)
                patience = FIRST_LOOK if job_ids - known else min(LONGEST_SILENCE, patience * 2)
                known = job_ids
                time.sleep(SHORTEST_GAP)
                change.wait(patience)
        finally:
            change.close()

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
        self._resolve(
            {
                job_id: record
                for job_id, record in zip(wanted, records, strict=True)
                if record is None or record.state in FINAL
            }
        )

    def _resolve(self, answers: dict[UUID, JobRecord | Exception | None]) -> None:
        with self._lock:
            ready = [(self._waiters.pop(job_id, []), answer) for job_id, answer in answers.items()]
        for futures, answer in ready:
            for future in futures:
                if not future.set_running_or_notify_cancel():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
