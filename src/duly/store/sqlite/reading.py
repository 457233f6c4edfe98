"""Questions to SQLite: jobs, attempts, counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State
from duly.model.query import Count, Due, JobFilter, Waiting
from duly.policy.states import LIVE
from duly.store.operation import Operation, Statement, Steps
from duly.store.records import ATTEMPT_COLUMNS, ATTEMPT_OF_ARCHIVED, JOB_COLUMNS
from duly.store.sqlite.rows import (
    array,
    attempt_record,
    clock,
    job_record,
    micros,
    moment,
)

SELECT = f"SELECT {', '.join(JOB_COLUMNS)} FROM"
LIVE_JOB = f"{SELECT} jobs WHERE id = ?"
GET = " UNION ALL ".join(f"{SELECT} {table} WHERE id = ?1" for table in ("jobs", "archive", "dead"))
# The attempt that succeeded has no row of its own: the archived job has all that there is to tell.
ATTEMPTS = (
    f"SELECT {', '.join(ATTEMPT_COLUMNS)} FROM attempts WHERE job_id = ?1 UNION ALL"
    f" SELECT {', '.join(ATTEMPT_OF_ARCHIVED.get(name, name) for name in ATTEMPT_COLUMNS)}"
    f" FROM archive WHERE id = ?1 AND state = '{State.SUCCEEDED}' AND started_at IS NOT NULL"
    " ORDER BY token"
)
COUNTS = " UNION ALL ".join(
    f"SELECT queue, state, count(*) FROM {table} GROUP BY queue, state"
    for table in ("jobs", "archive", "dead")
)
LANES = (
    "SELECT queue, task, priority FROM lanes"
    " WHERE (?1 = '[]' OR queue IN (SELECT value FROM json_each(?1)))"
    " AND task IN (SELECT value FROM json_each(?2))"
    " AND queue NOT IN (SELECT queue FROM paused_queues) ORDER BY priority DESC"
)
LANE_HEAD = (
    "SELECT run_at FROM jobs"
    " WHERE state IN ('pending', 'waiting') AND queue = ? AND task = ? AND priority = ?"
    " ORDER BY run_at LIMIT 1"
)

ALL_LANES = "SELECT queue, task, priority FROM lanes"


def read_jobs(job_ids: Sequence[UUID]) -> Steps[list[JobRecord | None]]:
    """The jobs in order, from wherever they are."""
    rows = yield Statement(GET, [(job_id.bytes,) for job_id in job_ids], many=True)
    found = {row[0]: row for row in rows}
    return [
        job_record(found[job_id.bytes]) if job_id.bytes in found else None for job_id in job_ids
    ]


def _attempts(job_id: UUID) -> Steps[list[Attempt]]:
    rows = yield Statement(ATTEMPTS, (job_id.bytes,))
    return [attempt_record(row) for row in rows]


def _find(criteria: JobFilter, limit: int, before: UUID | None) -> Steps[list[JobRecord]]:
    conditions, values = _conditions(criteria, before)
    parts = []
    parameters: list[Any] = []
    for table in _tables(criteria.states):
        parts.append(
            f"SELECT * FROM ({SELECT} {table} WHERE {conditions} ORDER BY id DESC LIMIT ?)"
        )
        parameters += [*values, limit]
    if not parts:
        return []
    text = f"{' UNION ALL '.join(parts)} ORDER BY 1 DESC LIMIT ?"
    rows = yield Statement(text, (*parameters, limit))
    return [job_record(row) for row in rows]


def _tables(states: frozenset[State] | None) -> list[str]:
    wanted = frozenset(State) if states is None else states
    places = {
        "jobs": LIVE,
        "archive": frozenset({State.SUCCEEDED, State.CANCELLED}),
        "dead": frozenset({State.DEAD}),
    }
    return [table for table, held in places.items() if wanted & held]


def _conditions(criteria: JobFilter, before: UUID | None) -> tuple[str, list[Any]]:
    conditions = ["1"]
    values: list[Any] = []

    def require(condition: str, value: Any) -> None:
        if value is not None:
            conditions.append(condition)
            values.append(value)

    require("id < ?", None if before is None else before.bytes)
    if criteria.states is not None:
        names = sorted(state.value for state in criteria.states)
        require("state IN (SELECT value FROM json_each(?))", array(names))
    for name in ("queue", "task", "key", "owner", "tenant", "schedule_id"):
        require(f"{name} = ?", getattr(criteria, name))
    for name in ("flow_id", "parent_id"):
        value = getattr(criteria, name)
        require(f"{name} = ?", None if value is None else value.bytes)
    require("error_fingerprint = ?", criteria.fingerprint)
    for name in ("created", "finished"):
        start, end = getattr(criteria, f"{name}_from"), getattr(criteria, f"{name}_before")
        require(f"{name}_at >= ?", None if start is None else micros(start))
        require(f"{name}_at < ?", None if end is None else micros(end))
    for tag in criteria.tags:
        require("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", tag)
    return " AND ".join(conditions), values


def _counts() -> Steps[list[Count]]:
    rows = yield Statement(COUNTS)
    return sorted(
        (Count(queue, State(state), jobs) for queue, state, jobs in rows),
        key=lambda count: (count.queue, count.state),
    )


def _next_due(
    queues: Sequence[str], tasks: Sequence[str], now: datetime | None
) -> Steps[Due | None]:
    lanes = yield Statement(LANES, (array(queues), array(tasks)))
    earliest: int | None = None
    for lane in lanes:
        heads = yield Statement(LANE_HEAD, lane)
        if heads and (earliest is None or heads[0][0] < earliest):
            earliest = heads[0][0]
    if earliest is None:
        return None
    return Due(moment(earliest), (earliest - clock(now)) / 1e6)


def _longest_waiting(now: datetime | None) -> Steps[list[Waiting]]:
    instant = clock(now)
    lanes = yield Statement(ALL_LANES)
    oldest: dict[str, int] = {}
    for lane in lanes:
        heads = yield Statement(LANE_HEAD, lane)
        if heads and heads[0][0] <= instant:
            oldest[lane[0]] = min(oldest.get(lane[0], instant), heads[0][0])
    return [Waiting(queue, moment(since)) for queue, since in sorted(oldest.items())]


class Reading:
    """The verbs that only ask."""

    def get(self, job_ids: Sequence[UUID]) -> Operation[list[JobRecord | None]]:
        return Operation(lambda: read_jobs(job_ids), writes=False)

    def attempts(self, job_id: UUID) -> Operation[list[Attempt]]:
        return Operation(lambda: _attempts(job_id), writes=False)

    def find(
        self, criteria: JobFilter, limit: int, before: UUID | None = None
    ) -> Operation[list[JobRecord]]:
        return Operation(lambda: _find(criteria, limit, before), writes=False)

    def counts(self) -> Operation[list[Count]]:
        return Operation(_counts, writes=False)

    def longest_waiting(self, now: datetime | None = None) -> Operation[list[Waiting]]:
        return Operation(lambda: _longest_waiting(now), writes=False)

    def next_due(
        self,
        queues: Sequence[str],
        tasks: Sequence[str],
        now: datetime | None = None,
        exact: bool = True,
    ) -> Operation[Due | None]:
        return Operation(lambda: _next_due(queues, tasks, now), writes=False)
