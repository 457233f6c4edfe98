"""Schedules on PostgreSQL: what is due, its next step, and its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from duly.model.schedule import (
    MOST_BUFFERED_SHOWN,
    Look,
    ScheduleRecord,
    Step,
    Tick,
)
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.postgres.control import Control
from duly.store.postgres.rows import CLOCK, NOW, utc
from duly.store.postgres.schedule_rows import (
    SCHEDULE_TYPES,
    TICK_TYPES,
    as_json,
    schedule_record,
    schedule_values,
    tick_record,
    typed,
)
from duly.store.postgres.submission import INSTANT
from duly.store.records import SCHEDULE_COLUMNS, TICK_COLUMNS, drafts_of_landed

_SCHEDULE = ", ".join(SCHEDULE_COLUMNS)
_TICK = ", ".join(TICK_COLUMNS)
# Rows travel as one JSON text: the driver takes many times as long over an array a column.
_TICK_ROWS = f"json_to_recordset(%(ticks)s::json) AS {{name}} ({typed(TICK_TYPES)})"
# With a LIMIT, so that it is a look at the index for each schedule: as EXISTS the planner may turn
# it into a table of all jobs.
_LIVE = """
coalesce((SELECT true FROM {schema}.jobs WHERE jobs.schedule_id = schedules.id LIMIT 1), false)
"""
_CHANGED = [
    name for name in SCHEDULE_COLUMNS if name not in ("id", "revision", "created_at", "updated_at")
]
_STEP_TYPES = {
    "accounted_until": "timestamptz",
    "next_at": "timestamptz",
    "due_at": "timestamptz",
    "awaits_end": "boolean",
    "skipping_since": "timestamptz",
}

ADD = f"""
INSERT INTO {{schema}}.schedules ({_SCHEDULE})
SELECT * FROM unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in SCHEDULE_TYPES.items())})
    AS added ({_SCHEDULE})
ORDER BY id
ON CONFLICT (id) DO NOTHING RETURNING id
"""
CHANGE = f"""
WITH {CLOCK}
UPDATE {{schema}}.schedules
SET {", ".join(f"{name} = %({name})s::{SCHEDULE_TYPES[name]}" for name in _CHANGED)},
    revision = revision + 1, updated_at = {NOW}
WHERE id = %(id)s AND revision = %(revision)s RETURNING id
"""
# A schedule that somebody has locked is changing at this moment: another look will tell.
ADVANCE = f"""
WITH {CLOCK},
input AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(steps)s::json)
        AS step (id text, revision bigint, {typed(_STEP_TYPES)})
),
free AS MATERIALIZED (
    SELECT schedules.id FROM input JOIN {{schema}}.schedules
    ON schedules.id = ANY(ARRAY(SELECT id FROM input)) AND schedules.id = input.id
    AND schedules.revision = input.revision
    ORDER BY schedules.id FOR UPDATE OF schedules SKIP LOCKED
)
UPDATE {{schema}}.schedules
SET {", ".join(f"{name} = input.{name}" for name in _STEP_TYPES)},
    revision = schedules.revision + 1, updated_at = {NOW}
FROM input
WHERE schedules.id = ANY(ARRAY(SELECT id FROM free)) AND schedules.id = input.id
RETURNING schedules.id
"""
REMOVE = f"""
WITH {CLOCK},
removed AS (
    DELETE FROM {{schema}}.schedules WHERE id = %(id)s AND revision = %(revision)s RETURNING id
),
waiting AS (
    UPDATE {{schema}}.ticks SET outcome = 'skipped', reason = 'the schedule was removed', at = {NOW}
    FROM removed WHERE schedule_id = removed.id AND outcome = 'buffered'
),
declared AS (DELETE FROM {{schema}}.declarations USING removed WHERE schedule_id = removed.id)
SELECT id FROM removed
"""
LOOK = f"""
WITH {CLOCK}
SELECT {_SCHEDULE}, {_LIVE}, {NOW} FROM {{schema}}.schedules WHERE id = ANY(%(ids)s::text[])
"""
DUE = f"""
WITH {CLOCK}
SELECT {_SCHEDULE}, {_LIVE}, {NOW} FROM {{schema}}.schedules
WHERE NOT paused AND due_at <= {NOW} ORDER BY due_at LIMIT %(limit)s
"""
NEXT_DUE = f"""
WITH {CLOCK}
SELECT extract(epoch FROM due_at - {NOW})::float8 FROM {{schema}}.schedules
WHERE NOT paused AND due_at IS NOT NULL ORDER BY due_at LIMIT 1
"""
BUFFERED = f"""
SELECT {", ".join(f"waiting.{name}" for name in TICK_COLUMNS)}
FROM unnest(%(ids)s::text[]) AS looked_at (id) CROSS JOIN LATERAL (
    SELECT {_TICK} FROM {{schema}}.ticks
    WHERE ticks.schedule_id = looked_at.id AND outcome = 'buffered'
    ORDER BY nominal, kind LIMIT {MOST_BUFFERED_SHOWN}
) waiting
"""
LIST = f"""
SELECT {_SCHEDULE} FROM {{schema}}.schedules
WHERE id COLLATE "C" > %(after)s ORDER BY id COLLATE "C" LIMIT %(limit)s
"""
ADD_TICKS = f"""
INSERT INTO {{schema}}.ticks ({_TICK})
SELECT * FROM {_TICK_ROWS.format(name="added")}
ON CONFLICT (schedule_id, nominal, kind) DO NOTHING RETURNING job_id
"""
RESOLVE = f"""
UPDATE {{schema}}.ticks SET outcome = resolved.outcome, reason = resolved.reason,
    job_id = resolved.job_id, at = resolved.at
FROM {_TICK_ROWS.format(name="resolved")}
WHERE (ticks.schedule_id, ticks.nominal, ticks.kind)
    = (resolved.schedule_id, resolved.nominal, resolved.kind) AND ticks.outcome = 'buffered'
RETURNING ticks.job_id
"""
EXTEND = f"""
UPDATE {{schema}}.ticks SET until = grown.until, count = ticks.count + grown.count, at = grown.at
FROM {_TICK_ROWS.format(name="grown")}
WHERE (ticks.schedule_id, ticks.nominal, ticks.kind)
    = (grown.schedule_id, grown.nominal, grown.kind) AND ticks.outcome = 'skipped'
"""
# Jobs are locked before their schedules, as everybody does.
LOCK_LIVE = """
SELECT schedule_id, id FROM {schema}.jobs WHERE schedule_id = ANY(%(ids)s::text[])
ORDER BY id FOR UPDATE
"""
TICKS = f"""
SELECT {_TICK} FROM {{schema}}.ticks
WHERE schedule_id = %(id)s AND (%(nominal)s::timestamptz IS NULL
    OR nominal < %(nominal)s OR (nominal = %(nominal)s AND kind < %(kind)s::text))
ORDER BY nominal DESC, kind DESC LIMIT %(limit)s
"""
LATEST_TICKS = f"""
SELECT {", ".join(f"latest.{name}" for name in TICK_COLUMNS)}
FROM unnest(%(ids)s::text[]) AS looked_at (id) CROSS JOIN LATERAL (
    SELECT {_TICK} FROM {{schema}}.ticks WHERE ticks.schedule_id = looked_at.id
    ORDER BY nominal DESC, kind DESC LIMIT 1
) latest
"""
FIRED = """
SELECT DISTINCT nominal FROM {schema}.ticks
WHERE schedule_id = %(id)s AND nominal BETWEEN %(first)s AND %(last)s
AND kind <> 'manual' AND outcome IN ('fired', 'buffered') ORDER BY nominal
"""
PURGE = """
WITH old AS MATERIALIZED (
    SELECT schedule_id, nominal, kind FROM {schema}.ticks
    WHERE at < %(before)s AND outcome <> 'buffered' ORDER BY at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.ticks USING old
WHERE (ticks.schedule_id, ticks.nominal, ticks.kind) = (old.schedule_id, old.nominal, old.kind)
RETURNING ticks.nominal
"""
_FIRED_WAKES = frozenset({Wake.WORKERS, Wake.WAITERS, Wake.SCHEDULERS})


class Schedules(Control):
    """The verbs about recurring work."""

    def clock(self, now: datetime | None = None) -> Operation[datetime]:
        return Operation(lambda: self._clock(now), writes=False, atomic=False)

    def add_schedules(self, schedules: Sequence[ScheduleRecord]) -> Operation[list[bool]]:
        return Operation(
            lambda: self._add(schedules), atomic=False, wakes=frozenset({Wake.SCHEDULERS})
        )

    def change_schedule(
        self, schedule: ScheduleRecord, step: Step, now: datetime | None = None
    ) -> Operation[bool]:
        return Operation(lambda: self._change(schedule, step, now), wakes=_FIRED_WAKES)

    def remove_schedule(
        self, schedule_id: str, revision: int, now: datetime | None = None
    ) -> Operation[bool]:
        return Operation(lambda: self._remove(schedule_id, revision, now), atomic=False)

    def fire(self, steps: Sequence[Step], now: datetime | None = None) -> Operation[list[bool]]:
        return Operation(
            lambda: self._fire(steps, now),
            again=lambda: self._fire(steps, now),
            wakes=_FIRED_WAKES,
        )

    def look(
        self, schedule_ids: Sequence[str], now: datetime | None = None
    ) -> Operation[list[Look | None]]:
        return Operation(lambda: self._look(schedule_ids, now), writes=False)

    def due_schedules(self, limit: int, now: datetime | None = None) -> Operation[list[Look]]:
        return Operation(lambda: self._due(limit, now), writes=False)

    def next_schedule_due(self, now: datetime | None = None) -> Operation[float | None]:
        return Operation(lambda: self._next_schedule_due(now), writes=False, atomic=False)

    def schedules(self, limit: int, after: str | None = None) -> Operation[list[ScheduleRecord]]:
        return Operation(lambda: self._list(limit, after), writes=False, atomic=False)

    def ticks(
        self, schedule_id: str, limit: int, before: Tick | None = None
    ) -> Operation[list[Tick]]:
        return Operation(
            lambda: self._ticks(schedule_id, limit, before), writes=False, atomic=False
        )

    def latest_ticks(self, schedule_ids: Sequence[str]) -> Operation[list[Tick]]:
        return Operation(lambda: self._latest_ticks(schedule_ids), writes=False, atomic=False)

    def fired_ticks(
        self, schedule_id: str, first: datetime, last: datetime
    ) -> Operation[list[datetime]]:
        return Operation(lambda: self._fired(schedule_id, first, last), writes=False, atomic=False)

    def purge_ticks(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: self._purge(before, limit), atomic=False)

    def _clock(self, now: datetime | None) -> Steps[datetime]:
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        return utc(instant)

    def _add(self, schedules: Sequence[ScheduleRecord]) -> Steps[list[bool]]:
        rows = yield Statement(
            self.text(ADD), _arrays(map(schedule_values, schedules), SCHEDULE_TYPES)
        )
        added = {row[0] for row in rows}
        return [each.id in added for each in schedules]

    def _change(self, schedule: ScheduleRecord, step: Step, now: datetime | None) -> Steps[bool]:
        live = yield from self._to_cancel([step])
        values = {**schedule_values(schedule), "now": now}
        wanted = {name: values[name] for name in (*_CHANGED, "id", "revision", "now")}
        landed = yield Statement(self.text(CHANGE), wanted)
        if landed:
            yield from self._write([step], live, now)
        return bool(landed)

    def _fire(self, steps: Sequence[Step], now: datetime | None) -> Steps[list[bool]]:
        live = yield from self._to_cancel(steps)
        rows = yield Statement(
            self.text(ADVANCE),
            {"now": now, "steps": as_json([_advance_values(step) for step in steps])},
        )
        landed = {row[0] for row in rows}
        yield from self._write([step for step in steps if step.schedule_id in landed], live, now)
        return [step.schedule_id in landed for step in steps]

    def _to_cancel(self, steps: Sequence[Step]) -> Steps[dict[str, list[UUID]]]:
        """The live jobs of the schedules whose steps cancel them, locked."""
        live: dict[str, list[UUID]] = {}
        cancelling = [step.schedule_id for step in steps if step.cancels is not None]
        if cancelling:
            rows = yield Statement(self.text(LOCK_LIVE), {"ids": cancelling})
            for schedule_id, job_id in rows:
                live.setdefault(schedule_id, []).append(job_id)
        return live

    def _write(
        self, steps: Sequence[Step], live: Mapping[str, Sequence[UUID]], now: datetime | None
    ) -> Steps[None]:
        """The rows and jobs of steps that have landed."""
        for step in steps:
            if step.schedule_id in live:
                yield from self._cancel(live[step.schedule_id], step.cancels, now)
        fired: set[UUID] = set()
        ticks = [tick for step in steps for tick in step.ticks]
        if ticks:
            rows = yield self._tick_statement(ADD_TICKS, ticks)
            fired |= {row[0] for row in rows if row[0] is not None}
        resolved = [tick for step in steps for tick in step.resolved]
        if resolved:
            rows = yield self._tick_statement(RESOLVE, resolved)
            fired |= {row[0] for row in rows if row[0] is not None}
        extended = [step.extended for step in steps if step.extended is not None]
        if extended:
            yield self._tick_statement(EXTEND, extended)
        drafts = drafts_of_landed(steps, fired)
        if drafts:
            yield from self._enqueue(drafts, now)

    def _tick_statement(self, text: str, ticks: Sequence[Tick]) -> Statement:
        return Statement(self.text(text), {"ticks": as_json(ticks)})

    def _remove(self, schedule_id: str, revision: int, now: datetime | None) -> Steps[bool]:
        removed = yield Statement(
            self.text(REMOVE), {"id": schedule_id, "revision": revision, "now": now}
        )
        return bool(removed)

    def _look(self, schedule_ids: Sequence[str], now: datetime | None) -> Steps[list[Look | None]]:
        rows = yield Statement(self.text(LOOK), {"ids": list(schedule_ids), "now": now})
        looks = yield from self._looks(rows)
        found = {look.schedule.id: look for look in looks}
        return [found.get(each) for each in schedule_ids]

    def _due(self, limit: int, now: datetime | None) -> Steps[list[Look]]:
        rows = yield Statement(self.text(DUE), {"limit": limit, "now": now})
        return (yield from self._looks(rows))

    def _looks(self, rows: Sequence[Row]) -> Steps[list[Look]]:
        schedules = [(schedule_record(row), row[-2], utc(row[-1])) for row in rows]
        waiting = [schedule.id for schedule, _, _ in schedules if schedule.awaits_end]
        buffered: dict[str, list[Tick]] = {}
        if waiting:
            ticks = yield Statement(self.text(BUFFERED), {"ids": waiting})
            for tick in map(tick_record, ticks):
                buffered.setdefault(tick.schedule_id, []).append(tick)
        return [
            Look(schedule, live, tuple(buffered.get(schedule.id, ())), instant)
            for schedule, live, instant in schedules
        ]

    def _next_schedule_due(self, now: datetime | None) -> Steps[float | None]:
        rows = yield Statement(self.text(NEXT_DUE), {"now": now})
        return max(0.0, rows[0][0]) if rows else None

    def _list(self, limit: int, after: str | None) -> Steps[list[ScheduleRecord]]:
        rows = yield Statement(self.text(LIST), {"after": after or "", "limit": limit})
        return [schedule_record(row) for row in rows]

    def _ticks(self, schedule_id: str, limit: int, before: Tick | None) -> Steps[list[Tick]]:
        rows = yield Statement(
            self.text(TICKS),
            {
                "id": schedule_id,
                "limit": limit,
                "nominal": None if before is None else before.nominal,
                "kind": None if before is None else before.kind.value,
            },
        )
        return [tick_record(row) for row in rows]

    def _latest_ticks(self, schedule_ids: Sequence[str]) -> Steps[list[Tick]]:
        rows = yield Statement(self.text(LATEST_TICKS), {"ids": list(schedule_ids)})
        return [tick_record(row) for row in rows]

    def _fired(self, schedule_id: str, first: datetime, last: datetime) -> Steps[list[datetime]]:
        rows = yield Statement(self.text(FIRED), {"id": schedule_id, "first": first, "last": last})
        return [utc(nominal) for (nominal,) in rows]

    def _purge(self, before: datetime, limit: int) -> Steps[int]:
        rows = yield Statement(self.text(PURGE), {"before": before, "limit": limit})
        return len(rows)


def _advance_values(step: Step) -> dict[str, Any]:
    """What a step makes of its schedule's row."""
    values = {name: getattr(step, name) for name in _STEP_TYPES}
    return {"id": step.schedule_id, "revision": step.revision, **values}


def _arrays(rows: Iterable[Mapping[str, Any]], types: Iterable[str]) -> dict[str, list[Any]]:
    """One array a column."""
    values = list(rows)
    return {name: [row[name] for row in values] for name in types}
