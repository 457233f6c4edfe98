"""Schedules in a store, a clock that the test moves, and what became of ticks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec

from duly import App
from duly.model.job import JobRecord
from duly.model.query import JobFilter
from duly.model.schedule import Definition, ScheduleRecord, Tick
from duly.policy.recurrence import Recurrence, every
from duly.runtime.scheduler import Scheduler

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def define(rule: Recurrence | None = None, **fields: object) -> Definition:
    """A definition, every minute unless told otherwise."""
    recurrence = rule or Recurrence((every(minutes=1),))
    made = Definition(task="t", arguments="{}", recurrence=msgspec.json.encode(recurrence).decode())
    return msgspec.structs.replace(made, **fields)


def add(app: App, schedule: ScheduleRecord) -> None:
    """Store a new schedule."""
    assert app.store.run(app.store.add_schedules([schedule])) == [True]


def drain(app: App, clock: Clock) -> int:
    """Tick until nothing is due; answers how many rounds that took."""
    scheduler = Scheduler(app.store, clock)
    rounds = 0
    while app.store.run(app.store.due_schedules(1, clock.now)):
        asyncio.run(scheduler.tick())
        rounds += 1
    return rounds


def ticks_of(app: App, name: str) -> list[Tick]:
    """What became of its ticks, earliest first."""
    return app.store.run(app.store.ticks(name, 100_000))[::-1]


def jobs_of(app: App, name: str) -> list[JobRecord]:
    """The jobs it made, oldest first."""
    jobs, before = [], None
    while page := app.store.run(app.store.find(JobFilter(schedule_id=name), 5_000, before)):
        jobs += page
        before = page[-1].id
    return jobs[::-1]
