"""The ends of attempts on PostgreSQL: settle, reap, and what finishes a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.attempt import Outcome
from duly.model.flow import Ended
from duly.model.job import State
from duly.model.query import Reaped
from duly.model.settlement import Settlement
from duly.policy.reaping import after_crash
from duly.policy.states import CHARGED, FINAL
from duly.store.advancing import advance
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.postgres.finishing import ATTEMPT_LIST, FINISH, leaving, past_attempts
from duly.store.postgres.flow_tables import PostgresFlowTables
from duly.store.postgres.rows import (
    CLOCK,
    COLUMNS,
    NOW,
    columns,
    job_record,
    listed,
    now_in,
    utc,
)
from duly.store.postgres.submission import INSTANT, Submission
from duly.store.postgres.suspension import Suspension
from duly.store.records import REASON_CANCELLED, due_after, wakes_of, with_until

HELD = now_in(State.RUNNING)
OUTSIDE_FLOWS = "num_nulls(jobs.flow_id) <> 0"
# What a settlement may touch. Nothing is joined with the table of jobs: where the planner believes
# that there are none, as after a vacuum behind a transaction that somebody leaves open, it would
# read them all, or compare every job with every settlement. The array is looked up by the index;
# how long it is the planner must not know: for some hundred it reads a table of some ten thousand
# from end to end. The pairs become a hash table: a condition within a CASE is made no join of.
MINE = f"""jobs.id = ANY(ARRAY(SELECT job FROM input))
    AND CASE WHEN (jobs.id, jobs.token) IN (SELECT job, token FROM input) THEN true ELSE false END
    AND {HELD}"""


def with_input(jobs: str) -> str:
    """Those jobs, each with its settlement. A full join is never a loop over all pairs; the
    condition that makes it an ordinary one is hidden from the planner."""
    return (
        f"{jobs} FULL JOIN input ON input.job = {jobs}.id AND input.token = {jobs}.token"
        f" WHERE CASE WHEN {jobs}.id IS NULL THEN false ELSE true END"
    )


# The fast path: what nearly every settlement is. The archived job tells of the attempt. A job of a
# flow is left alone: its end moves the flow on, which takes a transaction and a lock on the flow.
SUCCEED = f"""
WITH {CLOCK},
input AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::uuid[], %(tokens)s::integer[], %(results)s::text[])
        AS settlement (job, token, result)
),
gone AS (
    DELETE FROM {{schema}}.jobs WHERE {MINE} AND {OUTSIDE_FLOWS} RETURNING {columns("jobs")}
),
archived AS (
    INSERT INTO {{schema}}.archive ({COLUMNS})
    SELECT {
    columns(
        "gone",
        state="'succeeded'",
        result="input.result",
        finished_at=NOW,
        reason="NULL",
        error_type="NULL",
        error_message="NULL",
        error_traceback="NULL",
        error_fingerprint="NULL",
    )
} FROM {with_input("gone")}
),
burdened AS MATERIALIZED (
    SELECT * FROM gone WHERE token > 1 OR key IS NOT NULL OR schedule_id IS NOT NULL
),
encumbered AS MATERIALIZED (
    SELECT {columns("burdened", result="input.result AS result")}, true AS archived
    FROM {with_input("burdened")}
),
{leaving("encumbered", "'succeeded'")}
SELECT count(*) = cardinality(%(jobs)s::uuid[]),
    CASE WHEN count(*) < cardinality(%(jobs)s::uuid[]) THEN array_agg(id) END,
    CASE WHEN count(*) < cardinality(%(jobs)s::uuid[]) THEN array_agg(token) END
FROM gone
"""
SUCCEED_IN_FLOWS = SUCCEED.replace(f" AND {OUTSIDE_FLOWS}", "")
# A job that is locked here may have been asked to cancel a moment ago: the locked row tells. For
# `why` see duly.store.records.reason_of_cancellation.
SETTLE = f"""
WITH {CLOCK},
input AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::uuid[], %(tokens)s::integer[], %(outcomes)s::text[],
        %(states)s::text[], %(delays)s::interval[], %(results)s::text[], %(reasons)s::text[],
        %(types)s::text[], %(messages)s::text[], %(tracebacks)s::text[], %(fingerprints)s::text[],
        %(crashed_alone)s::boolean[])
        AS settlement (job, token, outcome, state, delay, result, reason,
            error_type, error_message, error_traceback, error_fingerprint, crashed_alone)
),
mine AS MATERIALIZED (
    SELECT {columns("jobs")} FROM {{schema}}.jobs WHERE {MINE} ORDER BY id FOR UPDATE
),
held AS MATERIALIZED (
    SELECT {
    columns(
        "mine",
        attempt=f"mine.attempt - (input.outcome NOT IN ({listed(CHARGED)}))::integer AS attempt",
        crashes="mine.crashes + input.crashed_alone::integer AS crashes",
        result="input.result AS result",
        reason="input.reason AS reason",
    )
}, mine.reason AS asked_for, mine.attempt AS number, input.outcome, input.delay,
        input.state AS wanted,
        input.error_type AS new_type, input.error_message AS new_message,
        input.error_traceback AS new_traceback, input.error_fingerprint AS new_fingerprint
    FROM {with_input("mine")}
),
decided AS MATERIALIZED (
    SELECT *, CASE WHEN undoes_first THEN 'pending' ELSE aim END AS next,
        CASE WHEN stopped THEN coalesce(asked_for, '{REASON_CANCELLED}')
            WHEN aim = 'cancelled' AND undoing IS NULL AND starts_with(reason, '{REASON_CANCELLED}')
            THEN concat_ws(': ', reason, asked_for) ELSE reason END AS why
    FROM (
        SELECT *, aim IN ('dead', 'cancelled') AND undos > 0 AND undoing IS NULL AS undoes_first
        FROM (
            SELECT *, CASE WHEN stopped THEN 'cancelled' ELSE wanted END AS aim
            FROM (
                SELECT *, wanted NOT IN ({
    listed(FINAL)
}) AND cancel_requested_at IS NOT NULL AS stopped
                FROM held
            ) asked
        ) aimed
    ) known
),
ending AS MATERIALIZED (
    SELECT *, next <> 'dead' AS archived FROM decided WHERE next IN ({listed(FINAL)})
),
gone AS (
    DELETE FROM {{schema}}.jobs WHERE id = ANY(ARRAY(SELECT id FROM ending))
),
archived AS (
    INSERT INTO {{schema}}.archive ({COLUMNS})
    SELECT {{finished}} FROM ending WHERE archived
),
buried AS (
    INSERT INTO {{schema}}.dead ({COLUMNS})
    SELECT {{finished}} FROM ending WHERE NOT archived
),
back AS (
    UPDATE {{schema}}.jobs SET state = next, attempt = decided.attempt, crashes = decided.crashes,
        alone = decided.alone OR outcome = 'crashed', worker = NULL, started_at = NULL,
        run_at = CASE WHEN undoes_first THEN {NOW} WHEN outcome = 'released' THEN decided.run_at
            ELSE {NOW} + delay END,
        stepped = decided.stepped OR outcome = 'suspended',
        expires_at =
            CASE WHEN undoes_first OR next = 'waiting' THEN NULL ELSE decided.expires_at END,
        undoing = CASE WHEN undoes_first THEN aim ELSE decided.undoing END,
        reason = CASE WHEN undoes_first THEN why ELSE jobs.reason END,
        cancel_requested_at =
            CASE WHEN undoes_first THEN NULL ELSE decided.cancel_requested_at END,
        error_type = coalesce(new_type, decided.error_type),
        error_message = CASE WHEN new_type IS NULL THEN decided.error_message ELSE new_message END,
        error_traceback =
            CASE WHEN new_type IS NULL THEN decided.error_traceback ELSE new_traceback END,
        error_fingerprint =
            CASE WHEN new_type IS NULL THEN decided.error_fingerprint ELSE new_fingerprint END
    FROM decided WHERE jobs.id = ANY(ARRAY(SELECT id FROM decided))
    AND jobs.id = decided.id AND next NOT IN ({listed(FINAL)})
),
attempt AS (
    INSERT INTO {{schema}}.attempts ({ATTEMPT_LIST})
    SELECT id, token, number, generation, worker, started_at, {NOW}, outcome,
        new_type, new_message, new_traceback, new_fingerprint
    FROM decided WHERE started_at IS NOT NULL AND next NOT IN ('succeeded', 'cancelled')
    AND outcome <> 'suspended'
),
archived_attempt AS (
    INSERT INTO {{schema}}.archived_attempts ({ATTEMPT_LIST})
    SELECT id, token, number, generation, worker, started_at, {NOW}, outcome,
        new_type, new_message, new_traceback, new_fingerprint
    FROM ending WHERE started_at IS NOT NULL AND archived
),
{leaving("ending", "next")}
SELECT id, token, next, flow_id, why FROM decided
""".replace(
    "{finished}",
    columns(
        "ending",
        state="next",
        finished_at=NOW,
        reason="why",
        error_type="CASE WHEN next = 'succeeded' THEN NULL ELSE coalesce(new_type, error_type) END",
        error_message="CASE WHEN next = 'succeeded' THEN NULL"
        " WHEN new_type IS NULL THEN error_message ELSE new_message END",
        error_traceback="CASE WHEN next = 'succeeded' THEN NULL"
        " WHEN new_type IS NULL THEN error_traceback ELSE new_traceback END",
        error_fingerprint="CASE WHEN next = 'succeeded' THEN NULL"
        " WHEN new_type IS NULL THEN error_fingerprint ELSE new_fingerprint END",
    ),
)
LANDED = f"""
SELECT job_id, past.token, past.outcome
FROM unnest(%(jobs)s::uuid[], %(tokens)s::integer[]) AS settlement (job, number)
CROSS JOIN LATERAL ({past_attempts("settlement.job")}) past WHERE past.token = settlement.number
"""


LOCK_WORKERS = f"""
WITH {CLOCK}
SELECT id FROM {{schema}}.workers
WHERE id = ANY(%(workers)s::uuid[]) AND (NOT %(expired_only)s OR lease_until <= {NOW})
ORDER BY id FOR UPDATE
"""
FORGET_WORKERS = "DELETE FROM {schema}.workers WHERE id = ANY(%(workers)s::uuid[])"
RUNNING_OF = f"""
SELECT {COLUMNS} FROM {{schema}}.jobs
WHERE id = ANY(ARRAY(
    SELECT id FROM {{schema}}.jobs WHERE state = 'running' AND worker = ANY(%(workers)s::uuid[])
)) AND {HELD} AND worker = ANY(%(workers)s::uuid[])
ORDER BY id FOR UPDATE
"""
FLOWS_OF = """
SELECT DISTINCT flow_id FROM {schema}.jobs
WHERE state = 'running' AND worker = ANY(%(workers)s::uuid[]) AND flow_id IS NOT NULL
"""
ORPHANS = f"""
SELECT {COLUMNS} FROM {{schema}}.jobs
WHERE state = 'running'
AND NOT EXISTS (SELECT FROM {{schema}}.workers WHERE workers.id = jobs.worker)
ORDER BY id FOR UPDATE
"""


class Settling(Submission, Suspension):
    """The verbs that end attempts."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self._flow_tables = PostgresFlowTables(schema)

    def settle(
        self, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[list[bool]]:
        plain = all(
            each.outcome is Outcome.SUCCEEDED and each.flow_id is None and each.parent_id is None
            for each in settlements
        )
        return Operation(
            lambda: self._settle(settlements, now),
            again=lambda: self._settle_again(settlements, now),
            atomic=not plain,
            wakes=wakes_of(settlements),
        )

    def reap(
        self,
        workers: Sequence[UUID],
        cause: str,
        expired_only: bool = True,
        now: datetime | None = None,
    ) -> Operation[list[Reaped]]:
        return Operation(
            lambda: self._reap(workers, cause, expired_only, now),
            again=lambda: self._reap(workers, cause, expired_only, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
            quiet=True,
        )

    def reap_orphans(self, cause: str, now: datetime | None = None) -> Operation[list[Reaped]]:
        return Operation(
            lambda: self._reap_orphans(cause, now),
            again=lambda: self._reap_orphans(cause, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
            quiet=True,
        )

    def _settle(self, settlements: Sequence[Settlement], now: datetime | None) -> Steps[list[bool]]:
        # Of several for one attempt the first counts. In the order of ids, as everybody locks jobs.
        first = {
            (each.job_id.int, each.token): position
            for position, each in reversed(list(enumerate(settlements)))
        }
        landed = [False] * len(settlements)
        unique = [settlements[first[attempt]] for attempt in sorted(first)]
        succeeded = [each for each in unique if each.outcome is Outcome.SUCCEEDED]
        others = [each for each in unique if each.outcome is not Outcome.SUCCEEDED]
        # Flows are locked before their jobs, as everybody does.
        flows = sorted({each.flow_id for each in unique if each.flow_id is not None})
        if flows:
            yield from self._flow_tables.lock(flows)
        ended: list[Ended] = []
        if any(map(_has_family, unique)):
            yield from self._hold_families(unique)
        if any(each.waits for each in others):
            others = yield from self._with_ends(others, now)
        if succeeded:
            rows = yield Statement(
                self.text(SUCCEED_IN_FLOWS if flows else SUCCEED),
                {
                    "now": now,
                    "jobs": [each.job_id for each in succeeded],
                    "tokens": [each.token for each in succeeded],
                    "results": [each.result for each in succeeded],
                },
            )
            ((all_landed, ids, tokens),) = rows
            if not all_landed:
                attempts = set(zip(ids or (), tokens or (), strict=True))
                succeeded = [each for each in succeeded if (each.job_id, each.token) in attempts]
            for each in succeeded:
                landed[first[each.job_id.int, each.token]] = True
                if each.flow_id is not None:
                    ended.append(Ended(each.job_id, each.flow_id, State.SUCCEEDED, each.result))
        if others:
            moved = yield from self._settle_others(others, now)
            for job_id, token, *_ in moved:
                landed[first[job_id.int, token]] = True
            asleep = {
                (job_id, token) for job_id, token, state, *_ in moved if state == State.WAITING
            }
            suspended = [each for each in others if (each.job_id, each.token) in asleep]
            if suspended:
                yield from self._suspend(suspended, now)
            ended += _ends(moved)
        yield from self._wake(
            sorted({each.parent_id for each in unique if each.parent_id is not None}), now
        )
        if ended:
            yield from advance(self._flow_tables, ended, now)
        return landed

    def _with_ends(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[Settlement]]:
        """The settlements, with the moments at which their waits end, and the first as delay."""
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        ended = []
        for each in settlements:
            if each.state is State.WAITING:
                waits = tuple(with_until(wait, utc(instant)) for wait in each.waits)
                delay = due_after(waits) - utc(instant)
                ended.append(msgspec.structs.replace(each, waits=waits, delay=delay))
            else:
                ended.append(each)
        return ended

    def _settle_others(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[Row]]:
        errors = [each.error for each in settlements]
        return (
            yield Statement(
                self.text(SETTLE),
                {
                    "now": now,
                    "jobs": [each.job_id for each in settlements],
                    "tokens": [each.token for each in settlements],
                    "outcomes": [each.outcome.value for each in settlements],
                    "states": [each.state.value for each in settlements],
                    "delays": [each.delay for each in settlements],
                    "results": [each.result for each in settlements],
                    "reasons": [each.reason for each in settlements],
                    "types": [error and error.type for error in errors],
                    "messages": [error and error.message for error in errors],
                    "tracebacks": [error and error.traceback for error in errors],
                    "fingerprints": [error and error.fingerprint for error in errors],
                    "crashed_alone": [each.crashed_alone for each in settlements],
                },
            )
        )

    def _settle_again(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[bool]]:
        """Settle what is not settled yet: an attempt's row tells that an earlier try landed.

        One with another outcome is the reaper's.
        """
        landed = yield from self._settle(settlements, now)
        rows = yield Statement(
            self.text(LANDED),
            {
                "jobs": [each.job_id for each in settlements],
                "tokens": [each.token for each in settlements],
            },
        )
        earlier = set(rows)
        return [
            now_landed or (each.job_id, each.token, each.outcome.value) in earlier
            for now_landed, each in zip(landed, settlements, strict=True)
        ]

    def _finish(self, job_ids: list[UUID], reason: str, now: datetime | None) -> Steps[list[Row]]:
        """Cancel jobs that are not running."""
        gone = yield Statement(self.text(FINISH), {"now": now, "jobs": job_ids, "reason": reason})
        ended = [
            Ended(job_id, flow_id, State.CANCELLED, reason=reason)
            for job_id, flow_id in gone
            if flow_id is not None
        ]
        if ended:
            yield from advance(self._flow_tables, ended, now)
        return gone

    def _reap(
        self, workers: Sequence[UUID], cause: str, expired_only: bool, now: datetime | None
    ) -> Steps[list[Reaped]]:
        rows = yield Statement(
            self.text(LOCK_WORKERS),
            {"now": now, "workers": list(workers), "expired_only": expired_only},
        )
        gone = {"workers": [row[0] for row in rows]}
        if not gone["workers"]:
            return []
        yield Statement(self.text(FORGET_WORKERS), gone)
        flows = yield Statement(self.text(FLOWS_OF), gone)
        if flows:
            yield from self._flow_tables.lock(sorted(row[0] for row in flows))
        jobs = yield Statement(self.text(RUNNING_OF), gone)
        return (yield from self._take_back(jobs, cause, now))

    def _reap_orphans(self, cause: str, now: datetime | None) -> Steps[list[Reaped]]:
        rows = yield Statement(self.text(ORPHANS))
        return (yield from self._take_back(rows, cause, now))

    def _take_back(self, rows: list[Row], cause: str, now: datetime | None) -> Steps[list[Reaped]]:
        if not rows:
            return []
        jobs = {job.id: job for job in map(job_record, rows)}
        moved = yield from self._settle_others(
            [after_crash(job, cause) for job in jobs.values()], now
        )
        parents = {jobs[job_id].parent_id for job_id, _, state, *_ in moved if state in FINAL}
        yield from self._wake(sorted(parent for parent in parents if parent is not None), now)
        ended = _ends(moved)
        if ended:
            yield from advance(self._flow_tables, ended, now)
        reaped = []
        for job_id, _, state, *_ in moved:
            worker = jobs[job_id].worker
            if worker is not None:
                reaped.append(Reaped(job_id, worker, State(state)))
        return reaped


def _ends(moved: list[Row]) -> list[Ended]:
    """The jobs of flows among those that were settled, where they have ended."""
    return [
        Ended(job_id, flow_id, State(state), reason=reason)
        for job_id, _, state, flow_id, reason in moved
        if flow_id is not None and State(state) in FINAL
    ]


def _has_family(settlement: Settlement) -> bool:
    """Whether somebody may wait for the job's end, or it waits for others."""
    return settlement.parent_id is not None or bool(settlement.waits)
