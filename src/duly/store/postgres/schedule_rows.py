"""Between schedules, ticks and declarations and their PostgreSQL rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from duly.model.schedule import (
    Declaration,
    Definition,
    ScheduleRecord,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.store.operation import Row
from duly.store.postgres.rows import utc

# The type of each column, in the order of SCHEDULE_COLUMNS and TICK_COLUMNS.
SCHEDULE_TYPES = {
    "id": "text",
    "definition": "text",
    "fingerprint": "text",
    "paused": "boolean",
    "note": "text",
    "accounted_until": "timestamptz",
    "next_at": "timestamptz",
    "due_at": "timestamptz",
    "awaits_end": "boolean",
    "skipping_since": "timestamptz",
    "failures_in_a_row": "integer",
    "last_finished_at": "timestamptz",
    "last_success_for": "timestamptz",
    "last_result": "text",
    "revision": "bigint",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
    "application": "text",
    "pause_after_failures": "integer",
}
TICK_TYPES = {
    "schedule_id": "text",
    "nominal": "timestamptz",
    "kind": "text",
    "outcome": "text",
    "reason": "text",
    "until": "timestamptz",
    "count": "integer",
    "job_id": "uuid",
    "at": "timestamptz",
}


def _optional_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


def schedule_values(schedule: ScheduleRecord) -> dict[str, Any]:
    """The record's columns by name."""
    values = msgspec.structs.asdict(schedule)
    values["definition"] = msgspec.json.encode(schedule.definition).decode()
    values["pause_after_failures"] = schedule.definition.pause_after_failures
    return values


def schedule_record(row: Row) -> ScheduleRecord:
    """The row, in the order of SCHEDULE_COLUMNS, as a record."""
    return ScheduleRecord(
        id=row[0],
        definition=msgspec.json.decode(row[1], type=Definition),
        fingerprint=row[2],
        paused=row[3],
        note=row[4],
        accounted_until=utc(row[5]),
        next_at=_optional_utc(row[6]),
        due_at=_optional_utc(row[7]),
        awaits_end=row[8],
        skipping_since=_optional_utc(row[9]),
        failures_in_a_row=row[10],
        last_finished_at=_optional_utc(row[11]),
        last_success_for=_optional_utc(row[12]),
        last_result=row[13],
        revision=row[14],
        created_at=utc(row[15]),
        updated_at=utc(row[16]),
        application=row[17],
    )


def typed(columns: Mapping[str, str]) -> str:
    """The columns and their types, as a list of definitions."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def as_json(rows: Sequence[Any]) -> str:
    """Rows, with their columns by name, as one JSON text."""
    return msgspec.json.encode(rows).decode()


def tick_record(row: Row) -> Tick:
    """The row, in the order of TICK_COLUMNS, as a tick."""
    return Tick(
        schedule_id=row[0],
        nominal=utc(row[1]),
        kind=TickKind(row[2]),
        outcome=TickOutcome(row[3]),
        reason=row[4],
        until=_optional_utc(row[5]),
        count=row[6],
        job_id=row[7],
        at=utc(row[8]),
    )


def declaration_record(row: Row) -> Declaration:
    """The row of the declarations table, with what its schedule says, as a record."""
    return Declaration(
        application=row[0],
        schedule_id=row[1],
        fingerprint=row[2],
        definition=msgspec.json.decode(row[3], type=Definition),
        first_seen=utc(row[4]),
        last_seen=utc(row[5]),
        exists=row[6],
        in_force=row[7],
        owner=row[8],
    )
