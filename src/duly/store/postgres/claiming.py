"""Claims on PostgreSQL: lanes in order of priority, only what is due in each."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from duly.errors import LeaseLost
from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.finishing import cancelled
from duly.store.postgres.reading import LANES
from duly.store.postgres.rows import CLOCK, NOW, columns, job_record
from duly.store.postgres.settling import Settling
from duly.store.records import REASON_EXPIRED

SILENCE = "SELECT set_config('idle_in_transaction_session_timeout', %(limit)s, true)"

# What is due by a moment ahead is claimed as of then, unless it has passed when the claim arrives.
DUE = f"greatest({NOW}, %(due_by)s::timestamptz)"

# First without locks: which lanes have the jobs that come first, and how many from each. Then
# each lane gives that many, past those that another claimer has locked. Locking the first rows
# of every lane would write to far more rows than are taken.
#
# They are taken by an array of ids and not by a join: how many a lane gives is unknown when the
# statement is planned, and for its guess of some thousand the planner reads the whole table.
#
# What has expired by then is cancelled in the same statement, if that is asked for: a claim that is
# half done would leave jobs running that nobody was told of. Those of a flow are left to `expire`:
# flows are locked before their jobs. Most claims do not ask: to end jobs takes as large a plan
# again, which the server would set up for nothing.
#
# The worker's row is held FOR KEY SHARE, so that a watchdog that takes it FOR UPDATE sees every
# claim that commits; a heartbeat, which changes no key, does not wait for it.
_EXPIRING = f"""
gone AS (
    DELETE FROM {{schema}}.jobs WHERE jobs.id = ANY(ARRAY(SELECT id FROM locked WHERE late))
    RETURNING {columns("jobs")}, true AS archived
),
{cancelled(f"'{REASON_EXPIRED}'")}
"""
_BY_PRIORITY = "SELECT * FROM by_priority"
_ALSO_LONGEST_WAITING = f"""
    {_BY_PRIORITY} UNION ALL (
        SELECT * FROM due WHERE id NOT IN (SELECT id FROM by_priority)
        ORDER BY run_at, id
        LIMIT %(limit)s::integer - (SELECT count(*) FROM by_priority)
    )
"""


@lru_cache
def _claim_text(fair: bool, expiring: bool) -> str:
    return f"""
WITH {CLOCK},
holder AS MATERIALIZED (
    SELECT id FROM {{schema}}.workers
    WHERE id = %(worker)s::uuid AND lease_until > {NOW} FOR KEY SHARE
),
{LANES},
due AS MATERIALIZED (
    SELECT lanes.queue, lanes.task, lanes.priority, head.run_at, head.id
    FROM holder CROSS JOIN lanes CROSS JOIN LATERAL (
        SELECT run_at, id FROM {{schema}}.jobs
        WHERE state IN ('pending', 'waiting')
        AND jobs.queue = lanes.queue AND jobs.task = lanes.task
        AND jobs.priority = lanes.priority AND run_at <= {DUE}
        ORDER BY run_at, id LIMIT %(limit)s::integer
    ) head
),
by_priority AS MATERIALIZED (
    SELECT * FROM due ORDER BY priority DESC, run_at, id LIMIT %(ordinary)s::integer
),
shares AS MATERIALIZED (
    SELECT queue, task, priority, count(*) AS share
    FROM ({_ALSO_LONGEST_WAITING if fair else _BY_PRIORITY}) chosen
    GROUP BY queue, task, priority
),
locked AS MATERIALIZED (
    SELECT head.id, coalesce(head.expires_at <= {DUE}, false) AS late
    FROM shares CROSS JOIN LATERAL (
        SELECT id, expires_at FROM {{schema}}.jobs
        WHERE state IN ('pending', 'waiting')
        AND jobs.queue = shares.queue AND jobs.task = shares.task
        AND jobs.priority = shares.priority AND run_at <= {DUE}
        AND (flow_id IS NULL OR expires_at IS NULL OR expires_at > {DUE})
        ORDER BY run_at, id LIMIT shares.share FOR UPDATE SKIP LOCKED
    ) head
),
taken AS (
    UPDATE {{schema}}.jobs SET state = 'running', token = token + 1, attempt = attempt + 1,
        worker = %(worker)s::uuid,
        started_at = CASE WHEN delivery = 'at_most_once' THEN NULL ELSE {DUE} END
    WHERE jobs.id = ANY(ARRAY(SELECT id FROM locked WHERE NOT late))
    RETURNING {columns("jobs")}
){"," + _EXPIRING if expiring else ""}
SELECT * FROM (SELECT count(*) AS holders FROM holder) held LEFT JOIN taken ON true
"""


BEGIN = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET started_at = {NOW}
WHERE id = %(job)s::uuid AND token = %(token)s AND state = 'running' AND started_at IS NULL
RETURNING id
"""


class Claiming(Settling):
    """The verbs that start attempts."""

    def claim(self, demand: Demand, now: datetime | None = None) -> Operation[list[JobRecord]]:
        return Operation(lambda: self._claim(demand, now), atomic=False)

    def allow_silence(self, longest: timedelta) -> Operation[None]:
        return Operation(lambda: self._allow_silence(longest), atomic=False)

    def begin(self, job_id: UUID, token: int, now: datetime | None = None) -> Operation[bool]:
        return Operation(lambda: self._begin(job_id, token, now), atomic=False)

    def _allow_silence(self, longest: timedelta) -> Steps[None]:
        yield Statement(SILENCE, {"limit": str(int(longest.total_seconds() * 1000))})

    def _claim(self, demand: Demand, now: datetime | None) -> Steps[list[JobRecord]]:
        rows = yield Statement(
            self.text(_claim_text(demand.longest_waiting > 0, demand.expiring)),
            {
                "now": now,
                "worker": demand.worker,
                "queues": list(demand.queues),
                "tasks": list(demand.tasks),
                "limit": demand.limit,
                "ordinary": demand.limit - demand.longest_waiting,
                "due_by": demand.due_by,
            },
        )
        holders, first, *_ = rows[0]
        if not holders:
            raise LeaseLost(demand.worker)
        if first is None:
            return []
        jobs = [job_record(row[1:]) for row in rows]
        jobs.sort(key=lambda job: (-job.priority, job.run_at, job.id))
        return jobs

    def _begin(self, job_id: UUID, token: int, now: datetime | None) -> Steps[bool]:
        rows = yield Statement(self.text(BEGIN), {"job": job_id, "token": token, "now": now})
        return bool(rows)
