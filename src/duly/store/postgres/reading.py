"""Questions to PostgreSQL: jobs, attempts, counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State
from duly.model.query import Count, JobFilter, Waiting
from duly.policy.states import LIVE
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.finishing import past_attempts
from duly.store.postgres.lanes import within
from duly.store.postgres.rows import (
    CLOCK,
    COLUMNS,
    NOW,
    InSchema,
    attempt_record,
    job_record,
    texts,
)

TABLES = {
    "jobs": LIVE,
    "archive": frozenset({State.SUCCEEDED, State.CANCELLED}),
    "dead": frozenset({State.DEAD}),
}
GET = " UNION ALL ".join(
    f"SELECT {COLUMNS} FROM {{schema}}.{table} WHERE id = ANY(%(ids)s::uuid[])" for table in TABLES
)
ATTEMPTS = past_attempts("%(job)s::uuid")
COUNTS = " UNION ALL ".join(
    f"SELECT queue, state, count(*) FROM {{schema}}.{table} GROUP BY queue, state"
    for table in TABLES
)
LONGEST_WAITING = f"""
WITH {CLOCK}
SELECT lanes.queue, min(head.run_at)
FROM (SELECT DISTINCT queue, task, priority FROM {{schema}}.lanes) lanes CROSS JOIN LATERAL (
    SELECT run_at FROM {{schema}}.jobs
    WHERE state = 'pending' AND {within("lanes")} AND run_at <= {NOW}
    ORDER BY run_at LIMIT 1
) head
GROUP BY lanes.queue
"""


class Reading(InSchema):
    """The verbs that only ask."""

    def get(self, job_ids: Sequence[UUID]) -> Operation[list[JobRecord | None]]:
        return Operation(lambda: self._get(job_ids), writes=False, atomic=False)

    def attempts(self, job_id: UUID) -> Operation[list[Attempt]]:
        return Operation(lambda: self._attempts(job_id), writes=False, atomic=False)

    def find(
        self, criteria: JobFilter, limit: int, before: UUID | None = None
    ) -> Operation[list[JobRecord]]:
        return Operation(lambda: self._find(criteria, limit, before), writes=False, atomic=False)

    def counts(self) -> Operation[list[Count]]:
        return Operation(self._counts, writes=False, atomic=False)

    def longest_waiting(self, now: datetime | None = None) -> Operation[list[Waiting]]:
        return Operation(lambda: self._longest_waiting(now), writes=False, atomic=False)

    def _get(self, job_ids: Sequence[UUID]) -> Steps[list[JobRecord | None]]:
        rows = yield Statement(self.text(GET), {"ids": list(job_ids)})
        found = {row[0]: row for row in rows}
        return [job_record(found[job_id]) if job_id in found else None for job_id in job_ids]

    def _attempts(self, job_id: UUID) -> Steps[list[Attempt]]:
        rows = yield Statement(self.text(ATTEMPTS), {"job": job_id})
        return sorted((attempt_record(row) for row in rows), key=lambda attempt: attempt.token)

    def _find(self, criteria: JobFilter, limit: int, before: UUID | None) -> Steps[list[JobRecord]]:
        states = frozenset(State) if criteria.states is None else criteria.states
        tables = [table for table, held in TABLES.items() if held & states]
        if not tables:
            return []
        conditions, values = _conditions(criteria, before)
        parts = [
            f"(SELECT {COLUMNS} FROM {{schema}}.{table} WHERE {conditions}"
            " ORDER BY id DESC LIMIT %(limit)s)"
            for table in tables
        ]
        union = " UNION ALL ".join(parts)
        text = f"SELECT {COLUMNS} FROM ({union}) AS found ORDER BY id DESC LIMIT %(limit)s"
        rows = yield Statement(self.text(text), {**values, "limit": limit})
        return [job_record(row) for row in rows]

    def _counts(self) -> Steps[list[Count]]:
        rows = yield Statement(self.text(COUNTS))
        return sorted(
            (Count(queue, State(state), jobs) for queue, state, jobs in rows),
            key=lambda count: (count.queue, count.state),
        )

    def _longest_waiting(self, now: datetime | None) -> Steps[list[Waiting]]:
        rows = yield Statement(self.text(LONGEST_WAITING), {"now": now})
        return sorted((Waiting(*row) for row in rows), key=lambda each: each.queue)


def _conditions(criteria: JobFilter, before: UUID | None) -> tuple[str, dict[str, Any]]:
    conditions = ["true"]
    values: dict[str, Any] = {}

    def require(condition: str, name: str, value: Any) -> None:
        if value is not None:
            conditions.append(condition)
            values[name] = value

    require("id < %(before)s::uuid", "before", before)
    if criteria.states is not None:
        require("state = ANY(%(states)s::text[])", "states", texts(criteria.states))
    for name in ("queue", "task", "key", "owner", "tenant", "schedule_id"):
        require(f"{name} = %({name})s", name, getattr(criteria, name))
    for name in ("flow_id", "parent_id"):
        require(f"{name} = %({name})s::uuid", name, getattr(criteria, name))
    require("error_fingerprint = %(fingerprint)s", "fingerprint", criteria.fingerprint)
    for name in ("created", "finished"):
        start, end = f"{name}_from", f"{name}_before"
        require(f"{name}_at >= %({start})s", start, getattr(criteria, start))
        require(f"{name}_at < %({end})s", end, getattr(criteria, end))
    require("tags @> %(tags)s::text[]", "tags", list(criteria.tags) or None)
    return " AND ".join(conditions), values
