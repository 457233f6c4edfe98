"""When a worker claims, how much, and when it looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.errors import LeaseLost
from duly.model.job import JobRecord
from duly.model.settlement import release
from duly.model.step import Recorded
from duly.runtime.chance import chance
from duly.runtime.chores import Chores
from duly.runtime.claims import Claims
from duly.runtime.loop import Loop
from duly.runtime.settler import Settler
from duly.runtime.slots import Slots
from duly.runtime.surroundings import Watch
from duly.runtime.suspicion import Suspicion

MOST_UNSETTLED = 2_000
CONTENTION_PAUSE = 0.005
DEAF_POLL = 1.0


class Claimer:
    """Claims no more than can start now, and has it started.

    `start` is called with a job and with what earlier attempts of it have recorded, `lease_lost`
    when the store says that the worker's jobs are not its own any more.
    """

    def __init__(
        self,
        claims: Claims,
        suspicion: Suspicion,
        slots: Slots,
        settler: Settler,
        chores: Chores,
        poll: float,
        start: Callable[[JobRecord, Recorded | None], None],
        lease_lost: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._suspicion = suspicion
        self._slots = slots
        self._settler = settler
        self._chores = chores
        self._poll = poll
        self._start = start
        self._lease_lost = lease_lost
        self._turns = Loop("claims", self._turn)
        self._watch: Watch | None = None
        self._stopped = False
        self._nothing_near = False
        self._answered = asyncio.Event()
        self._answered.set()
        self._idle = asyncio.Event()
        """Set while nothing runs, nothing is due, and nothing is left to write."""
        self._looks_for_idleness = False

    async def run(self, watch: Watch) -> None:
        """Claim until stopped; the less often without a reason, the better the watch hears."""
        self._watch = watch
        await self._turns.run()

    def wake(self) -> None:
        """There may be something to claim."""
        self._turns.wake()

    def stop(self) -> None:
        """Claim no more; what a claim under way brings is given back."""
        self._stopped = True
        self._turns.stop()

    async def answered(self) -> None:
        """Wait until no claim is under way."""
        await self._answered.wait()

    async def until_idle(self) -> None:
        """Wait until nothing runs, nothing is due, and nothing is left to write."""
        self._looks_for_idleness = True
        self._idle.clear()
        self._turns.wake()
        await self._idle.wait()

    def look_for_idleness(self) -> None:
        """What has just ended may have been the last, or have made something due."""
        if self._looks_for_idleness and not self._slots:
            self._turns.wake()

    async def _turn(self) -> float:
        """Claim what can be started, or find out when there will be something."""
        if self._stopped:
            return self._poll
        if self._claims.unknown:
            await self._claims.give_back_unknown()
        free = 0 if self._suspicion.bars else self._slots.free
        if free <= 0 or self._settler.backlog > MOST_UNSETTLED:
            await self._slots.freed()
            return 0.0
        if self._nothing_near and self._turns.slept_through:
            # A look for safety's sake: whoever makes something due says so.
            due = await self._claims.next_due()
            if due is None or due > 0:
                return self._until(due)
        # Judged before the store is asked: what ends meanwhile may make something due.
        rested = not self._slots and not self._settler.backlog and not self._chores
        jobs = await self._claim(free)
        if jobs:
            self._idle.clear()
            if len(jobs) > free // 2:
                return 0.0
        due = await self._claims.next_due()
        if due is None or due > 0:
            if rested and not jobs:
                self._idle.set()
        elif not jobs:
            await self._claims.end_expired()
        return self._until(due) if jobs else max(CONTENTION_PAUSE, self._until(due))

    async def _claim(self, free: int) -> list[JobRecord]:
        """Claim and start up to so many jobs; answers what was claimed."""
        self._answered.clear()
        try:
            try:
                jobs, recorded = await self._claims.take(free)
            except LeaseLost:
                self._lease_lost()
                return []
            for job in self._startable(jobs):
                self._start(job, recorded.get(job.id))
        finally:
            self._answered.set()
        return jobs

    def _startable(self, jobs: list[JobRecord]) -> list[JobRecord]:
        """Those that start now; the others are given back."""
        chosen = [] if self._stopped else self._suspicion.startable(jobs)
        if chosen is not jobs:
            for job in jobs:
                if job not in chosen:
                    self._settler.put(release(job.id, job.token))
        return chosen

    def _until(self, due: float | None) -> float:
        """How long to sleep when the next job is due in so many seconds."""
        hears = self._watch is not None and self._watch.hears
        poll = (self._poll if hears else DEAF_POLL) * chance.uniform(0.8, 1.2)
        self._nothing_near = due is None or due > poll
        return poll if due is None or due > poll else max(due, 0.0)
