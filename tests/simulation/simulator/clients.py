"""Those who ask for work, look after it, and keep a log of what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from duly import Job, StoreUnavailable
from duly.model.job import State
from duly.testing import Emission, Submission, Told
from tests.simulation.simulator import load

if TYPE_CHECKING:
    from tests.simulation.simulator.world import World

T = TypeVar("T")

RESTLESS = 0.3
"""How likely an operator is to look after a job."""


class Clients:
    """Each acts once, in the storm or soon after, over a wire that loses requests and replies."""

    def __init__(self, world: World) -> None:
        self.submissions: list[Submission] = []
        self.emissions: list[Emission] = []
        self._world = world
        self._chance = world.chance
        self._app = world.app
        self._kinds = world.chance.sample(load.KINDS, 3)
        self._priorities = world.chance.choice(((5,), (5,), (5,), (1, 10)))

    async def act(self, number: int, latest: float) -> None:
        """Be one of them."""
        await asyncio.sleep(self._chance.uniform(0, latest))
        kind = self._chance.random()
        if kind < 0.15:
            await self._flow()
        elif kind < 0.4:
            await self._emit(number)
        else:
            await self._submit(number)

    async def _submit(self, number: int) -> None:
        chance = self._chance
        options: dict[str, Any] = {
            "key": chance.choice((None, None, "a", "b")),
            "priority": chance.choice(self._priorities),
        }
        if chance.random() < 0.2:
            options["delay"] = chance.uniform(0.1, 1.0)
        elif chance.random() < 0.1:
            options["expires"] = chance.uniform(0.1, 1.0)
        prepared = chance.choice(self._kinds).using(**options).job(number)
        told, answer = await self._asked(self._app.aenqueue_many([prepared]))
        if told is Told.UNKNOWN and chance.random() < 0.5:
            told, answer = await self._asked(self._app.aenqueue_many([prepared]))
            # It may be there from the first time, whatever became of the second.
            told = Told.UNKNOWN if told is Told.FAILED else told
        job_id = prepared.draft.id if answer is None else answer[0].id
        self.submissions.append(Submission(job_id=job_id, told=told, key=options["key"]))
        if answer is not None and chance.random() < RESTLESS:
            await self._look_after(answer[0])

    async def _look_after(self, job: Job[Any]) -> None:
        """Cancel it, or wait until it is dead and have it run again."""
        await asyncio.sleep(self._chance.expovariate(2.0))
        if self._chance.random() < 0.4:
            await self._asked(job.acancel())
        else:
            await self._replay(job.id)

    async def _replay(self, job_id: UUID) -> None:
        for _ in range(8):
            await asyncio.sleep(self._chance.uniform(0.1, 0.3))
            found = self._world.look(job_id)
            if found is not None and found.state is State.DEAD:
                await self._asked(self._app.areplay(job_id))
                return

    async def _emit(self, number: int) -> None:
        name = self._chance.choice(("go", "go", "paid"))
        event, key = f"event {number}", str(self._chance.randrange(2))
        told, _ = await self._asked(self._app.aemit(name, number, key=key, id=event))
        if told is Told.UNKNOWN:
            told, _ = await self._asked(self._app.aemit(name, number, key=key, id=event))
            told = Told.UNKNOWN if told is Told.FAILED else told
        self.emissions.append(Emission(event_id=event, told=told))

    async def _flow(self) -> None:
        _, run = await self._asked(load.some_flow(self._world).asubmit())
        if run is None or self._chance.random() > RESTLESS:
            return
        await asyncio.sleep(self._chance.expovariate(2.0))
        if self._chance.random() < 0.5:
            await self._asked(run.acancel())
        await asyncio.sleep(self._chance.expovariate(2.0))
        await self._asked(run.aretry())

    async def _asked(self, what: Awaitable[T]) -> tuple[Told, T | None]:
        try:
            return Told.OK, await what
        except StoreUnavailable as error:
            return (Told.UNKNOWN if error.unknown else Told.FAILED), None
