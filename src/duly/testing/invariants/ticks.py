"""I7 Ticks: each owed tick is in exactly one row, and there are no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from duly.model.job import JobRecord
from duly.model.schedule import ScheduleRecord, Tick, TickKind, TickOutcome
from duly.policy.recurrence import Every
from duly.policy.ticking import recurrence_of
from duly.testing.evidence import Evidence, Finding

MOST_WALKED = 2_000_000
SECOND = timedelta(seconds=1)


def ticks(evidence: Evidence) -> Iterator[Finding]:
    """Every nominal time since a schedule was made is in one row; a fired one has one job."""
    rows: dict[str, list[Tick]] = {}
    for tick in evidence.history.ticks:
        rows.setdefault(tick.schedule_id, []).append(tick)
    made: dict[str, list[JobRecord]] = {}
    for job in evidence.jobs.values():
        if job.schedule_id is not None:
            made.setdefault(job.schedule_id, []).append(job)
    for schedule in evidence.history.schedules:
        found = sorted(rows.get(schedule.id, []), key=lambda tick: tick.nominal)
        yield from _rows(found)
        yield from _jobs(evidence, found, made.get(schedule.id, []))
        if schedule.definition.after_finish is None:
            yield from _owed(schedule, found)


def owed_ticks(schedule: ScheduleRecord) -> list[datetime]:
    """The nominal times that a schedule owes, from its making to where it is accounted for.

    A fixed rate is walked second by second, without the engine's own arithmetic; for everything
    else this asks the engine, which the tests of recurrence hold against a walk of its own.
    """
    recurrence = recurrence_of(schedule.definition.recurrence)
    after, until = schedule.created_at, schedule.accounted_until
    (rule, *others) = recurrence.rules
    special = (others, recurrence.excluded_dates, recurrence.excluded_rules)
    limits = (recurrence.start, recurrence.end, recurrence.maximum_fires)
    plain = not any(special) and limits == (None, None, None)
    if isinstance(rule, Every) and plain and until - after < MOST_WALKED * SECOND:
        return list(_walked(rule, after, until))
    owed: list[datetime] = []
    nominal = recurrence.next_after(after)
    while nominal is not None and nominal <= until and len(owed) < MOST_WALKED:
        owed.append(nominal)
        nominal = recurrence.next_after(nominal)
    return owed


def _walked(rule: Every, after: datetime, until: datetime) -> Iterator[datetime]:
    moment = after.replace(microsecond=0)
    while moment <= until:
        if (
            moment > after
            and (moment - rule.anchor) % timedelta(seconds=rule.seconds) == 0 * SECOND
        ):
            yield moment
        moment += SECOND


def _rows(found: list[Tick]) -> Iterator[Finding]:
    for key, count in Counter(tick.key for tick in found).items():
        if count > 1:
            name, nominal, kind = key
            yield Finding("I7", f"{name}: {count} rows for the {kind} of {nominal.isoformat()}")


def _owed(schedule: ScheduleRecord, found: list[Tick]) -> Iterator[Finding]:
    covered: Counter[datetime] = Counter()
    owed = owed_ticks(schedule)
    for tick in found:
        if tick.kind is not TickKind.TICK:
            continue
        last = tick.until or tick.nominal
        inside = [moment for moment in owed if tick.nominal <= moment <= last]
        covered.update(inside)
        if tick.nominal not in inside or len(inside) != tick.count:
            name = f"{schedule.id}: the row of {tick.nominal.isoformat()} ({tick.outcome})"
            message = f"counts {tick.count} ticks where {len(inside)} are owed"
            yield Finding("I7", f"{name} {message}", tick.job_id)
    for moment in owed:
        if covered[moment] != 1:
            message = (
                f"{schedule.id}: the tick of {moment.isoformat()} is in {covered[moment]} rows"
            )
            yield Finding("I7", message)


def _jobs(evidence: Evidence, found: list[Tick], made: list[JobRecord]) -> Iterator[Finding]:
    fired = {tick.job_id: tick for tick in found if tick.outcome is TickOutcome.FIRED}
    for job_id, tick in fired.items():
        if job_id is None:
            yield Finding("I7", f"{tick.schedule_id}: {tick.nominal.isoformat()} has no job")
        elif job_id not in evidence.jobs and job_id not in evidence.journal:
            yield Finding("I7", f"was fired by {tick.schedule_id} and is not stored", job_id)
    for job in made:
        tick_of = fired.get(job.id)
        if tick_of is None:
            message = f"is a job of {job.schedule_id} for {job.scheduled_for} without a fired tick"
            yield Finding("I7", message, job.id)
        elif tick_of.nominal != job.scheduled_for:
            message = f"is for {job.scheduled_for}, its tick for {tick_of.nominal}"
            yield Finding("I7", message, job.id)
