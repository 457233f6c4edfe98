"""Claims on PostgreSQL: lanes in order of priority, only what is due in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from duly.errors import LeaseLost
from duly.model.job import JobRecord, State
from duly.model.query import Demand, Due
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.choosing import DUE, Expected, chosen, number_of_busy
from duly.store.postgres.crowd import Crowd, View
from duly.store.postgres.finishing import cancelled
from duly.store.postgres.lanes import claimable_in, lanes_wanted
from duly.store.postgres.marks import READ, Lane, Marking
from duly.store.postgres.rows import (
    ALIKE,
    CLOCK,
    NOW,
    SHARED,
    alike_records,
    columns,
    job_record,
    now_in,
    utc,
)
from duly.store.postgres.settling import Settling
from duly.store.postgres.turns import Turns
from duly.store.records import REASON_EXPIRED

SILENCE = "SELECT set_config('idle_in_transaction_session_timeout', %(limit)s, true)"

# First without locks: which lanes have the jobs that come first, and how many from each. Then
# each lane gives that many, past those that another claimer has locked. Locking the first rows
# of every lane would write to far more rows than are taken.
#
# They are taken by an array of their places and not by a join: how many a lane gives is unknown
# when the statement is planned, and for its guess of some thousand the planner reads the whole
# table. A locked row stays where it is. One that changed between the statement's beginning and its
# lock is where the statement does not see it, and left to the next claim.
#
# What has expired by then is cancelled in the same statement, if that is asked for: a claim that is
# half done would leave jobs running that nobody was told of. Those of a flow are left to `expire`:
# flows are locked before their jobs. Most claims do not ask: to end jobs takes as large a plan
# again, which the server would set up for nothing.
#
# The worker's row is held FOR KEY SHARE before any job is, so that a watchdog that takes it FOR
# UPDATE sees every claim that commits; a heartbeat, which changes no key, does not wait for it. A
# claim in vain locks nothing, and has nothing to write to the disk.
_EXPIRING = f"""
gone AS (
    DELETE FROM {{schema}}.jobs WHERE jobs.id = ANY(ARRAY(SELECT id FROM locked WHERE late))
    RETURNING {columns("jobs")}, true AS archived
),
{cancelled(f"'{REASON_EXPIRED}'")}
"""
_STARTS = f"greatest(run_at, {NOW})"
# After a claim that brought many, what jobs have in common is sent only once. To set that up takes
# as long as it saves with so many.
MANY = 20

# A statement sees jobs as they were when it began. One that another has taken since is no longer
# pending, but to find that out the server locks what it has become, and whoever wants to settle it
# waits for the end of this claim: with many more workers than processors, most of them do at any
# time. The server marks a row that somebody has locked or changed in `xmax`. In a crowd such a row
# is left alone, unless whoever did that had ended before the oldest that still ran: then it was a
# lock that is gone, or a change that was undone. (Jobs that came back, were replaced, waited for
# others or had expired may have such a mark from that, so they are never left alone. Several who
# lock a row together leave a number of another kind, which may lie far in the future.)
_SEEN = """seen AS MATERIALIZED (
    SELECT (SELECT count(*) FROM pg_snapshot_xip(it)) AS running,
        pg_snapshot_xmin(it)::text::bigint AS oldest, pg_snapshot_xmax(it)::text::bigint AS next,
        age(pg_snapshot_xmin(it)::xid) AS age
    FROM pg_current_snapshot() AS it
)"""
_UNTOUCHED = """(xmax = 0 OR token > 0 OR key IS NOT NULL OR flow_id IS NOT NULL
            OR expires_at IS NOT NULL OR age(xmax) > (SELECT age FROM seen)
            OR age(xmax) < -1000000 OR %(touched)s::boolean)"""


@lru_cache
def _claim_text(fair: bool, expiring: bool, marked: bool, expected: Expected) -> str:
    many = expected is not Expected.FEW
    return f"""
WITH {CLOCK},
{_SEEN},
holder AS MATERIALIZED (
    SELECT {READ} AS read FROM {{schema}}.workers
    WHERE id = %(worker)s::uuid AND lease_until > {NOW}
),
held AS MATERIALIZED (
    SELECT id FROM {{schema}}.workers
    WHERE id = %(worker)s::uuid AND lease_until > {NOW} FOR KEY SHARE
),
{chosen(fair, marked, expected)},
locked AS MATERIALIZED (
    SELECT head.place, head.id, coalesce(head.expires_at <= head.starts, false) AS late
    FROM shares CROSS JOIN LATERAL (
        SELECT ctid AS place, id, expires_at, {_STARTS} AS starts FROM {{schema}}.jobs
        WHERE {claimable_in("shares", marked or many)} AND run_at <= {DUE}
        AND (flow_id IS NULL OR expires_at IS NULL OR expires_at > {_STARTS})
        AND {_UNTOUCHED}
        ORDER BY run_at, id
        LIMIT CASE WHEN EXISTS (SELECT FROM held) THEN shares.share ELSE 0 END
        FOR UPDATE SKIP LOCKED
    ) head
),
taken AS (
    UPDATE {{schema}}.jobs SET state = 'running', token = token + 1, attempt = attempt + 1,
        worker = %(worker)s::uuid,
        started_at = CASE WHEN delivery = 'at_most_once' THEN NULL ELSE {_STARTS} END
    WHERE jobs.ctid = ANY(ARRAY(SELECT place FROM locked WHERE NOT late))
    RETURNING {columns("jobs")}
){"," + _EXPIRING if expiring else ""}
SELECT CASE WHEN NOT EXISTS (SELECT FROM shares) OR EXISTS (SELECT FROM held)
    THEN (SELECT {READ} - read FROM holder) END, running, oldest, next,
    {number_of_busy(expected)}, given.* FROM seen
LEFT JOIN {f"(SELECT {ALIKE} FROM taken GROUP BY {SHARED})" if many else "taken"} given ON true
"""


@lru_cache
def _next_due_text(marked: bool) -> str:
    return f"""
WITH {CLOCK}, {lanes_wanted(marked)}
SELECT min(head.run_at), extract(epoch FROM min(head.run_at) - {NOW})::float8
FROM lanes CROSS JOIN LATERAL (
    SELECT run_at FROM {{schema}}.jobs WHERE {claimable_in("lanes", marked)}
    ORDER BY run_at LIMIT 1
) head
"""


BEGIN = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET started_at = {NOW}
WHERE id = %(job)s::uuid AND token = %(token)s AND {now_in(State.RUNNING)} AND started_at IS NULL
RETURNING id
"""


def _next_expected(jobs: int, busy: int | None) -> Expected:
    if jobs < MANY:
        return Expected.FEW
    return Expected.MANY if busy is None or busy == 1 else Expected.MANY_BESIDE_OTHERS


class Claiming(Settling, Marking):
    """The verbs that start attempts, and the question when there will be some to start."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.expected = Expected.FEW
        self._gave: dict[Lane, int] = {}
        """What each lane gave to the last claim, if others have due jobs, too."""
        self._crowd = Crowd()
        self._turns = Turns(schema)

    def claim(self, demand: Demand, now: datetime | None = None) -> Operation[list[JobRecord]]:
        return Operation(lambda: self._claim(demand, now), atomic=False)

    def allow_silence(self, longest: timedelta) -> Operation[None]:
        return Operation(lambda: self._allow_silence(longest), atomic=False)

    def begin(self, job_id: UUID, token: int, now: datetime | None = None) -> Operation[bool]:
        return Operation(lambda: self._begin(job_id, token, now), atomic=False)

    def next_due(
        self,
        queues: Sequence[str],
        tasks: Sequence[str],
        now: datetime | None = None,
        exact: bool = True,
    ) -> Operation[Due | None]:
        return Operation(
            lambda: self._next_due(queues, tasks, now, exact), writes=False, atomic=False
        )

    def _allow_silence(self, longest: timedelta) -> Steps[None]:
        yield Statement(SILENCE, {"limit": str(int(longest.total_seconds() * 1000))})

    def _claim(self, demand: Demand, now: datetime | None) -> Steps[list[JobRecord]]:
        marks, expected = self.marks, self.expected
        many = expected is not Expected.FEW
        crowded = self._crowd.is_expected()
        text = _claim_text(demand.longest_waiting > 0, demand.expiring, marks is not None, expected)
        parameters = {
            "now": now,
            "worker": demand.worker,
            "queues": list(demand.queues),
            "tasks": list(demand.tasks),
            "limit": demand.limit,
            "ordinary": demand.limit - demand.longest_waiting,
            "due_by": demand.due_by,
            "touched": not crowded,
            **(marks.parameters if marks else {}),
            **(self._given() if expected is Expected.MANY_BESIDE_OTHERS else {}),
        }
        turn = self._turns.wait(demand) if many and crowded and self._crowd.was_seen() else None
        try:
            rows = yield Statement(self.text(text), parameters, turn=turn)
        except GeneratorExit:
            if turn is not None:
                self._turns.give_up()
            raise
        read, running, oldest, following, busy, first, *_ = rows[0]
        if read is None:
            raise LeaseLost(demand.worker)
        if first is None:
            jobs = []
        elif many:
            jobs = [job for row in rows for job in alike_records(row[5:])]
        else:
            jobs = [job_record(row[5:]) for row in rows]
        jobs.sort(key=lambda job: (-job.priority, job.run_at, job.id.int))
        self.expected = _next_expected(len(jobs), busy)
        if self.expected is Expected.MANY_BESIDE_OTHERS:
            self._gave = Counter((job.queue, job.task, job.priority) for job in jobs)
        view = View(running, oldest, following)
        self._walked(read, len(jobs), view.is_crowd)
        self._crowd.claimed(len(jobs), not crowded, view)
        if marks and not crowded:
            # Otherwise something may have been left alone before these.
            marks.move_on(jobs)
        return jobs

    def _given(self) -> dict[str, list[Any]]:
        gave = self._gave
        queues, tasks, priorities = zip(*gave, strict=True) if gave else ((), (), ())
        return {
            "gave_queues": list(queues),
            "gave_tasks": list(tasks),
            "gave_priorities": list(priorities),
            "gave_numbers": list(gave.values()),
        }

    def _next_due(
        self, queues: Sequence[str], tasks: Sequence[str], now: datetime | None, exact: bool
    ) -> Steps[Due | None]:
        marks = None if exact else self.marks
        rows = yield Statement(
            self.text(_next_due_text(marks is not None)),
            {
                "now": now,
                "queues": list(queues),
                "tasks": list(tasks),
                **(marks.parameters if marks else {}),
            },
        )
        at, seconds = rows[0]
        if at is None or seconds > 0:
            self._crowd.nothing_is_due()
        return None if at is None else Due(utc(at), seconds)

    def _begin(self, job_id: UUID, token: int, now: datetime | None) -> Steps[bool]:
        rows = yield Statement(self.text(BEGIN), {"job": job_id, "token": token, "now": now})
        return bool(rows)
