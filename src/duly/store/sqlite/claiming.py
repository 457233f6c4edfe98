"""Claims on SQLite: lanes in order of priority, only what is due in each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from duly.errors import LeaseLost
from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.store.operation import Operation, Row, Statement, Steps
from duly.store.records import JOB_COLUMNS, REASON_EXPIRED
from duly.store.sqlite.reading import LANES, LIVE_JOB
from duly.store.sqlite.rows import COLUMN, array, clock, job_record, micros
from duly.store.sqlite.settling import finish

LEASE = "SELECT 1 FROM workers WHERE id = ? AND lease_until > ?"
DUE = (
    "SELECT run_at, id, rowid FROM jobs WHERE state IN ('pending', 'waiting')"
    " AND queue = ? AND task = ? AND priority = ? AND run_at <= ? ORDER BY run_at, id LIMIT ?"
)
# What a claim makes of a job: ?1 is the worker, ?2 the moment. To read the rows as they will be and
# then write them is cheaper than to have the write return them, which keeps all of them in between.
_TAKEN = {
    "state": "'running'",
    "token": "token + 1",
    "attempt": "attempt + 1",
    "worker": "?1",
    "started_at": "CASE WHEN delivery = 'at_most_once' THEN NULL ELSE ?2 END",
}
_CHOSEN = (
    "WHERE rowid IN (SELECT value FROM json_each(?3)) AND (expires_at IS NULL OR expires_at > ?2)"
)
READ = f"SELECT {', '.join(_TAKEN.get(name, name) for name in JOB_COLUMNS)} FROM jobs {_CHOSEN}"
TAKE = (
    f"UPDATE jobs SET {', '.join(f'{name} = {value}' for name, value in _TAKEN.items())} {_CHOSEN}"
)
BEGIN = (
    "UPDATE jobs SET started_at = ?"
    " WHERE id = ? AND token = ? AND state = 'running' AND started_at IS NULL RETURNING id"
)

Candidate = tuple[int, bytes, int]
"""When it is due, its id, and its row: the one that is told by the index that finds it."""


def claim(demand: Demand, now: datetime | None) -> Steps[list[Row]]:
    """The rows of what is claimed: see Verbs.claim."""
    instant = clock(now)
    holds = yield Statement(LEASE, (demand.worker.bytes, instant))
    if not holds:
        raise LeaseLost(demand.worker)
    due = instant if demand.due_by is None else max(instant, micros(demand.due_by))
    chosen = yield from _choose(demand, due)
    if not chosen:
        return []
    parameters = (demand.worker.bytes, due, array([row for _, _, row in chosen]))
    rows = yield Statement(READ, parameters)
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


def _choose(demand: Demand, instant: int) -> Steps[list[Candidate]]:
    """What to take: by priority, and the share of those that have waited for longest."""
    lanes = yield Statement(LANES, (array(demand.queues), array(demand.tasks)))
    by_priority: list[Candidate] = []
    everyone: list[Candidate] = []
    ordinary = demand.limit - demand.longest_waiting
    for _, level in groupby(lanes, key=lambda lane: lane[2]):
        if len(by_priority) >= ordinary and not demand.longest_waiting:
            break
        due = yield from _due(level, instant, demand.limit)
        everyone += due
        by_priority += due[: max(0, ordinary - len(by_priority))]
    if len(everyone) <= demand.limit:
        return everyone
    room = demand.limit - len(by_priority)
    if demand.longest_waiting and room:
        taken = set(by_priority)
        waiting = heapq.nsmallest(demand.limit, everyone)
        by_priority += [each for each in waiting if each not in taken][:room]
    return by_priority


def _due(lanes: Iterable[Row], instant: int, limit: int) -> Steps[list[Candidate]]:
    """The first due jobs of lanes of one priority, the earliest first."""
    heads: list[Candidate] = []
    for queue, task, priority in lanes:
        heads += yield Statement(DUE, (queue, task, priority, instant, limit))
    heads.sort()
    return heads[:limit]


def _begin(job_id: UUID, token: int, now: datetime | None) -> Steps[bool]:
    rows = yield Statement(BEGIN, (clock(now), job_id.bytes, token))
    return bool(rows)


def _nothing() -> Steps[None]:
    yield from ()


class Claiming:
    """The verbs that start attempts."""

    def claim(self, demand: Demand, now: datetime | None = None) -> Operation[list[JobRecord]]:
        start: Callable[[], Steps[Any]] = partial(claim, demand, now)
        return Operation(start, conclude=_records)

    def allow_silence(self, longest: timedelta) -> Operation[None]:
        # Here every transaction has one and the same limit; see TRANSACTION_LIMIT.
        return Operation(_nothing)

    def begin(self, job_id: UUID, token: int, now: datetime | None = None) -> Operation[bool]:
        return Operation(lambda: _begin(job_id, token, now))
