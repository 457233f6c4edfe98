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
    DELETE FROM {{schema}}.keys USING {source} ended
    WHERE ended.key IS NOT NULL AND ended.key_window IS NULL
    AND (keys.task, keys.key, keys.job_id) = (ended.task, ended.key, ended.id)
),
kept AS (
    UPDATE {{schema}}.keys SET held_until = {NOW} + make_interval(secs => ended.key_window)
    FROM {source} ended
    WHERE ended.key IS NOT NULL AND ended.key_window IS NOT NULL
    AND (keys.task, keys.key, keys.job_id) = (ended.task, ended.key, ended.id)
),
earlier AS (
    DELETE FROM {{schema}}.attempts USING {source} ended
    WHERE ended.archived AND ended.token >= {first_token} AND attempts.job_id = ended.id
    RETURNING {attempt_columns("attempts")}
),
moved AS (
    INSERT INTO {{schema}}.archived_attempts ({ATTEMPT_LIST})
    SELECT {ATTEMPT_LIST} FROM earlier
),
{tell_schedules(source, state)}"""


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
    UPDATE {{schema}}.jobs SET state = 'pending', run_at = {NOW} FROM parents
    WHERE jobs.id = parents.id AND parents.state = 'waiting'
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
