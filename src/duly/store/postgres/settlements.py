"""What ends attempts on PostgreSQL: the statements of settlements, and of taking jobs back."""

from __future__ import annotations

from duly.model.job import State
from duly.policy.states import CHARGED, FINAL
from duly.store.postgres.finishing import ATTEMPT_LIST, leaving, past_attempts
from duly.store.postgres.rows import CLOCK, COLUMNS, NOW, columns, listed, now_in
from duly.store.records import REASON_CANCELLED

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
