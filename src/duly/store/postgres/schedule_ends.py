"""The ends of jobs, as their schedules see them: part of the statements that finish jobs."""

from __future__ import annotations

from duly.model.schedule import LONGEST_RESULT_KEPT
from duly.store.postgres.rows import NOW
from duly.store.records import FAILURES_IN_A_ROW


def tell_schedules(source: str, state: str) -> str:
    """What tells schedules that jobs of theirs have ended.

    `source` is a relation with the job columns of those that ended, `state` an expression on it.
    Jobs without a schedule cost nothing here: no row of schedules is looked up for them. Rows are
    locked in the order of ids, so that two settlements do not wait for each other.
    """
    better = (
        "ends.success_for IS NOT NULL"
        " AND (last_success_for IS NULL OR last_success_for <= ends.success_for)"
    )
    failures = (
        "(CASE WHEN ends.success_for IS NULL THEN failures_in_a_row + ends.deaths ELSE 0 END)"
    )
    enough = f"ends.deaths > 0 AND NOT paused AND {failures} >= pause_after_failures"
    return f"""
ends AS MATERIALIZED (
    SELECT schedule_id, count(*) FILTER (WHERE {state} = 'dead')::integer AS deaths,
        max(scheduled_for) FILTER (WHERE {state} = 'succeeded') AS success_for,
        (array_agg(result ORDER BY scheduled_for DESC) FILTER (WHERE {state} = 'succeeded'))[1]
            AS result
    FROM {source} WHERE schedule_id IS NOT NULL GROUP BY schedule_id
),
told AS MATERIALIZED (
    SELECT id FROM {{schema}}.schedules WHERE id = ANY(ARRAY(SELECT schedule_id FROM ends))
    ORDER BY id FOR UPDATE
),
schedules_told AS (
    UPDATE {{schema}}.schedules SET last_finished_at = {NOW}, updated_at = {NOW},
        revision = revision + 1,
        due_at = CASE WHEN awaits_end THEN {NOW} ELSE due_at END,
        failures_in_a_row = {failures},
        last_result = CASE WHEN NOT ({better}) THEN last_result
            WHEN length(ends.result) <= {LONGEST_RESULT_KEPT} THEN ends.result END,
        last_success_for = CASE WHEN {better} THEN ends.success_for ELSE last_success_for END,
        paused = paused OR coalesce({enough}, false),
        note = CASE WHEN {enough} THEN {failures}::text || '{FAILURES_IN_A_ROW}' ELSE note END
    FROM ends
    WHERE schedules.id = ANY(ARRAY(SELECT id FROM told)) AND schedules.id = ends.schedule_id
)"""
