"""When a worker claims, how much, and when it looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from duly.errors import LeaseLost
from duly.model.job import JobRecord
from duly.model.query import Due
from duly.model.settlement import release
from duly.model.step import Recorded
from duly.runtime.ahead import INSTANT, LONGEST, Ahead
from duly.runtime.arrivals import Arrivals
from duly.runtime.chance import chance
from duly.runtime.chores import Chores
from duly.runtime.claims import Claims
from duly.runtime.loop import Loop
from duly.runtime.pace import Pace
from duly.runtime.settler import Settler
from duly.runtime.slots import Slots
from duly.runtime.surroundings import Watch
from duly.runtime.suspicion import Suspicion

MOST_UNSETTLED = 2_000
CONTENTION_PAUSE = 0.005
DEAF_POLL = 1.0
QUESTION = 0.01
"""Seconds for which it is known when the next job is due; what comes sooner is found by looks."""


class _Coming(msgspec.Struct, frozen=True):
    """What the store says is due next, and the event loop's moment of that: never too early, for
    the answer has been on its way."""

    due: Due
    moment: float

    def at(self, moment: float) -> datetime:
        """What the store calls the event loop's moment."""
        return self.due.at + timedelta(seconds=moment - self.moment)

    def moment_of(self, at: datetime) -> float:
        """What the event loop calls the store's."""
        return self.moment + (at - self.due.at).total_seconds()


class Claimer:
    """Claims no more than can start now, or within moments, and has it started.

    `start` is called with a job, with what earlier attempts of it have recorded, and with the event
    loop's moment to start it at if that is not now; `lease_lost` when the store says that the
    worker's jobs are not its own any more.
    """

    def __init__(
        self,
        claims: Claims,
        suspicion: Suspicion,
        slots: Slots,
        pace: Pace,
        settler: Settler,
        chores: Chores,
        poll: float,
        start: Callable[[JobRecord, Recorded | None, float | None], None],
        lease_lost: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._suspicion = suspicion
        self._slots = slots
        self._pace = pace
        self._settler = settler
        self._chores = chores
        self._poll = poll
        self._start = start
        self._lease_lost = lease_lost
        self._turns = Loop("claims", self._watchful_turn)
        self._watch: Watch | None = None
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._arrivals = Arrivals(self._loop.time())
        self._ahead = Ahead(slots)
        self._nothing_near = False
        self._coming: _Coming | None = None
        self._claimed_from = 0.0
        """From which moment on what is coming is within reach."""
        self._known_until = 0.0
        """Until which moment there is no need to ask when the next job is due, while jobs come
        often: nothing that was there when it was asked is within reach before."""
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

    async def _watchful_turn(self) -> float:
        """A turn, and attention to the store's signal only while there is nothing to do."""
        watch = self._watch
        assert watch is not None
        watch.ease()
        try:
            pause = await self._turn()
        except BaseException:
            watch.attend()
            raise
        if pause > 0:
            watch.attend()
        return pause

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
            coming = await self._next_due()
            if coming is None or coming.due.seconds > 0:
                return self._until(coming)
        # Judged before the store is asked: what ends meanwhile may make something due.
        rested = not self._slots and not self._settler.backlog and not self._chores
        expected = self._expected()
        if expected is None:
            limit = self._pace.claimable()
            jobs = await self._claim(limit)
        else:
            now = self._loop.time()
            reach, limit = self._ahead.reach(now)
            due_by = expected.at(max(now + reach, expected.moment))
            jobs = await self._claim(limit, expected, due_by)
        self._arrivals.came(len(jobs), self._loop.time())
        if jobs:
            self._idle.clear()
            self._nothing_near = False
            if len(jobs) > limit // 2 and expected is None:
                return 0.0
            # Their code first: to ask for more takes a moment, too.
            await asyncio.sleep(0)
        soon = None if self._looks_for_idleness else self._arrivals.next_in()
        if soon is not None and self._loop.time() + soon < self._known_until:
            self._nothing_near = False
            return soon
        coming = await self._next_due()
        if coming is None or coming.due.seconds > 0:
            if rested and not jobs:
                self._idle.set()
        elif not jobs:
            await self._claims.end_expired()
        elif expected and len(jobs) >= limit:
            # There is more than may be claimed ahead, and it is due.
            return 0.0
        pause = self._until(coming) if jobs else max(CONTENTION_PAUSE, self._until(coming))
        self._known_until = self._loop.time() + min(pause, QUESTION)
        return self._at_most(soon, pause)

    async def _next_due(self) -> _Coming | None:
        due = await self._claims.next_due(exact=self._looks_for_idleness)
        return None if due is None else _Coming(due, self._loop.time() + due.seconds)

    def _expected(self) -> _Coming | None:
        """What this turn is for, if it is about to be due, or became so while the last claim was
        under way: then others may be about to. Whoever was woken looks for what is due now, and
        whoever waits for idleness for nothing else."""
        coming, self._coming = self._coming, None
        if not self._turns.slept_through or self._looks_for_idleness:
            return None
        return coming if self._loop.time() >= self._claimed_from - INSTANT else None

    async def _claim(
        self, limit: int, expected: _Coming | None = None, due_by: datetime | None = None
    ) -> list[JobRecord]:
        """Claim up to so many jobs and have them started, now or, if they are `expected`, each at
        its own moment; answers what was claimed."""
        if self._stopped:
            # Since the turn began: what is being given back is not to be claimed again.
            return []
        begun = self._loop.time()
        self._answered.clear()
        try:
            try:
                jobs, recorded = await self._claims.take(limit, due_by)
            except LeaseLost:
                self._lease_lost()
                return []
            self._ahead.took(self._loop.time() - begun, self._loop.time())
            for job in self._startable(jobs, ahead=expected is not None):
                moment = expected.moment_of(job.run_at) if expected else None
                self._start(job, recorded.get(job.id) if recorded else None, moment)
        finally:
            self._answered.set()
        return jobs

    def _startable(self, jobs: list[JobRecord], ahead: bool) -> list[JobRecord]:
        """Those that start; the others are given back."""
        chosen = [] if self._stopped else self._suspicion.startable(jobs, ahead)
        if chosen is not jobs:
            for job in jobs:
                if job not in chosen:
                    self._settler.put(release(job.id, job.token))
        return chosen

    def _at_most(self, soon: float | None, pause: float) -> float:
        """How long to sleep if one more is to be expected before anybody says so."""
        if soon is None or soon >= pause:
            return pause
        self._coming = None
        self._nothing_near = False
        return soon

    def _until(self, coming: _Coming | None) -> float:
        """How long to sleep until the next job is about to be due."""
        hears = self._watch is not None and self._watch.hears
        poll = (self._poll if hears else DEAF_POLL) * chance.uniform(0.8, 1.2)
        self._nothing_near = coming is None or coming.due.seconds > poll + LONGEST
        if coming is None or self._nothing_near:
            return poll
        self._coming = coming
        now = self._loop.time()
        self._claimed_from = self._ahead.begin(coming.moment, now)
        return max(self._claimed_from - now, 0.0)
