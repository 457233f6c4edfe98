"""Recorded steps on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.step import EventWait, Recorded, Step, StepKind, StepState, StepWrite
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.records import by_job, until_of
from duly.store.sqlite.rows import array, clock, micros, moment
from duly.store.sqlite.step_rows import (
    EVENT_LIST,
    READ_STEP,
    READ_STEPS,
    WRITE_STEP,
    event_record,
    step_record,
    step_row,
)
from duly.store.sqlite.submission import enqueue_again
from duly.store.sqlite.suspension import FITTING, fitting

FENCE = (
    "UPDATE jobs SET stepped = 1, expires_at = NULL, undos = undos + ? WHERE id = ? AND token = ?"
    " AND state = 'running' RETURNING id"
)
FIRST_EVENT = f"SELECT {EVENT_LIST} FROM events WHERE {FITTING} ORDER BY number LIMIT 1"
FORGET_STEPS = (
    "DELETE FROM steps WHERE (job_id, name, key) IN (SELECT job_id, name, key FROM steps"
    " WHERE at < ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = job_id)"
    " AND NOT EXISTS (SELECT 1 FROM archive WHERE id = job_id)"
    " AND NOT EXISTS (SELECT 1 FROM dead WHERE id = job_id) LIMIT ?) RETURNING name"
)
FORGET_IDLE_WAITS = (
    "DELETE FROM waits WHERE rowid IN (SELECT waits.rowid FROM waits WHERE NOT EXISTS"
    " (SELECT 1 FROM jobs WHERE id = waits.job_id AND state IN ('running', 'waiting')) LIMIT ?)"
)


def _steps(job_id: UUID, now: datetime | None) -> Steps[Recorded]:
    (recorded,) = yield from _steps_of([job_id], now)
    return recorded


def _steps_of(job_ids: Sequence[UUID], now: datetime | None) -> Steps[list[Recorded]]:
    rows = yield Statement(READ_STEPS, (array([job_id.hex for job_id in job_ids]),))
    return by_job(job_ids, map(step_record, rows), moment(clock(now)))


def record(writes: Sequence[StepWrite], now: datetime | None) -> Steps[list[Step | None]]:
    """See StepVerbs.record."""
    instant = clock(now)
    answers: list[Step | None] = []
    for write in writes:
        step = until_of(write, moment(instant))
        registers = step.kind is StepKind.UNDO and step.state is StepState.READY
        holds = yield Statement(FENCE, (int(registers), step.job_id.bytes, write.token))
        if not holds:
            answers.append(None)
            continue
        yield Statement(WRITE_STEP, step_row(step, instant))
        if write.draft is not None:
            yield from enqueue_again([write.draft], now)
        (row,) = yield Statement(READ_STEP, (step.job_id.bytes, step.name, step.key))
        answers.append(step_record(row))
    return answers


def _take_event(
    token: int, step: Step, wait: EventWait, now: datetime | None
) -> Steps[tuple[bool, Step | None]]:
    holds = yield Statement(FENCE, (0, step.job_id.bytes, token))
    if not holds:
        return False, None
    rows = yield Statement(FIRST_EVENT, fitting(wait, step.job_id.bytes))
    if not rows:
        return True, (yield from _taken_before(step))
    event = event_record(rows[0])
    result = msgspec.json.encode(event.decoded()).decode()
    done = msgspec.structs.replace(step, state=StepState.DONE, result=result, event_id=event.id)
    (stored,) = yield from record([StepWrite(token=token, step=done)], now)
    return True, stored


def _taken_before(step: Step) -> Steps[Step | None]:
    """The step, if it has got its event by an earlier call whose answer did not arrive."""
    rows = yield Statement(READ_STEP, (step.job_id.bytes, step.name, step.key))
    stored = step_record(rows[0]) if rows else None
    return stored if stored is not None and stored.state is StepState.DONE else None


def _purge_steps(before: datetime, limit: int) -> Steps[int]:
    yield Statement(FORGET_IDLE_WAITS, (limit,))
    rows = yield Statement(FORGET_STEPS, (micros(before), limit))
    return len(rows)


class StepLog:
    """The verbs about recorded steps."""

    def steps(self, job_id: UUID, now: datetime | None = None) -> Operation[Recorded]:
        return Operation(lambda: _steps(job_id, now), writes=False)

    def steps_of(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[Recorded]]:
        return Operation(lambda: _steps_of(job_ids, now), writes=False)

    def record(
        self, writes: Sequence[StepWrite], now: datetime | None = None
    ) -> Operation[list[Step | None]]:
        starts = any(write.draft is not None for write in writes)
        return Operation(
            lambda: record(writes, now),
            wakes=frozenset({Wake.WORKERS}) if starts else frozenset(),
        )

    def take_event(
        self, token: int, step: Step, wait: EventWait, now: datetime | None = None
    ) -> Operation[tuple[bool, Step | None]]:
        return Operation(lambda: _take_event(token, step, wait, now))

    def purge_steps(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: _purge_steps(before, limit))
