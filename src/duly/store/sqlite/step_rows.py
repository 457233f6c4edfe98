"""Between steps and events and their rows on SQLite."""

from __future__ import annotations

from uuid import UUID

from duly.model.event import EventRecord
from duly.model.step import Step, StepKind, StepState
from duly.store.operation import Row
from duly.store.records import EVENT_COLUMNS, STEP_COLUMNS, STEP_IDENTITY
from duly.store.sqlite.rows import micros, moment

WRITE_STEP = (
    f"INSERT INTO steps ({', '.join(STEP_COLUMNS)}) VALUES ({', '.join('?' * len(STEP_COLUMNS))})"
    f" ON CONFLICT ({', '.join(STEP_IDENTITY)}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in STEP_COLUMNS if name not in STEP_IDENTITY)
    + " WHERE steps.state <> 'done'"
)
READ_STEP = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE job_id = ? AND name = ? AND key = ?"
# (a JSON array of ids in hexadecimal digits)
READ_STEPS = (
    f"SELECT {', '.join(STEP_COLUMNS)} FROM steps"
    " WHERE job_id IN (SELECT unhex(value) FROM json_each(?)) ORDER BY number, at"
)
EVENT_LIST = ", ".join(EVENT_COLUMNS)


def step_row(step: Step, instant: int) -> Row:
    """The step as a row, in the order of STEP_COLUMNS, written at `instant`."""
    return (
        step.job_id.bytes,
        step.name,
        step.key,
        step.kind.value,
        step.state.value,
        step.number,
        step.attempt,
        step.tries,
        step.fingerprint,
        step.result,
        step.error_type,
        step.error_message,
        None if step.until is None else micros(step.until),
        None if step.child_id is None else step.child_id.bytes,
        step.event_id,
        instant,
    )


def step_record(row: Row) -> Step:
    """The row, in the order of STEP_COLUMNS, as a step."""
    return Step(
        job_id=UUID(bytes=row[0]),
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
        until=None if row[12] is None else moment(row[12]),
        child_id=None if row[13] is None else UUID(bytes=row[13]),
        event_id=row[14],
        at=moment(row[15]),
    )


def event_row(event: EventRecord, instant: int) -> Row:
    """The event as a row, in the order of EVENT_COLUMNS, emitted at `instant`."""
    return (
        event.id,
        event.name,
        event.payload,
        event.key,
        None if event.job_id is None else event.job_id.bytes,
        instant,
    )


def event_record(row: Row) -> EventRecord:
    """The row, in the order of EVENT_COLUMNS, as an event."""
    return EventRecord(
        id=row[0],
        name=row[1],
        payload=row[2],
        key=row[3],
        job_id=None if row[4] is None else UUID(bytes=row[4]),
        at=moment(row[5]),
    )
