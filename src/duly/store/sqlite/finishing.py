"""What finishes a job on SQLite: out of the live table, with what goes with it."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.job import State
from duly.model.schedule import LONGEST_RESULT_KEPT
from duly.policy.states import undoes_first
from duly.store.operation import Row, Statement, Steps
from duly.store.records import FAILURES_IN_A_ROW, JOB_COLUMNS
from duly.store.sqlite.rows import COLUMN, changed
from duly.store.sqlite.suspension import wake_parents

DELETE = "DELETE FROM jobs WHERE id = ?"
FINISH = {
    table: f"INSERT INTO {table} ({', '.join(JOB_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(JOB_COLUMNS))})"
    for table in ("archive", "dead")
}
RELEASE_KEY = "DELETE FROM keys WHERE task = ? AND key = ? AND job_id = ?"
# The end of a job, as its schedule sees it. (?1 now, ?2 state, ?3 nominal time, ?4 result, ?5 id)
_BETTER = "?2 = 'succeeded' AND (last_success_for IS NULL OR last_success_for <= ?3)"
_ENOUGH = "?2 = 'dead' AND NOT paused AND failures_in_a_row + 1 >= pause_after_failures"
TELL_SCHEDULE = (
    "UPDATE schedules SET last_finished_at = ?1, updated_at = ?1, revision = revision + 1,"
    " due_at = CASE WHEN awaits_end THEN ?1 ELSE due_at END,"
    " failures_in_a_row ="
    " CASE ?2 WHEN 'succeeded' THEN 0 ELSE failures_in_a_row + (?2 = 'dead') END,"
    f" last_result = CASE WHEN {_BETTER} THEN ?4 ELSE last_result END,"
    f" last_success_for = CASE WHEN {_BETTER} THEN ?3 ELSE last_success_for END,"
    f" paused = CASE WHEN {_ENOUGH} THEN 1 ELSE paused END,"
    f" note = CASE WHEN {_ENOUGH} THEN (failures_in_a_row + 1) || '{FAILURES_IN_A_ROW}'"
    " ELSE note END WHERE id = ?5"
)
KEEP_KEY = "UPDATE keys SET held_until = ? WHERE task = ? AND key = ? AND job_id = ?"

# What the job will end as is kept beside it while its compensations run.
UNDO_FIRST = (
    "UPDATE jobs SET state = 'pending', run_at = ?, attempt = ?, crashes = ?, worker = NULL,"
    " started_at = NULL, cancel_requested_at = NULL, expires_at = NULL, reason = ?, undoing = ?,"
    " error_type = ?, error_message = ?, error_traceback = ?, error_fingerprint = ? WHERE id = ?"
)


def with_ends(jobs: Sequence[tuple[Row, str, str | None]], instant: int) -> list[Row]:
    """Rows of jobs that end without an attempt's outcome: (row, final state, reason) each."""
    return [
        changed(row, state=state, reason=reason, finished_at=instant) for row, state, reason in jobs
    ]


def move(finished: list[Row], instant: int) -> Steps[None]:
    """Out of the live table, into the archive or to the dead; keys are let go, and schedules and
    waiting parents are told."""
    if not finished:
        return
    yield Statement(DELETE, [(row[0],) for row in finished], many=True)
    for table in ("archive", "dead"):
        rows = [
            row for row in finished if (row[COLUMN["state"]] == State.DEAD) == (table == "dead")
        ]
        if rows:
            yield Statement(FINISH[table], rows, many=True)
    keyed = [row for row in finished if row[COLUMN["key"]] is not None]
    for row in keyed:
        window = row[COLUMN["key_window"]]
        holder = (row[COLUMN["task"]], row[COLUMN["key"]], row[0])
        if window is None:
            yield Statement(RELEASE_KEY, holder)
        else:
            yield Statement(KEEP_KEY, (instant + int(window * 1e6), *holder))
    ends = [_end(row, instant) for row in finished if row[COLUMN["schedule_id"]] is not None]
    if ends:
        yield Statement(TELL_SCHEDULE, ends, many=True)
    yield from wake_parents([row[COLUMN["parent_id"]] for row in finished], instant)


def _end(row: Row, instant: int) -> Row:
    result = row[COLUMN["result"]]
    if result is not None and len(result) > LONGEST_RESULT_KEPT:
        result = None
    return (
        instant,
        row[COLUMN["state"]],
        row[COLUMN["scheduled_for"]],
        result,
        row[COLUMN["schedule_id"]],
    )


def undo_first(ends: list[Row], instant: int) -> Steps[None]:
    """Let jobs that are about to end run their compensations before."""
    if ends:
        yield Statement(UNDO_FIRST, [_undoing(row, instant) for row in ends], many=True)


def is_undone_first(row: Row) -> bool:
    """Whether a job that is about to end has compensations that have not run."""
    return undoes_first(State(row[COLUMN["state"]]), row[COLUMN["undos"]], row[COLUMN["undoing"]])


def _undoing(row: Row, instant: int) -> Row:
    """What UNDO_FIRST needs of a row that was about to end."""
    return (
        instant,
        row[COLUMN["attempt"]],
        row[COLUMN["crashes"]],
        row[COLUMN["reason"]],
        row[COLUMN["state"]],
        *row[COLUMN["error_type"] :],
        row[0],
    )
