"""The common end of an attempt on SQLite: the job succeeded, and nothing waits for that.

One statement a table for a whole batch: rows do not pass through Python on their way to the
archive. The archived job tells of the attempt: it gets no row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.attempt import Outcome
from duly.model.settlement import Settlement
from duly.store.operation import Statement, Steps
from duly.store.records import ERROR_COLUMNS, JOB_COLUMNS
from duly.store.sqlite.rows import array

_ENDED = {
    "state": "'succeeded'",
    "finished_at": "?2",
    "result": "input.value ->> 2",
    "reason": "NULL",
} | dict.fromkeys(ERROR_COLUMNS, "NULL")
# Keys are let go, schedules and flows are told, and parents are woken elsewhere.
ARCHIVE = (
    f"INSERT INTO archive ({', '.join(JOB_COLUMNS)})"
    f" SELECT {', '.join(_ENDED.get(name, f'jobs.{name}') for name in JOB_COLUMNS)}"
    " FROM json_each(?1) AS input CROSS JOIN jobs"
    " ON jobs.id = unhex(input.value ->> 0) AND jobs.token = input.value ->> 1"
    " WHERE jobs.state = 'running' AND jobs.key IS NULL AND jobs.schedule_id IS NULL"
    " AND jobs.flow_id IS NULL AND jobs.parent_id IS NULL RETURNING id, token"
)
DELETE = "DELETE FROM jobs WHERE id IN (SELECT unhex(value) FROM json_each(?1))"


def settle_plain(settlements: Sequence[Settlement], instant: int) -> Steps[set[int]]:
    """Settle those of the settlements that are so simple; answers the positions of what landed.

    Of several for one attempt the first counts.
    """
    first = {
        (each.job_id.bytes, each.token): position
        for position, each in reversed(list(enumerate(settlements)))
    }
    succeeded = [
        (job_id.hex(), token, settlements[position].result)
        for (job_id, token), position in first.items()
        if _is_plain(settlements[position])
    ]
    if not succeeded:
        return set()
    rows = yield Statement(ARCHIVE, (array(succeeded), instant))
    if rows:
        ended = array([job_id.hex() for job_id, _ in rows])
        yield Statement(DELETE, (ended,))
    return {first[job_id, token] for job_id, token in rows}


def _is_plain(settlement: Settlement) -> bool:
    succeeded = settlement.outcome is Outcome.SUCCEEDED
    return succeeded and not settlement.scheduled and settlement.flow_id is None
