"""Schedules: add, look, change, pause and resume, run now, fill in the past.

Each use case is a conversation with the store (see duly.store.conversation), so that the client,
the command line and the HTTP service share it whether they block or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from duly.errors import InvalidOption, InvalidSchedule, ScheduleConflict
from duly.model.identifiers import new_id
from duly.model.schedule import Definition, ScheduleRecord, Tick
from duly.policy import options, schedule_changes
from duly.policy.reconciling import GRACE
from duly.policy.recurrence import Recurrence
from duly.policy.schedule_changes import backfilled, begun, triggered, with_jobs
from duly.policy.ticking import MOST_TICKS, recurrence_of
from duly.store.changing import TRIES, change, look_at, redefine
from duly.store.conversation import Conversation

if TYPE_CHECKING:
    from duly.store.protocol import Store

LARGEST_PAGE = 10_000
LARGEST_BACKFILL = 100_000

_MICROSECOND = timedelta(microseconds=1)


class Backfill(msgspec.Struct, frozen=True):
    """What a request for a past range came to: ticks that get a job now, and ticks that already
    had one."""

    made: int
    already: int


class Schedules:
    """The use cases about the schedules of one store. `now` replaces its clock in tests."""

    def __init__(self, store: Store, now: datetime | None = None) -> None:
        self._store = store
        self._now = now

    def add(self, name: str, definition: Definition) -> Conversation[ScheduleRecord]:
        """Store a new schedule. ScheduleConflict when the name is taken, InvalidSchedule when all
        its times are past."""
        schedule_id = options.schedule(name)
        instant = yield self._store.clock(self._now)
        schedule = begun(schedule_id, definition, instant)
        if schedule.next_at is None:
            described = recurrence_of(definition.recurrence).describe()
            raise InvalidSchedule(f"it has no time to come: {described}")
        (added,) = yield self._store.add_schedules([schedule])
        if not added:
            raise ScheduleConflict(
                schedule_id, "there is one of this name: choose another, or remove that one first"
            )
        return schedule

    def get(self, name: str) -> Conversation[ScheduleRecord]:
        """The schedule; UnknownSchedule when there is none."""
        return (yield from look_at(self._store, name, self._now)).schedule

    def page(
        self, limit: int = 100, after: str | None = None
    ) -> Conversation[Sequence[ScheduleRecord]]:
        """Schedules by name, after the cursor, which is the last name of the page before."""
        schedules: list[ScheduleRecord] = yield self._store.schedules(_page(limit), after)
        return schedules

    def ticks(
        self, name: str, limit: int = 100, before: Tick | None = None
    ) -> Conversation[Sequence[Tick]]:
        """What became of the schedule's ticks, latest first; those of a removed schedule too, for
        as long as they are kept."""
        ticks: list[Tick] = yield self._store.ticks(name, _page(limit), before)
        return ticks

    def pause(self, name: str, note: str | None = None) -> Conversation[ScheduleRecord]:
        """Make no more jobs until it is resumed; the ticks of that time are skipped. What is owed
        until now is still done."""
        why = None if note is None else options.note(note)
        return (
            yield from change(
                self._store,
                name,
                lambda look: schedule_changes.paused(look.schedule, why),
                self._now,
            )
        )

    def resume(self, name: str) -> Conversation[ScheduleRecord]:
        """Go on; the paused time is one row of skipped ticks. Nothing for one that goes on."""
        schedule = yield from self.get(name)
        if not schedule.paused:
            return schedule
        return (
            yield from change(
                self._store,
                name,
                lambda look: schedule_changes.resumed(look.schedule, look.now),
                self._now,
            )
        )

    def update(
        self, name: str, define: Callable[[Definition], Definition]
    ) -> Conversation[ScheduleRecord]:
        """Give the schedule another definition. Ticks that are owed under the old one are done;
        another rule counts from now. Not for schedules that are declared in code."""
        schedule = yield from self.get(name)
        if schedule.declared:
            raise ScheduleConflict(name, "it is declared in code: change it there")
        return (yield from redefine(self._store, name, define, self._now))

    def remove(self, name: str) -> Conversation[None]:
        """Delete the schedule. Its jobs go on. Not for one that running code declares: it would
        come back."""
        for _ in range(TRIES):
            schedule = yield from self.get(name)
            if schedule.declared:
                yield from self._refuse_declared(name)
            removed = yield self._store.remove_schedule(name, schedule.revision, self._now)
            if removed:
                return
        raise ScheduleConflict(name, "it was changed by others all the time: try again")

    def trigger(self, name: str) -> Conversation[UUID]:
        """One job now, also while the schedule is paused or a job of it is live; answers its id."""
        for tries in range(TRIES):
            look = yield from look_at(self._store, name, self._now)
            # Two requests within a microsecond are two ticks all the same.
            look = msgspec.structs.replace(look, now=look.now + tries * _MICROSECOND)
            step = with_jobs(look.schedule, triggered(look), new_id)
            (landed,) = yield self._store.fire([step], self._now)
            job_id = step.drafts[0].id
            if landed and (yield self._store.get([job_id])) != [None]:
                return job_id
        raise ScheduleConflict(name, "it was changed by others all the time: try again")

    def backfill(self, name: str, first: datetime, last: datetime) -> Conversation[Backfill]:
        """Jobs for the nominal times from `first` to `last`, both included, that got none so far.

        At once where jobs of the schedule may overlap, else one after another. Times that are not
        accounted for yet are left to the schedule itself.
        """
        wanted, already = yield from self._backfillable(name, first, last)
        for start in range(0, len(wanted), MOST_TICKS):
            yield from self._backfill(name, wanted[start : start + MOST_TICKS])
        return Backfill(made=len(wanted), already=already)

    def backfillable(self, name: str, first: datetime, last: datetime) -> Conversation[Backfill]:
        """What `backfill` would come to, as things are now. Nothing is changed."""
        wanted, already = yield from self._backfillable(name, first, last)
        return Backfill(made=len(wanted), already=already)

    def _backfillable(
        self, name: str, first: datetime, last: datetime
    ) -> Conversation[tuple[list[datetime], int]]:
        """The nominal times of the range without a job, and how many others there are."""
        look = yield from look_at(self._store, name, self._now)
        schedule = look.schedule
        if schedule.definition.after_finish is not None:
            raise InvalidOption("backfill", "a fixed delay has no nominal times in the past")
        recurrence = recurrence_of(schedule.definition.recurrence)
        first = options.instant(first, "first")
        last = min(options.instant(last, "last"), schedule.accounted_until)
        count = recurrence.count_between(first - _MICROSECOND, last)
        if count > LARGEST_BACKFILL:
            raise InvalidOption(
                "backfill",
                f"{count:,} ticks are more than the {LARGEST_BACKFILL:,} of one request: give a "
                "shorter range",
            )
        fired: list[datetime] = yield self._store.fired_ticks(name, first, last)
        wanted = _without(recurrence, first, last, frozenset(fired))
        return wanted, count - len(wanted)

    def _backfill(self, name: str, nominals: Sequence[datetime]) -> Conversation[None]:
        for _ in range(TRIES):
            look = yield from look_at(self._store, name, self._now)
            step = with_jobs(look.schedule, backfilled(look, nominals), new_id)
            (landed,) = yield self._store.fire([step], self._now)
            if landed:
                return
        raise ScheduleConflict(name, "it was changed by others all the time: try again")

    def _refuse_declared(self, name: str) -> Conversation[None]:
        instant = yield self._store.clock(self._now)
        declarations = yield self._store.declarations()
        if any(
            each.schedule_id == name and instant - each.last_seen <= GRACE for each in declarations
        ):
            raise ScheduleConflict(name, "running code declares it: remove it there, or pause it")


def _without(
    recurrence: Recurrence, first: datetime, last: datetime, fired: frozenset[datetime]
) -> list[datetime]:
    wanted = []
    nominal = recurrence.next_after(first - _MICROSECOND)
    while nominal is not None and nominal <= last:
        if nominal not in fired:
            wanted.append(nominal)
        nominal = recurrence.next_after(nominal)
    return wanted


def _page(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidOption("limit", f"must be from 1 to {LARGEST_PAGE:,}; got {limit!r}")
    return limit
