"""Taking back the jobs of workers that are gone. Every node watches; none is special."""

from __future__ import annotations

import logging
from uuid import UUID

from duly.clock import runtime_clock as clock
from duly.errors import StoreError
from duly.model.query import Reaped
from duly.registry.task import Registry
from duly.runtime.hooks import call_hooks_of_reaped
from duly.runtime.machine import is_dead, machine_identity
from duly.store.protocol import Store

ORPHANS_EVERY = 6

logger = logging.getLogger("duly.watchdog")


class Watchdog:
    """Reaps workers whose process on this machine is gone, at once, and workers elsewhere that
    it has itself watched stay expired for a whole period while it was connected.

    So nobody is reaped in a mass after an outage: at the first look everybody is late, at the
    second only the dead are.
    """

    def __init__(self, store: Store, registry: Registry, lease: float) -> None:
        self._store = store
        self._registry = registry
        self._period = lease / 3
        self._machine = machine_identity()
        self._expired: dict[UUID, float] = {}
        self._looks = 0

    async def tick(self) -> float:
        """One look; see Loop."""
        try:
            await self._look()
        except StoreError:
            self._expired.clear()
            raise
        return self._period

    async def _look(self) -> None:
        workers = await self._store.arun(self._store.workers())
        now = clock.monotonic()
        gone = [worker.id for worker in workers if is_dead(worker, self._machine)]
        if gone:
            await self._reap(gone, "the worker's process is gone", expired_only=False)
        expired = [
            worker.id for worker in workers if worker.lease_left <= 0 and worker.id not in gone
        ]
        self._expired = {worker: self._expired.get(worker, now) for worker in expired}
        overdue = [
            worker for worker, since in self._expired.items() if now - since >= self._period * 0.9
        ]
        if overdue:
            await self._reap(overdue, "the worker's lease ended", expired_only=True)
        self._looks += 1
        if self._looks % ORPHANS_EVERY == 0:
            taken = await self._store.arun(
                self._store.reap_orphans("the job's worker is not registered")
            )
            await self._report(taken, "an unknown worker")

    async def _reap(self, workers: list[UUID], cause: str, expired_only: bool) -> None:
        taken = await self._store.arun(self._store.reap(workers, cause, expired_only))
        for worker in workers:
            self._expired.pop(worker, None)
        await self._report(taken, f"{len(workers)} workers ({cause})")

    async def _report(self, taken: list[Reaped], whose: str) -> None:
        if taken:
            logger.warning("took back %d jobs of %s", len(taken), whose)
            await call_hooks_of_reaped(self._store, self._registry, taken)
