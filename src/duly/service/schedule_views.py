"""Schedules as people look at them: what comes next, and what became of the ticks so far."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from duly.model.job import JobRecord, State
from duly.model.schedule import Definition, Look, ScheduleRecord, Tick
from duly.policy.recurrence import PreviewedFire, preview
from duly.policy.recurrence.english import duration
from duly.policy.ticking import recurrence_of
from duly.service.schedules import Schedules
from duly.store.changing import look_at
from duly.store.conversation import Conversation
from duly.store.protocol import Store


class Standing(StrEnum):
    """Whether a schedule goes on."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


class ToldTick(msgspec.Struct, frozen=True):
    """A tick, and the state of its job: None without a job, and when its retention has passed."""

    tick: Tick
    job_state: State | None


class ScheduleLine(msgspec.Struct, frozen=True):
    """A schedule among others, with the latest of its ticks."""

    schedule: ScheduleRecord
    last_tick: ToldTick | None


class ScheduleList(msgspec.Struct, frozen=True):
    """A page of schedules by name, at one moment; `next` is the cursor of the page after it."""

    lines: Sequence[ScheduleLine]
    next: str | None
    now: datetime


class ScheduleDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule in full, at one moment.

    `live` tells whether a job of it is live. `fires` are the next nominal times of its rule, also
    while it is paused; a fixed delay has none. `ticks` are the latest first.
    """

    schedule: ScheduleRecord
    live: bool
    fires: Sequence[PreviewedFire]
    ticks: Sequence[ToldTick]
    now: datetime


class ScheduleViews:
    """The questions about the schedules of one store. `now` replaces its clock in tests."""

    def __init__(self, store: Store, now: datetime | None = None) -> None:
        self._store = store
        self._now = now
        self._schedules = Schedules(store, now)

    def page(self, limit: int, after: str | None = None) -> Conversation[ScheduleList]:
        """Schedules by name, after the cursor, each with its latest tick."""
        now: datetime = yield self._store.clock(self._now)
        schedules = yield from self._schedules.page(limit, after)
        latest: list[Tick] = yield self._store.latest_ticks([each.id for each in schedules])
        told = yield from self._told(latest)
        by_schedule = {each.tick.schedule_id: each for each in told}
        lines = [ScheduleLine(each, by_schedule.get(each.id)) for each in schedules]
        return ScheduleList(lines, schedules[-1].id if len(schedules) == limit else None, now)

    def detail(self, name: str, fires: int = 10, ticks: int = 10) -> Conversation[ScheduleDetail]:
        """Everything about a schedule; UnknownSchedule when there is none."""
        look: Look = yield from look_at(self._store, name, self._now)
        definition = look.schedule.definition
        coming: Sequence[PreviewedFire] = ()
        if definition.after_finish is None:
            coming = preview(recurrence_of(definition.recurrence), look.now, fires)
        latest = yield from self._schedules.ticks(name, ticks)
        return ScheduleDetail(
            schedule=look.schedule,
            live=look.live,
            fires=coming,
            ticks=(yield from self._told(latest)),
            now=look.now,
        )

    def _told(self, ticks: Sequence[Tick]) -> Conversation[list[ToldTick]]:
        job_ids = [tick.job_id for tick in ticks if tick.job_id is not None]
        jobs: list[JobRecord | None] = []
        if job_ids:
            jobs = yield self._store.get(job_ids)
        states = {job.id: job.state for job in jobs if job is not None}
        return [
            ToldTick(tick, None if tick.job_id is None else states.get(tick.job_id))
            for tick in ticks
        ]


def standing(schedule: ScheduleRecord) -> Standing:
    """Whether the schedule goes on. One whose last time has passed has ended."""
    if schedule.paused:
        return Standing.PAUSED
    if schedule.next_at is None and not schedule.awaits_end:
        return Standing.ENDED
    return Standing.ACTIVE


def in_words(definition: Definition) -> str:
    """When the schedule runs, in plain English."""
    recurrence = recurrence_of(definition.recurrence)
    described = recurrence.describe()
    if definition.after_finish is None:
        return described
    rest = described.removeprefix(recurrence.rules[0].describe())
    return f"{duration(round(definition.after_finish))} after the end of the job before{rest}"
