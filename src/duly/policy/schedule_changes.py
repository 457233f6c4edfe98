"""How schedules begin and change: pure functions of the schedule and the time.

Before a change everything up to now is accounted for under what held until then, by
`ticking.decide(look, everything=True)`; these functions give what holds from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.schedule import (
    Definition,
    Look,
    Overlap,
    ScheduleRecord,
    Step,
    Tick,
    TickKind,
    TickOutcome,
    draft_of,
)
from duly.policy.ticking import due_time, next_after_finish, recurrence_of


def begun(
    schedule_id: str,
    definition: Definition,
    now: datetime,
    fingerprint: str | None = None,
    application: str | None = None,
) -> ScheduleRecord:
    """A new schedule: its first tick is its rule's first after now; a fixed delay's is now."""
    return _from_now_on(
        ScheduleRecord(
            id=schedule_id,
            definition=definition,
            fingerprint=fingerprint,
            accounted_until=now,
            # Above every revision of an earlier schedule of this name: a scheduler that was
            # stopped for a while must not take this one for that.
            revision=int(now.timestamp() * 1e6),
            created_at=now,
            updated_at=now,
            application=application,
        ),
        now,
    )


def redefined(
    schedule: ScheduleRecord,
    definition: Definition,
    now: datetime,
    fingerprint: str | None = None,
    application: str | None = None,
) -> ScheduleRecord:
    """The accounted schedule under another definition, which counts from now."""
    changed = msgspec.structs.replace(
        schedule,
        definition=definition,
        fingerprint=fingerprint,
        application=application,
        skipping_since=None,
    )
    if definition.keeps_time_of(schedule.definition):
        # Another overlap policy may let go of what waits.
        due_at = now if schedule.awaits_end else schedule.due_at
        return msgspec.structs.replace(changed, due_at=due_at)
    return _from_now_on(msgspec.structs.replace(changed, next_at=None), now)


def paused(schedule: ScheduleRecord, note: str | None) -> ScheduleRecord:
    """The accounted schedule, paused."""
    return msgspec.structs.replace(schedule, paused=True, note=note, skipping_since=None)


def resumed(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The accounted schedule, no longer paused; failures are counted anew."""
    changed = msgspec.structs.replace(
        schedule, paused=False, note=None, failures_in_a_row=0, skipping_since=None
    )
    return _from_now_on(changed, now)


def applied(schedule: ScheduleRecord, step: Step) -> ScheduleRecord:
    """The schedule as the step leaves it."""
    return msgspec.structs.replace(
        schedule,
        accounted_until=step.accounted_until,
        next_at=step.next_at,
        due_at=step.due_at,
        awaits_end=step.awaits_end,
        skipping_since=step.skipping_since,
    )


def triggered(look: Look) -> Step:
    """One job now, whatever the rule, a pause or the overlap policy say."""
    tick = Tick(
        schedule_id=look.schedule.id,
        nominal=look.now,
        kind=TickKind.MANUAL,
        outcome=TickOutcome.FIRED,
        at=look.now,
    )
    return _beside(look, (tick,), look.schedule.due_at)


def backfilled(look: Look, nominals: Sequence[datetime]) -> Step:
    """Jobs for past nominal times: at once if jobs may overlap, else one after another."""
    at_once = look.schedule.definition.overlap is Overlap.ALLOW
    outcome = TickOutcome.FIRED if at_once else TickOutcome.BUFFERED
    ticks = tuple(
        Tick(
            schedule_id=look.schedule.id,
            nominal=nominal,
            kind=TickKind.BACKFILL,
            outcome=outcome,
            at=look.now,
        )
        for nominal in nominals
    )
    waits = not at_once and bool(ticks)
    due_at = look.now if waits and not look.live else look.schedule.due_at
    step = _beside(look, ticks, due_at)
    return msgspec.structs.replace(step, awaits_end=step.awaits_end or waits)


def with_jobs(schedule: ScheduleRecord, step: Step, identify: Callable[[], UUID]) -> Step:
    """The step with a job for each tick that it fires."""
    drafts = []

    def identified(tick: Tick) -> Tick:
        if tick.outcome is not TickOutcome.FIRED:
            return tick
        job_id = identify()
        drafts.append(draft_of(schedule, tick.nominal, job_id))
        return msgspec.structs.replace(tick, job_id=job_id)

    ticks = tuple(map(identified, step.ticks))
    resolved = tuple(map(identified, step.resolved))
    return msgspec.structs.replace(step, ticks=ticks, resolved=resolved, drafts=tuple(drafts))


def unchanged(look: Look) -> Step:
    """A step that writes nothing, for a change that needs no accounting."""
    return _beside(look, (), look.schedule.due_at)


def _beside(look: Look, ticks: tuple[Tick, ...], due_at: datetime | None) -> Step:
    """A step that leaves the schedule's own ticks as they are."""
    schedule = look.schedule
    return Step(
        schedule_id=schedule.id,
        revision=schedule.revision,
        accounted_until=schedule.accounted_until,
        next_at=schedule.next_at,
        due_at=due_at,
        awaits_end=schedule.awaits_end or schedule.definition.after_finish is not None,
        skipping_since=schedule.skipping_since,
        ticks=ticks,
    )


def _from_now_on(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule with everything up to now behind it."""
    recurrence = recurrence_of(schedule.definition.recurrence)
    if schedule.definition.after_finish is None:
        next_at = recurrence.next_after(now)
    else:
        next_at = next_after_finish(schedule, now)
        next_at = None if next_at is None else max(next_at, now)
    due_at = due_time(schedule, next_at, now)
    return msgspec.structs.replace(
        schedule,
        accounted_until=now,
        next_at=next_at,
        # What waits for the end of a job is to be looked at in any case.
        due_at=now if schedule.awaits_end else due_at,
    )
