"""Keeping leases: one renewal for all workers that this process answers for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from duly.clock import runtime_clock as clock
from duly.errors import StoreError
from duly.runtime.lease import LeaseClock
from duly.store.protocol import Store

BEATS_A_LEASE = 4

logger = logging.getLogger("duly.lease")


class LeaseKeeper:
    """Renews the leases of the workers it was given, and tells each how that went."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._renewed: dict[UUID, Callable[[float], None]] = {}
        self._lost: dict[UUID, Callable[[], None]] = {}

    def add(self, worker: UUID, renewed: Callable[[float], None], lost: Callable[[], None]) -> None:
        """Keep this worker's lease from now on."""
        self._renewed[worker] = renewed
        self._lost[worker] = lost

    def remove(self, worker: UUID) -> None:
        """Keep it no longer."""
        self._renewed.pop(worker, None)
        self._lost.pop(worker, None)

    async def tick(self) -> float:
        """One heartbeat; see Loop."""
        workers = list(self._renewed)
        if workers:
            sent_at = clock.monotonic()
            alive = await self._store.arun(
                self._store.renew(workers, timedelta(seconds=self._lease))
            )
            for worker in workers:
                if worker in alive and worker in self._renewed:
                    self._renewed[worker](sent_at)
                elif worker in self._lost:
                    logger.error("worker %s was reaped: its lease is lost", worker)
                    lost = self._lost[worker]
                    self.remove(worker)
                    lost()
        return self._lease / BEATS_A_LEASE


class ThreadKeeper:
    """Keeps one lease from a thread of the worker's own process.

    Enough for a database in memory, which nobody else can reach, and for short runs; code that
    holds the interpreter's lock for longer than the lease loses it.
    """

    def __init__(self, store: Store, worker: UUID, lease: LeaseClock) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="duly-lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        length = timedelta(seconds=self._lease.length)
        while not self._closing.wait(self._lease.length / BEATS_A_LEASE):
            sent_at = clock.monotonic()
            try:
                alive = self._store.run(self._store.renew([self._worker], length))
            except StoreError as error:
                logger.warning("the lease could not be renewed: %s", error)
                continue
            if self._worker in alive:
                self._lease.renewed(sent_at)
