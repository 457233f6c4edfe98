"""Schedules on SQLite: what is due, its next step, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from duly.model.identifiers import id_of
from duly.model.schedule import (
    MOST_BUFFERED_SHOWN,
    Look,
    ScheduleRecord,
    Step,
    Tick,
)
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.records import SCHEDULE_COLUMNS, TICK_COLUMNS, drafts_of_landed
from duly.store.sqlite.control import cancel
from duly.store.sqlite.rows import clock, micros, moment
from duly.store.sqlite.schedule_rows import (
    optional_micros,
    schedule_record,
    schedule_row,
    tick_record,
    tick_row,
)
from duly.store.sqlite.submission import enqueue

_SCHEDULE = ", ".join(SCHEDULE_COLUMNS)
_TICK = ", ".join(TICK_COLUMNS)
_LIVE = "EXISTS (SELECT 1 FROM jobs WHERE jobs.schedule_id = schedules.id)"
_CHANGED = [
    name for name in SCHEDULE_COLUMNS if name not in ("id", "revision", "created_at", "updated_at")
]

ADD = (
    f"INSERT INTO schedules ({_SCHEDULE}) VALUES ({', '.join('?' * len(SCHEDULE_COLUMNS))})"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
CHANGE = (
    f"UPDATE schedules SET {', '.join(f'{name} = ?' for name in _CHANGED)},"
    " revision = revision + 1, updated_at = ? WHERE id = ? AND revision = ? RETURNING id"
)
ADVANCE = (
    "UPDATE schedules SET accounted_until = ?, next_at = ?, due_at = ?, awaits_end = ?,"
    " skipping_since = ?, revision = revision + 1, updated_at = ?"
    " WHERE id = ? AND revision = ? RETURNING id"
)
REMOVE = "DELETE FROM schedules WHERE id = ? AND revision = ? RETURNING id"
FORGET_BUFFERED = (
    "UPDATE ticks SET outcome = 'skipped', reason = 'the schedule was removed', at = ?"
    " WHERE schedule_id = ? AND outcome = 'buffered'"
)
FORGET_DECLARED = "DELETE FROM declarations WHERE schedule_id = ?"
LOOK = f"SELECT {_SCHEDULE}, {_LIVE} FROM schedules WHERE id = ?"
DUE = (
    f"SELECT {_SCHEDULE}, {_LIVE} FROM schedules WHERE paused = 0 AND due_at <= ?"
    " ORDER BY due_at LIMIT ?"
)
NEXT_DUE = (
    "SELECT due_at FROM schedules WHERE paused = 0 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1"
)
BUFFERED = (
    f"SELECT {_TICK} FROM ticks INDEXED BY ticks_buffered"
    " WHERE schedule_id = ? AND outcome = 'buffered'"
    f" ORDER BY nominal, kind LIMIT {MOST_BUFFERED_SHOWN}"
)
LIST = f"SELECT {_SCHEDULE} FROM schedules WHERE id > ? ORDER BY id LIMIT ?"
ADD_TICK = (
    f"INSERT INTO ticks ({_TICK}) VALUES ({', '.join('?' * len(TICK_COLUMNS))})"
    " ON CONFLICT (schedule_id, nominal, kind) DO NOTHING RETURNING job_id"
)
RESOLVE = (
    "UPDATE ticks SET outcome = ?, reason = ?, job_id = ?, at = ?"
    " WHERE schedule_id = ? AND nominal = ? AND kind = ? AND outcome = 'buffered' RETURNING job_id"
)
EXTEND = (
    "UPDATE ticks SET until = ?, count = count + ?, at = ?"
    " WHERE schedule_id = ? AND nominal = ? AND kind = 'tick' AND outcome = 'skipped'"
)
LIVE_JOBS = "SELECT id FROM jobs WHERE schedule_id = ?"
TICKS = (
    f"SELECT {_TICK} FROM ticks WHERE schedule_id = ?1"
    " AND (?2 IS NULL OR (nominal, kind) < (?2, ?3)) ORDER BY nominal DESC, kind DESC LIMIT ?4"
)
LATEST_TICKS = (
    f"SELECT {_TICK} FROM ticks WHERE schedule_id = ? ORDER BY nominal DESC, kind DESC LIMIT 1"
)
FIRED = (
    "SELECT DISTINCT nominal FROM ticks WHERE schedule_id = ? AND nominal BETWEEN ? AND ?"
    " AND kind <> 'manual' AND outcome IN ('fired', 'buffered') ORDER BY nominal"
)
PURGE = (
    "DELETE FROM ticks WHERE (schedule_id, nominal, kind) IN (SELECT schedule_id, nominal, kind"
    " FROM ticks WHERE at < ? AND outcome <> 'buffered' ORDER BY at LIMIT ?) RETURNING nominal"
)


def _clock(now: datetime | None) -> Steps[datetime]:
    ((instant,),) = yield Statement("SELECT ?", (clock(now),))
    return moment(instant)


def _add(schedules: Sequence[ScheduleRecord]) -> Steps[list[bool]]:
    rows = yield Statement(ADD, [schedule_row(each) for each in schedules], many=True)
    added = {row[0] for row in rows}
    return [each.id in added for each in schedules]


def _change(schedule: ScheduleRecord, step: Step, now: datetime | None) -> Steps[bool]:
    instant = clock(now)
    live = yield from _to_cancel([step])
    values = dict(zip(SCHEDULE_COLUMNS, schedule_row(schedule), strict=True))
    landed = yield Statement(
        CHANGE,
        (*(values[name] for name in _CHANGED), instant, schedule.id, schedule.revision),
    )
    if landed:
        yield from _write([step], live, now)
    return bool(landed)


def _fire(steps: Sequence[Step], now: datetime | None) -> Steps[list[bool]]:
    instant = clock(now)
    live = yield from _to_cancel(steps)
    rows = yield Statement(
        ADVANCE,
        [
            (
                micros(step.accounted_until),
                optional_micros(step.next_at),
                optional_micros(step.due_at),
                int(step.awaits_end),
                optional_micros(step.skipping_since),
                instant,
                step.schedule_id,
                step.revision,
            )
            for step in steps
        ],
        many=True,
    )
    landed = {row[0] for row in rows}
    yield from _write([step for step in steps if step.schedule_id in landed], live, now)
    return [step.schedule_id in landed for step in steps]


def _to_cancel(steps: Sequence[Step]) -> Steps[dict[str, list[UUID]]]:
    """The live jobs of the schedules whose steps cancel them."""
    live = {}
    for step in steps:
        if step.cancels is not None:
            rows = yield Statement(LIVE_JOBS, (step.schedule_id,))
            live[step.schedule_id] = [id_of(row[0]) for row in rows]
    return live


def _write(
    steps: Sequence[Step], live: Mapping[str, Sequence[UUID]], now: datetime | None
) -> Steps[None]:
    """The rows and jobs of steps that have landed."""
    for step in steps:
        if live.get(step.schedule_id):
            yield from cancel(live[step.schedule_id], step.cancels, now)
    fired: set[UUID] = set()
    ticks = [tick_row(tick) for step in steps for tick in step.ticks]
    if ticks:
        rows = yield Statement(ADD_TICK, ticks, many=True)
        fired |= {id_of(row[0]) for row in rows if row[0] is not None}
    resolved = [_resolution(tick) for step in steps for tick in step.resolved]
    if resolved:
        rows = yield Statement(RESOLVE, resolved, many=True)
        fired |= {id_of(row[0]) for row in rows if row[0] is not None}
    extended = [_extension(step.extended) for step in steps if step.extended is not None]
    if extended:
        yield Statement(EXTEND, extended, many=True)
    drafts = drafts_of_landed(steps, fired)
    if drafts:
        yield from enqueue(drafts, now)


def _resolution(tick: Tick) -> Row:
    row = dict(zip(TICK_COLUMNS, tick_row(tick), strict=True))
    changed = ("outcome", "reason", "job_id", "at", "schedule_id", "nominal", "kind")
    return tuple(row[name] for name in changed)


def _extension(tick: Tick) -> Row:
    row = dict(zip(TICK_COLUMNS, tick_row(tick), strict=True))
    return tuple(row[name] for name in ("until", "count", "at", "schedule_id", "nominal"))


def _remove(schedule_id: str, revision: int, now: datetime | None) -> Steps[bool]:
    removed = yield Statement(REMOVE, (schedule_id, revision))
    if removed:
        yield Statement(FORGET_BUFFERED, (clock(now), schedule_id))
        yield Statement(FORGET_DECLARED, (schedule_id,))
    return bool(removed)


def _look(schedule_ids: Sequence[str], now: datetime | None) -> Steps[list[Look | None]]:
    instant = moment(clock(now))
    rows = yield Statement(LOOK, [(each,) for each in schedule_ids], many=True)
    looks = yield from _looks(rows, instant)
    found = {look.schedule.id: look for look in looks}
    return [found.get(each) for each in schedule_ids]


def _due(limit: int, now: datetime | None) -> Steps[list[Look]]:
    instant = clock(now)
    rows = yield Statement(DUE, (instant, limit))
    return (yield from _looks(rows, moment(instant)))


def _looks(rows: Sequence[Row], instant: datetime) -> Steps[list[Look]]:
    schedules = [(schedule_record(row), bool(row[-1])) for row in rows]
    waiting = [(schedule.id,) for schedule, _ in schedules if schedule.awaits_end]
    buffered: dict[str, list[Tick]] = {}
    if waiting:
        ticks = yield Statement(BUFFERED, waiting, many=True)
        for tick in map(tick_record, ticks):
            buffered.setdefault(tick.schedule_id, []).append(tick)
    return [
        Look(schedule, live, tuple(buffered.get(schedule.id, ())), instant)
        for schedule, live in schedules
    ]


def _next_due(now: datetime | None) -> Steps[float | None]:
    rows = yield Statement(NEXT_DUE)
    return max(0, rows[0][0] - clock(now)) / 1e6 if rows else None


def _list(limit: int, after: str | None) -> Steps[list[ScheduleRecord]]:
    rows = yield Statement(LIST, (after or "", limit))
    return [schedule_record(row) for row in rows]


def _ticks(schedule_id: str, limit: int, before: Tick | None) -> Steps[list[Tick]]:
    cursor = (None, None) if before is None else (micros(before.nominal), before.kind.value)
    rows = yield Statement(TICKS, (schedule_id, *cursor, limit))
    return [tick_record(row) for row in rows]


def _latest_ticks(schedule_ids: Sequence[str]) -> Steps[list[Tick]]:
    rows = yield Statement(LATEST_TICKS, [(each,) for each in schedule_ids], many=True)
    return [tick_record(row) for row in rows]


def _fired(schedule_id: str, first: datetime, last: datetime) -> Steps[list[datetime]]:
    rows = yield Statement(FIRED, (schedule_id, micros(first), micros(last)))
    return [moment(nominal) for (nominal,) in rows]


def _purge(before: datetime, limit: int) -> Steps[int]:
    rows = yield Statement(PURGE, (micros(before), limit))
    return len(rows)


_FIRED_WAKES = frozenset({Wake.WORKERS, Wake.WAITERS, Wake.SCHEDULERS})


class Schedules:
    """The verbs about recurring work."""

    def clock(self, now: datetime | None = None) -> Operation[datetime]:
        return Operation(lambda: _clock(now), writes=False)

    def add_schedules(self, schedules: Sequence[ScheduleRecord]) -> Operation[list[bool]]:
        return Operation(lambda: _add(schedules), wakes=frozenset({Wake.SCHEDULERS}))

    def change_schedule(
        self, schedule: ScheduleRecord, step: Step, now: datetime | None = None
    ) -> Operation[bool]:
        return Operation(lambda: _change(schedule, step, now), wakes=_FIRED_WAKES)

    def remove_schedule(
        self, schedule_id: str, revision: int, now: datetime | None = None
    ) -> Operation[bool]:
        return Operation(lambda: _remove(schedule_id, revision, now))

    def fire(self, steps: Sequence[Step], now: datetime | None = None) -> Operation[list[bool]]:
        return Operation(lambda: _fire(steps, now), wakes=_FIRED_WAKES)

    def look(
        self, schedule_ids: Sequence[str], now: datetime | None = None
    ) -> Operation[list[Look | None]]:
        return Operation(lambda: _look(schedule_ids, now), writes=False)

    def due_schedules(self, limit: int, now: datetime | None = None) -> Operation[list[Look]]:
        return Operation(lambda: _due(limit, now), writes=False)

    def next_schedule_due(self, now: datetime | None = None) -> Operation[float | None]:
        return Operation(lambda: _next_due(now), writes=False)

    def schedules(self, limit: int, after: str | None = None) -> Operation[list[ScheduleRecord]]:
        return Operation(lambda: _list(limit, after), writes=False)

    def ticks(
        self, schedule_id: str, limit: int, before: Tick | None = None
    ) -> Operation[list[Tick]]:
        return Operation(lambda: _ticks(schedule_id, limit, before), writes=False)

    def latest_ticks(self, schedule_ids: Sequence[str]) -> Operation[list[Tick]]:
        return Operation(lambda: _latest_ticks(schedule_ids), writes=False)

    def fired_ticks(
        self, schedule_id: str, first: datetime, last: datetime
    ) -> Operation[list[datetime]]:
        return Operation(lambda: _fired(schedule_id, first, last), writes=False)

    def purge_ticks(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: _purge(before, limit))
