"""Between schedules, ticks and declarations and their SQLite rows."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.model.identifiers import id_of
from duly.model.schedule import (
    Declaration,
    Definition,
    ScheduleRecord,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.store.operation import Row
from duly.store.sqlite.rows import micros, moment


def optional_micros(value: datetime | None) -> int | None:
    """The moment as a nullable column holds it."""
    return None if value is None else micros(value)


def optional_moment(value: int | None) -> datetime | None:
    """The nullable column as a moment."""
    return None if value is None else moment(value)


def schedule_row(schedule: ScheduleRecord) -> Row:
    """The record as a row, in the order of SCHEDULE_COLUMNS."""
    return (
        schedule.id,
        msgspec.json.encode(schedule.definition).decode(),
        schedule.fingerprint,
        int(schedule.paused),
        schedule.note,
        micros(schedule.accounted_until),
        optional_micros(schedule.next_at),
        optional_micros(schedule.due_at),
        int(schedule.awaits_end),
        optional_micros(schedule.skipping_since),
        schedule.failures_in_a_row,
        optional_micros(schedule.last_finished_at),
        optional_micros(schedule.last_success_for),
        schedule.last_result,
        schedule.revision,
        micros(schedule.created_at),
        micros(schedule.updated_at),
        schedule.application,
        schedule.definition.pause_after_failures,
    )


def schedule_record(row: Row) -> ScheduleRecord:
    """The row, in the order of SCHEDULE_COLUMNS, as a record."""
    return ScheduleRecord(
        id=row[0],
        definition=msgspec.json.decode(row[1], type=Definition),
        fingerprint=row[2],
        paused=bool(row[3]),
        note=row[4],
        accounted_until=moment(row[5]),
        next_at=optional_moment(row[6]),
        due_at=optional_moment(row[7]),
        awaits_end=bool(row[8]),
        skipping_since=optional_moment(row[9]),
        failures_in_a_row=row[10],
        last_finished_at=optional_moment(row[11]),
        last_success_for=optional_moment(row[12]),
        last_result=row[13],
        revision=row[14],
        created_at=moment(row[15]),
        updated_at=moment(row[16]),
        application=row[17],
    )


def tick_row(tick: Tick) -> Row:
    """The tick as a row, in the order of TICK_COLUMNS."""
    return (
        tick.schedule_id,
        micros(tick.nominal),
        tick.kind.value,
        tick.outcome.value,
        tick.reason,
        optional_micros(tick.until),
        tick.count,
        None if tick.job_id is None else tick.job_id.bytes,
        micros(tick.at),
    )


def tick_record(row: Row) -> Tick:
    """The row, in the order of TICK_COLUMNS, as a tick."""
    return Tick(
        schedule_id=row[0],
        nominal=moment(row[1]),
        kind=TickKind(row[2]),
        outcome=TickOutcome(row[3]),
        reason=row[4],
        until=optional_moment(row[5]),
        count=row[6],
        job_id=None if row[7] is None else id_of(row[7]),
        at=moment(row[8]),
    )


def declaration_record(row: Row) -> Declaration:
    """The row of the declarations table, with what its schedule says, as a record."""
    return Declaration(
        application=row[0],
        schedule_id=row[1],
        fingerprint=row[2],
        definition=msgspec.json.decode(row[3], type=Definition),
        first_seen=moment(row[4]),
        last_seen=moment(row[5]),
        exists=bool(row[6]),
        in_force=row[7],
        owner=row[8],
    )
