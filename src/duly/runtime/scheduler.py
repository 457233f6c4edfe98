"""Recurring work: any number of nodes take the schedules that are due; none is a leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.clock import runtime_clock as clock
from duly.model.identifiers import new_id
from duly.model.schedule import Look, Step
from duly.policy.recurrence import refresh_zones
from duly.policy.schedule_changes import unchanged, with_jobs
from duly.policy.ticking import decide
from duly.runtime.chance import chance
from duly.runtime.loop import Loop
from duly.runtime.surroundings import Surroundings, Watch
from duly.store.operation import Wake
from duly.store.protocol import Store

BATCH = 1_000
PORTION = 250
MOST_ROWS = 1_000
POLL = 10.0
POLL_UNHEARD = 1.0
REST = 0.05
AFTER_LOST_RACE = 0.05
AFTER_TROUBLE = timedelta(minutes=1)
ZONES_FRESH = 3600.0

logger = logging.getLogger("duly.scheduler")


class Scheduler:
    """Looks at what is due, decides, and writes the steps, many in one transaction.

    Two that look at the same schedule decide the same; the step of one lands, and the other's
    changes nothing. One that dies in between has changed nothing. `now` replaces the store's clock
    in tests and simulations.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime] | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store = store
        self._now = now
        self._surroundings = surroundings or Surroundings()
        self._watch: Watch | None = None
        self._nothing_near = False
        self._zones_read = clock.monotonic()

    async def run(self) -> None:
        """Work until cancelled; sleep until the next schedule is due or something changes."""
        role = Loop("scheduler", self.tick)
        self._watch = self._surroundings.watch(self._store, role.wake, Wake.SCHEDULERS, REST)
        try:
            await role.run()
        finally:
            self._watch.close()

    async def tick(self) -> float:
        """One round; see Loop."""
        self._refresh_zones()
        store, now = self._store, None if self._now is None else self._now()
        if self._nothing_near:
            due = await store.arun(store.next_schedule_due(now))
            if due is None or due > 0:
                return self._until(due)
        looks = await store.arun(store.due_schedules(BATCH, now))
        if not looks:
            return self._until(await store.arun(store.next_schedule_due(now)))
        landed = 0
        steps: list[Step] = []
        for start in range(0, len(looks) + PORTION, PORTION):
            # While the database writes one portion, the next is decided.
            written, steps = await asyncio.gather(
                self._fire(steps, now),
                asyncio.to_thread(_decide_all, looks[start : start + PORTION]),
            )
            landed += written
        # Somebody else was quicker with all of them: let them go ahead with the rest, too.
        return 0.0 if landed else chance.uniform(0, AFTER_LOST_RACE)

    async def _fire(self, steps: Sequence[Step], now: datetime | None) -> int:
        """Write the steps; answers how many have landed."""
        landed = 0
        for portion in _portions(steps):
            landed += sum(await self._store.arun(self._store.fire(portion, now)))
        return landed

    def _refresh_zones(self) -> None:
        """Pick up a changed tz database; the daily look at each schedule does the rest."""
        if clock.monotonic() - self._zones_read > ZONES_FRESH:
            refresh_zones()
            self._zones_read = clock.monotonic()

    def _until(self, due: float | None) -> float:
        """How long to sleep when the next schedule is due in so many seconds."""
        hears = self._watch is not None and self._watch.hears
        poll = (POLL if hears else POLL_UNHEARD) * chance.uniform(0.8, 1.2)
        self._nothing_near = due is None or due > poll
        return poll if due is None or due > poll else max(due, 0.0)


def _decide_all(looks: Sequence[Look]) -> list[Step]:
    return [_decide(look) for look in looks]


def _decide(look: Look) -> Step:
    """The step of one schedule. One that cannot be decided must not hold up the others."""
    try:
        return with_jobs(look.schedule, decide(look), new_id)
    except Exception:
        logger.exception(
            "schedule %s cannot be decided; it is looked at again in %s",
            look.schedule.id,
            AFTER_TROUBLE,
        )
        return msgspec.structs.replace(unchanged(look), due_at=look.now + AFTER_TROUBLE)


def _portions(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in portions with some MOST_ROWS rows each."""
    portion: list[Step] = []
    rows = 0
    for step in steps:
        portion.append(step)
        rows += 1 + len(step.ticks) + len(step.resolved)
        if rows >= MOST_ROWS:
            yield portion
            portion, rows = [], 0
    if portion:
        yield portion
