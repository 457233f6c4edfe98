"""The one node of a simulation: a worker and a scheduler, as production has them."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from duly.model.identifiers import new_id
from duly.runtime.lease import LeaseClock
from duly.runtime.loop import Loop
from duly.runtime.machine import describe
from duly.runtime.reconciler import Reconciler
from duly.runtime.scheduler import Scheduler
from duly.runtime.settings import WorkerSettings
from duly.runtime.worker import Worker
from duly.testing.simulation.crashing import SimulatedCrash
from duly.testing.simulation.loop import VirtualLoop
from duly.testing.simulation.surroundings import NoIsolation, SimulatedSurroundings
from duly.version import VERSION

if TYPE_CHECKING:
    from duly.app import App
    from duly.store.protocol import Store
    from duly.testing.simulation.store import SimulatedStore

LEASE = timedelta(days=36_525)
CAUSE = "a simulated crash"


class Node:
    """Works until it is stopped or dies. It keeps no lease: there is nobody to take it."""

    def __init__(
        self,
        app: App,
        simulated: SimulatedStore,
        loop: VirtualLoop,
        surroundings: SimulatedSurroundings,
        concurrency: int,
        schedules: bool,
    ) -> None:
        self._id = new_id()
        self._app = app
        self._simulated = simulated
        self._store = cast("Store", simulated)
        self._loop = loop
        self._surroundings = surroundings
        self._settings = WorkerSettings(
            concurrency=concurrency,
            lease=LEASE.total_seconds(),
            fair_share=app.config.fair_share,
            payload_limit=app.config.payload_limit,
        )
        self._schedules = schedules
        self._scheduler = Scheduler(self._store)
        self._tasks = app.registry.names
        self._working: asyncio.Task[object]
        self._worker: Worker
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Declare what the app's code declares, and begin to work."""
        store, registry = self._store, self._app.registry
        if self._schedules:
            await Reconciler(store, registry.schedules).tick()
        record = describe(self._id, os.getpid(), (), self._tasks, VERSION)
        await store.arun(store.register_worker(record, LEASE))
        transaction = self._app.client.transaction
        self._worker = Worker(
            self._id,
            store,
            registry,
            transaction,
            self._settings,
            LeaseClock(LEASE.total_seconds()),
            NoIsolation(self._loop, store, transaction, self._settings.payload_limit),
            self._surroundings,
        )
        self._working = asyncio.create_task(self._worker.run())
        if self._schedules:
            self._ticking = asyncio.create_task(Loop("scheduler", self._scheduler.tick).run())

    async def rest(self, longest: float) -> None:
        """Work until nothing is due; SimulatedCrash when the node dies of it, TimeoutError when
        it takes longer than so many seconds of virtual time."""
        while self._schedules and await self._scheduler.tick() <= 0:
            continue
        resting = asyncio.create_task(self._worker.until_idle())
        try:
            async with asyncio.timeout(longest):
                await asyncio.wait({resting, self._working}, return_when="FIRST_COMPLETED")
        finally:
            resting.cancel()
        if self._working.done():
            self._working.result()
            raise SimulatedCrash("the worker has ended")

    async def next_due(self) -> float | None:
        """In how many seconds something is due; None when nothing ever is."""
        store = self._store
        job = await store.arun(store.next_due((), self._tasks))
        tick = await store.arun(store.next_schedule_due()) if self._schedules else None
        job_due = None if job is None else max(0.0, job.seconds)
        return min((each for each in (job_due, tick) if each is not None), default=None)

    @property
    def tasks_under_way(self) -> list[str]:
        """The tasks of the jobs that run."""
        return [job.task for job in self._worker.jobs]

    async def stop(self) -> None:
        """End in order."""
        await self._worker.drain(0.0)
        await self._working
        await self._leave(CAUSE)

    async def bury(self) -> None:
        """It has died: forget what it was about to do, and take its jobs back."""
        self._simulated.dead = True
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        self._simulated.dead = False
        await self._leave(CAUSE)

    async def _leave(self, cause: str) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        await self._store.arun(self._store.reap([self._id], cause, expired_only=False))
