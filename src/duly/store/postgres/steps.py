"""Recorded steps on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.step import EventWait, Recorded, Step, StepKind, StepState, StepWrite
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.rows import CLOCK, NOW, utc
from duly.store.postgres.settlements import HELD
from duly.store.postgres.settling import Settling
from duly.store.postgres.step_rows import (
    EVENT_LIST,
    KEEP_DONE,
    STEP_LIST,
    STEP_TYPES,
    event_record,
    step_record,
    step_values,
)
from duly.store.postgres.submission import INSTANT
from duly.store.postgres.suspension import FITTING
from duly.store.records import by_job

READ = f"""
SELECT {STEP_LIST} FROM {{schema}}.steps WHERE job_id = ANY(%(jobs)s::uuid[])
ORDER BY number, at
"""
STORED = f"""
SELECT {STEP_LIST} FROM {{schema}}.steps
WHERE job_id = %(job_id)s::uuid AND name = %(name)s AND key = %(key)s
"""
_FENCE = f"""
UPDATE {{schema}}.jobs SET stepped = true, expires_at = NULL, undos = undos + %(undos)s::integer
WHERE id = %(job_id)s::uuid AND token = %(token)s AND {HELD} RETURNING id
"""
FENCE = f"{_FENCE}"
_VALUES = ", ".join(
    f"coalesce(%(until)s::timestamptz, {NOW} + %(delay)s::interval)"
    if name == "until"
    else f"%({name})s::{kind}"
    for name, kind in STEP_TYPES.items()
)
# The lock on the job's row keeps whoever takes the job back waiting until this is committed, and
# the token keeps a zombie out.
RECORD = f"""
WITH {CLOCK},
fence AS ({_FENCE}),
written AS (
    INSERT INTO {{schema}}.steps ({STEP_LIST})
    SELECT {_VALUES}, {NOW} FROM fence
    {KEEP_DONE}
    RETURNING {STEP_LIST}
)
SELECT fence.id, {", ".join(f"written.{name}" for name in STEP_TYPES)}, written.at
FROM fence LEFT JOIN written ON true
"""
FIRST_EVENT = f"""
SELECT {", ".join(f"events.{name}" for name in EVENT_LIST.split(", "))}
FROM {{schema}}.events, (
    SELECT %(job)s::uuid AS job, %(name)s::text AS name, %(key)s::text AS key,
        %(since)s::timestamptz AS since
) AS wanted
WHERE {FITTING} ORDER BY events.number LIMIT 1
"""
FORGET_STEPS = """
DELETE FROM {schema}.steps USING (
    SELECT job_id, name, key FROM {schema}.steps
    WHERE at < %(before)s AND NOT EXISTS (SELECT FROM {schema}.jobs WHERE id = job_id)
    AND NOT EXISTS (SELECT FROM {schema}.archive WHERE id = job_id)
    AND NOT EXISTS (SELECT FROM {schema}.dead WHERE id = job_id)
    LIMIT %(limit)s
) AS old
WHERE (steps.job_id, steps.name, steps.key) = (old.job_id, old.name, old.key) RETURNING 1
"""
FORGET_IDLE_WAITS = """
DELETE FROM {schema}.waits WHERE ctid = ANY(ARRAY(
    SELECT waits.ctid FROM {schema}.waits WHERE NOT EXISTS (
        SELECT FROM {schema}.jobs WHERE id = waits.job_id AND state IN ('running', 'waiting')
    ) LIMIT %(limit)s
))
"""


class StepLog(Settling):
    """The verbs about recorded steps."""

    def steps(self, job_id: UUID, now: datetime | None = None) -> Operation[Recorded]:
        return Operation(lambda: self._steps(job_id, now), writes=False, atomic=False)

    def steps_of(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[Recorded]]:
        return Operation(lambda: self._steps_of(job_ids, now), writes=False, atomic=False)

    def record(
        self, writes: Sequence[StepWrite], now: datetime | None = None
    ) -> Operation[list[Step | None]]:
        starts = any(write.draft is not None for write in writes)
        return Operation(
            lambda: self._record(writes, now),
            again=lambda: self._record(writes, now),
            atomic=starts or len(writes) > 1,
            wakes=frozenset({Wake.WORKERS}) if starts else frozenset(),
        )

    def take_event(
        self, token: int, step: Step, wait: EventWait, now: datetime | None = None
    ) -> Operation[tuple[bool, Step | None]]:
        return Operation(
            lambda: self._take_event(token, step, wait, now),
            again=lambda: self._take_event(token, step, wait, now),
        )

    def purge_steps(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: self._purge_steps(before, limit), atomic=False)

    def _steps(self, job_id: UUID, now: datetime | None) -> Steps[Recorded]:
        (recorded,) = yield from self._steps_of([job_id], now)
        return recorded

    def _steps_of(self, job_ids: Sequence[UUID], now: datetime | None) -> Steps[list[Recorded]]:
        rows = yield Statement(self.text(READ), {"jobs": list(job_ids)})
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        return by_job(job_ids, map(step_record, rows), utc(instant))

    def _record(
        self, writes: Sequence[StepWrite], now: datetime | None
    ) -> Steps[list[Step | None]]:
        answers: list[Step | None] = []
        for write in writes:
            step = write.step
            registers = step.kind is StepKind.UNDO and step.state is StepState.READY
            values = step_values(step)
            rows = yield Statement(
                self.text(RECORD),
                {
                    **values,
                    "now": now,
                    "token": write.token,
                    "delay": write.delay,
                    "undos": int(registers),
                },
            )
            if not rows:
                answers.append(None)
                continue
            if write.draft is not None:
                yield from self._enqueue_again([write.draft], now, created=False)
            if rows[0][1] is None:
                rows = yield Statement(
                    self.text(STORED), {name: values[name] for name in ("job_id", "name", "key")}
                )
                answers.append(step_record(rows[0]))
            else:
                answers.append(step_record(rows[0][1:]))
        return answers

    def _take_event(
        self, token: int, step: Step, wait: EventWait, now: datetime | None
    ) -> Steps[tuple[bool, Step | None]]:
        holds = yield Statement(
            self.text(FENCE), {"job_id": step.job_id, "token": token, "undos": 0}
        )
        if not holds:
            return False, None
        rows = yield Statement(
            self.text(FIRST_EVENT),
            {
                "job": step.job_id,
                "name": wait.name,
                "key": wait.key,
                "since": wait.since,
            },
        )
        if not rows:
            return True, (yield from self._taken_before(step))
        event = event_record(rows[0])
        result = msgspec.json.encode(event.decoded()).decode()
        done = msgspec.structs.replace(step, state=StepState.DONE, result=result, event_id=event.id)
        (stored,) = yield from self._record([StepWrite(token=token, step=done)], now)
        return True, stored

    def _taken_before(self, step: Step) -> Steps[Step | None]:
        """The step, if it has got its event by an earlier call whose answer did not arrive."""
        rows = yield Statement(
            self.text(STORED), {"job_id": step.job_id, "name": step.name, "key": step.key}
        )
        stored = step_record(rows[0]) if rows else None
        return stored if stored is not None and stored.state is StepState.DONE else None

    def _purge_steps(self, before: datetime, limit: int) -> Steps[int]:
        yield Statement(self.text(FORGET_IDLE_WAITS), {"limit": limit})
        rows = yield Statement(self.text(FORGET_STEPS), {"before": before, "limit": limit})
        return len(rows)
