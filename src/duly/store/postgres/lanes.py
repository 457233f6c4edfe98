"""Lanes in statements: queue, task and priority, whose jobs lie side by side in the index.

Statements start at the head of each lane or, if they are `marked`, at its mark (see marks.py).
"""

from __future__ import annotations

_MARK = """
        coalesce(mark.run_at, '-infinity') AS from_time,
        coalesce(mark.id, '00000000-0000-0000-0000-000000000000') AS from_id"""
_MARKS = """
    LEFT JOIN unnest(%(marked_queues)s::text[], %(marked_tasks)s::text[],
        %(marked_priorities)s::smallint[], %(marked_times)s::timestamptz[], %(marked_ids)s::uuid[])
    AS mark (queue, task, priority, run_at, id) USING (queue, task, priority)"""


def lanes_wanted(marked: bool) -> str:
    """The lanes of %(queues)s and %(tasks)s that are not paused, as `lanes`."""
    return f"""lanes AS MATERIALIZED (
    SELECT DISTINCT queue, task, priority{"," + _MARK if marked else ""}
    FROM {{schema}}.lanes{_MARKS if marked else ""}
    WHERE (%(queues)s::text[] = '{{}}' OR queue = ANY(%(queues)s::text[]))
    AND task = ANY(%(tasks)s::text[])
    AND queue NOT IN (SELECT queue FROM {{schema}}.paused_queues)
)"""


def claimable_in(lane: str, marked: bool) -> str:
    """The condition of a job to be claimable, now or later, in the lane of this row."""
    start = f" AND (run_at, jobs.id) >= ({lane}.from_time, {lane}.from_id)" if marked else ""
    return f"state IN ('pending', 'waiting') AND {within(lane)}{start}"


def within(lane: str) -> str:
    """The condition of a job to be in the lane of this row: of its number, by which the index finds
    it, and of its names, for two lanes may have one number. The planner is not to take these for
    more conditions that few jobs meet: it would sort what the index has in order."""
    return f"""{_number_of("jobs")} = {_number_of(lane)}
        AND CASE WHEN jobs.queue = {lane}.queue AND jobs.task = {lane}.task
            AND jobs.priority = {lane}.priority THEN true ELSE false END"""


def _number_of(row: str) -> str:
    """As the index has it."""
    return f"hashtextextended({row}.task, hashtextextended({row}.queue, {row}.priority))"
