"""Claims on SQLite: lanes in order of priority, only what is due in each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from duly.errors import LeaseLost
from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.store.operation import Operation, Row, Statement, Steps
from duly.store.records import JOB_COLUMNS, REASON_EXPIRED
from duly.store.sqlite.choosing import choose
from duly.store.sqlite.reading import LIVE_JOB
from duly.store.sqlite.rows import COLUMN, array, clock, job_record, micros
from duly.store.sqlite.settling import finish

LEASE = "SELECT 1 FROM workers WHERE id = ? AND lease_until > ?"
# What a claim makes of a job: ?1 is the worker, ?2 now. To read the rows as they will be and
# then write them is cheaper than to have the write return them, which keeps all of them in between.
_STARTS = "max(run_at, ?2)"
_TAKEN = {
    "state": "'running'",
    "token": "token + 1",
    "attempt": "attempt + 1",
    "worker": "?1",
    "started_at": f"CASE WHEN delivery = 'at_most_once' THEN NULL ELSE {_STARTS} END",
}
_CHOSEN = (
    "WHERE rowid IN (SELECT value FROM json_each(?3))"
    f" AND (expires_at IS NULL OR expires_at > {_STARTS})"
)
READ = f"SELECT {', '.join(_TAKEN.get(name, name) for name in JOB_COLUMNS)} FROM jobs {_CHOSEN}"
TAKE = (
    f"UPDATE jobs SET {', '.join(f'{name} = {value}' for name, value in _TAKEN.items())} {_CHOSEN}"
)
BEGIN = (
    "UPDATE jobs SET started_at = ?"
    " WHERE id = ? AND token = ? AND state = 'running' AND started_at IS NULL RETURNING id"
)


def claim(demand: Demand, now: datetime | None, ends: bool = True) -> Steps[list[Row] | None]:
    """The rows of what is claimed: see Verbs.claim. None where it would have to end jobs that have
    expired, and is not the one that `ends` them."""
    instant = clock(now)
    holds = yield Statement(LEASE, (demand.worker.bytes, instant))
    if not holds:
        raise LeaseLost(demand.worker)
    due = instant if demand.due_by is None else max(instant, micros(demand.due_by))
    chosen = yield from choose(demand, due)
    if not chosen:
        return []
    parameters = (demand.worker.bytes, instant, array([row for _, _, row in chosen]))
    rows = yield Statement(READ, parameters)
    if len(rows) < len(chosen) and not ends:
        return None
    yield Statement(TAKE, parameters)
    if len(rows) < len(chosen):
        taken = {row[0] for row in rows}
        late = [(job_id,) for _, job_id, _ in chosen if job_id not in taken]
        expired = yield Statement(LIVE_JOB, late, many=True)
        yield from finish([(row, "cancelled", REASON_EXPIRED) for row in expired], now)
    return rows


def _records(rows: list[Row]) -> list[JobRecord]:
    """The jobs that were claimed, in the order in which they are to start."""
    rows.sort(key=lambda row: (-row[COLUMN["priority"]], row[COLUMN["run_at"]], row[0]))
    return [job_record(row) for row in rows]


def _begin(job_id: UUID, token: int, now: datetime | None) -> Steps[bool]:
    rows = yield Statement(BEGIN, (clock(now), job_id.bytes, token))
    return bool(rows)


def _nothing() -> Steps[None]:
    yield from ()


class Claiming:
    """The verbs that start attempts."""

    def claim(self, demand: Demand, now: datetime | None = None) -> Operation[list[JobRecord]]:
        start: Callable[[], Steps[Any]] = partial(claim, demand, now)
        early = partial(claim, demand, now, ends=False)
        return Operation(start, conclude=_records, early=early)

    def allow_silence(self, longest: timedelta) -> Operation[None]:
        # Here every transaction has one and the same limit; see TRANSACTION_LIMIT.
        return Operation(_nothing)

    def begin(self, job_id: UUID, token: int, now: datetime | None = None) -> Operation[bool]:
        return Operation(lambda: _begin(job_id, token, now))
