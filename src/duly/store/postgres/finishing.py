"""What finishes a job on PostgreSQL: statements, and what goes with jobs that leave."""

from __future__ import annotations

from duly.model.job import State
from duly.store.postgres.rows import CLOCK, COLUMNS, NOW, attempt_columns, columns
from duly.store.postgres.schedule_ends import tell_schedules
from duly.store.records import ATTEMPT_COLUMNS, ATTEMPT_OF_ARCHIVED

ATTEMPT_LIST = ", ".join(ATTEMPT_COLUMNS)


def past_attempts(job: str) -> str:
    """The finished attempts of a job. The one that succeeded has no row of its own: the archived
    job has all that there is to tell."""
    rows = [
        f"SELECT {ATTEMPT_LIST} FROM {{schema}}.{table} WHERE job_id = {job}"
        for table in ("attempts", "archived_attempts")
    ]
    rows.append(
        f"SELECT {attempt_columns(**ATTEMPT_OF_ARCHIVED)} FROM {{schema}}.archive"
        f" WHERE id = {job} AND state = '{State.SUCCEEDED}' AND started_at IS NOT NULL"
    )
    return " UNION ALL ".join(rows)


def leaving(source: str, state: str, first_token: int = 2) -> str:
    """What goes with jobs that leave for the archive or the dead: keys, earlier attempts, and
    word to their schedules.

    `source` is a relation with the job columns of those that leave, and `archived`, whether to
    the archive; `state` is an expression on it. Below `first_token` there are no earlier attempts.
    """
    return f"""
let_go AS (
    DELETE FROM {{schema}}.keys WHERE {_those(source, "key_window IS NULL")}
),
kept AS (
    UPDATE {{schema}}.keys SET held_until = {NOW} + make_interval(secs => ended.key_window)
    FROM {source} ended
    WHERE {_those(source, "key_window IS NOT NULL")} AND keys.job_id = ended.id
),
earlier AS (
    DELETE FROM {{schema}}.attempts WHERE job_id = ANY(ARRAY(
        SELECT id FROM {source} WHERE archived AND token >= {first_token}
    ))
    RETURNING {attempt_columns("attempts")}
),
moved AS (
    INSERT INTO {{schema}}.archived_attempts ({ATTEMPT_LIST})
    SELECT {ATTEMPT_LIST} FROM earlier
),
{tell_schedules(source, state)}"""


def _those(source: str, condition: str) -> str:
    """The condition of a key to be of one of those jobs that meet another. Put as a join, it would
    have all keys read where the planner believes that there are none."""
    wanted = {"task": "task", "key": "key", "job_id": "id"}
    return " AND ".join(
        f"keys.{column} = ANY(ARRAY("
        f"SELECT {name} FROM {source} WHERE key IS NOT NULL AND {condition}))"
        for column, name in wanted.items()
    )


def cancelled(reason: str) -> str:
    """The end of jobs that are not running: of `gone`, a relation as for leaving."""
    values = columns("gone", state="'cancelled'", reason=reason, finished_at=NOW)
    return f"""
archived AS (
    INSERT INTO {{schema}}.archive ({COLUMNS}) SELECT {values} FROM gone
),
parents AS MATERIALIZED (
    SELECT id, state FROM {{schema}}.jobs
    WHERE id = ANY(ARRAY(SELECT parent_id FROM gone WHERE parent_id IS NOT NULL))
    ORDER BY id FOR UPDATE
),
parents_woken AS (
    UPDATE {{schema}}.jobs SET state = 'pending', run_at = {NOW}
    WHERE id = ANY(ARRAY(SELECT id FROM parents WHERE state = 'waiting'))
),
{leaving("gone", "'cancelled'", first_token=1)}"""


FINISH = f"""
WITH {CLOCK},
gone AS (
    DELETE FROM {{schema}}.jobs WHERE id = ANY(%(jobs)s::uuid[]) AND state <> 'running'
    RETURNING {COLUMNS}, true AS archived
),
{cancelled("%(reason)s")}
SELECT id, flow_id FROM gone
"""
# What the job will end as is kept beside it while its compensations run.
UNDO_FIRST = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET state = 'pending', run_at = {NOW}, reason = %(reason)s,
    undoing = 'cancelled', expires_at = NULL
WHERE id = ANY(%(jobs)s::uuid[])
"""
