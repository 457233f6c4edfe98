"""Between steps and events and their rows on PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duly.model.event import EventRecord
from duly.model.step import Step, StepKind, StepState
from duly.store.operation import Row
from duly.store.postgres.rows import utc
from duly.store.records import EVENT_COLUMNS, STEP_COLUMNS, STEP_IDENTITY

STEP_TYPES = {
    "job_id": "uuid",
    "name": "text",
    "key": "text",
    "kind": "text",
    "state": "text",
    "number": "integer",
    "attempt": "integer",
    "tries": "integer",
    "fingerprint": "text",
    "result": "text",
    "error_type": "text",
    "error_message": "text",
    "until": "timestamptz",
    "child_id": "uuid",
    "event_id": "text",
}
STEP_LIST = ", ".join(STEP_COLUMNS)
EVENT_LIST = ", ".join(EVENT_COLUMNS)
KEEP_DONE = (
    f"ON CONFLICT ({', '.join(STEP_IDENTITY)}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in STEP_COLUMNS if name not in STEP_IDENTITY)
    + " WHERE steps.state <> 'done'"
)


def step_values(step: Step) -> dict[str, Any]:
    """The step's columns, `at` excepted, by name."""
    values = {name: getattr(step, name) for name in STEP_TYPES}
    return values | {"kind": step.kind.value, "state": step.state.value}


def step_record(row: Row) -> Step:
    """The row, in the order of STEP_COLUMNS, as a step."""
    return Step(
        job_id=row[0],
        name=row[1],
        key=row[2],
        kind=StepKind(row[3]),
        state=StepState(row[4]),
        number=row[5],
        attempt=row[6],
        tries=row[7],
        fingerprint=row[8],
        result=row[9],
        error_type=row[10],
        error_message=row[11],
        until=_optional_utc(row[12]),
        child_id=row[13],
        event_id=row[14],
        at=utc(row[15]),
    )


def event_record(row: Row) -> EventRecord:
    """The row, in the order of EVENT_COLUMNS, as an event."""
    return EventRecord(
        id=row[0], name=row[1], payload=row[2], key=row[3], job_id=row[4], at=utc(row[5])
    )


def _optional_utc(value: datetime | None) -> datetime | None:
    return None if value is None else utc(value)
