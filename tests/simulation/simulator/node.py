"""A node: one process with every role of a worker, which can crash, stand still and start again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from duly.errors import StoreError
from duly.model.identifiers import new_id
from duly.model.worker import Worker as WorkerRecord
from duly.runtime.isolation import Isolation
from duly.runtime.janitor import Janitor
from duly.runtime.keeper import LeaseKeeper
from duly.runtime.lease import LeaseClock
from duly.runtime.leaving import Ending
from duly.runtime.loop import Loop
from duly.runtime.pace import Pace
from duly.runtime.scheduler import Scheduler
from duly.runtime.settings import WorkerSettings
from duly.runtime.slots import Slots
from duly.runtime.watchdog import Watchdog
from duly.runtime.worker import Worker
from duly.store.protocol import Store
from duly.testing.simulation.surroundings import NoIsolation, SimulatedSurroundings
from tests.simulation.simulator.wire import Gone, Wire

if TYPE_CHECKING:
    from tests.simulation.simulator.world import World

LEASE = 1.0
here: ContextVar[Node | None] = ContextVar("simulated_node", default=None)
"""The node whose code this is."""


class Node:
    """Lives, dies and is started again for as long as its world lasts."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"node {number}"
        self.dead = True
        self.tasks: set[asyncio.Task[object]] = set()
        self.wire = Wire(world.store, world.clock, world.weather, self)
        self._world = world
        self._rate = world.chance.uniform(0.95, 1.05)
        self._awake = asyncio.Event()
        self._awake.set()
        self._stood_still_at: float | None = None
        self._worker: Worker | None = None

    def boot(self) -> None:
        """Start the process."""
        if not self.dead:
            return
        self.dead = False
        self.resume()
        self._begin(self._live())

    def crash(self) -> None:
        """As kill -9: nothing of it runs any more."""
        self.dead = True
        self.resume()
        mine, self.tasks = self.tasks, set()
        for task in mine:
            task.cancel()
        self._world.start_again(self)

    def drain(self, grace: float) -> None:
        """As SIGTERM: it gives back what does not end in time, and leaves."""
        if not self.dead and self._worker is not None:
            self._begin(self._worker.drain(grace))

    def pause(self) -> None:
        """As SIGSTOP: its clock, as far as its code can tell, stands still, and nothing leaves."""
        if not self.dead and self._stood_still_at is None:
            self._stood_still_at = self._world.clock.monotonic()
            self._awake.clear()

    def resume(self) -> None:
        """As SIGCONT."""
        self._stood_still_at = None
        self._awake.set()

    @property
    def stands_still(self) -> bool:
        """Whether it is paused."""
        return self._stood_still_at is not None

    async def awake(self) -> None:
        """Return when the node does not stand still."""
        await self._awake.wait()

    def monotonic(self) -> float:
        """The node's own clock, which is a little too fast or too slow."""
        now = self._world.clock.monotonic()
        return (now if self._stood_still_at is None else self._stood_still_at) * self._rate

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        """Nothing comes with it from the code that crashed, or that struck."""
        context = Context()
        context.run(here.set, self)
        self._world.loop.create_task(what, context=context)

    async def _live(self) -> None:
        try:
            while await self._work() is not Ending.DRAINED:
                pass
        except Gone:
            return
        except StoreError:
            # A worker that cannot begin ends, and whoever looks after it starts another.
            pass
        self.dead = True
        self._world.start_again(self)

    async def _work(self) -> Ending:
        world, store = self._world, cast(Store, self.wire)
        worker_id = new_id()
        lease = LeaseClock(LEASE)
        await self._register(worker_id)
        settings = WorkerSettings(concurrency=3, lease=LEASE, poll=5.0)
        surroundings = _Surroundings(world, self)
        worker = Worker(
            worker_id,
            store,
            world.app.registry,
            self.wire.transaction,
            settings,
            lease,
            self._isolation(store),
            surroundings,
        )
        self._worker = worker
        keeper = LeaseKeeper(store, LEASE)
        keeper.add(worker_id, lease.renewed, worker.lose_lease)
        watchdog = Watchdog(store, world.app.registry, LEASE)
        loops = [Loop("heartbeat", keeper.tick), Loop("watchdog", watchdog.tick)]
        if world.with_janitor:
            loops.append(Loop("janitor", Janitor(store, world.app.config.retention()).tick))
        roles = [asyncio.create_task(each.run()) for each in loops]
        roles.append(asyncio.create_task(Scheduler(store, surroundings=surroundings).run()))
        try:
            ending = await worker.run()
            await self._reap(worker_id)
            return ending
        finally:
            self._worker = None
            for role in roles:
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)

    async def _reap(self, worker_id: UUID) -> None:
        """As those who host a worker do when it has ended, if they can."""
        store = cast(Store, self.wire)
        with suppress(StoreError):
            await store.arun(store.reap([worker_id], "the worker has ended", expired_only=False))

    def _isolation(self, store: Store) -> Isolation:
        return NoIsolation(self._world.loop, store, self.wire.transaction, 1_048_576)

    async def _register(self, worker_id: UUID) -> None:
        record = WorkerRecord(
            id=worker_id,
            name=self.name,
            machine=self.name,
            pid=1,
            process_started=0,
            queues=(),
            tasks=self._world.app.registry.names,
            version="0",
        )
        store = cast(Store, self.wire)
        while True:
            try:
                await store.arun(store.register_worker(record, timedelta(seconds=LEASE)))
            except StoreError:
                await asyncio.sleep(LEASE / 4)
            else:
                return


class _Surroundings(SimulatedSurroundings):
    """Signals that may not arrive, and workers that claim more than they have room for."""

    def __init__(self, world: World, node: Node) -> None:
        super().__init__(world.loop, world.store, lambda job, verdict: None, None)
        self._world = world
        self._node = node

    def pace(self, slots: Slots) -> Pace:
        return _Hasty(slots, self._world)

    def signal_arrives(self) -> bool:
        return not self._node.dead and self._world.chance.random() > self._world.deafness


class _Hasty(Pace):
    """Now and then jobs are expected to end soon, whether they do or not."""

    def __init__(self, slots: Slots, world: World) -> None:
        super().__init__(slots)
        self._world = world

    def claimable(self) -> int:
        return self._slots.free + self._world.chance.choice((0, 0, 0, 1, 5))
