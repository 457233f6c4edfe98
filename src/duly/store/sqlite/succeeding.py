"""The common end of an attempt on SQLite: the job succeeded, and nothing waits for that.

One statement a table for all of a batch that have the same token, as nearly all have: rows do not
pass through Python on their way to the archive. The archived job tells of the attempt: it gets no
row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duly.model.attempt import Outcome
from duly.model.settlement import Settlement
from duly.store.operation import Statement, Steps
from duly.store.records import ERROR_COLUMNS, JOB_COLUMNS
from duly.store.sqlite.rows import array

# ?1 are the results, an array; ?2 the ids, joined; ?3 the token; ?4 the moment.
_ID = "substr(?2, input.key * 16 + 1, 16)"
_ENDED = {
    "state": "'succeeded'",
    "finished_at": "?4",
    "result": "input.value",
    "reason": "NULL",
} | dict.fromkeys(ERROR_COLUMNS, "NULL")
# Keys are let go, schedules and flows are told, and parents are woken elsewhere.
_PLAIN = (
    "jobs.token = ?3 AND jobs.state = 'running' AND jobs.key IS NULL AND jobs.schedule_id IS NULL"
    " AND jobs.flow_id IS NULL AND jobs.parent_id IS NULL"
)
ARCHIVE = (
    f"INSERT INTO archive ({', '.join(JOB_COLUMNS)})"
    f" SELECT {', '.join(_ENDED.get(name, f'jobs.{name}') for name in JOB_COLUMNS)}"
    f" FROM json_each(?1) AS input CROSS JOIN jobs ON jobs.id = {_ID} WHERE {_PLAIN}"
)
DELETE = f"DELETE FROM jobs WHERE id IN (SELECT {_ID} FROM json_each(?1) AS input) AND {_PLAIN}"
DELETE_SOME = f"{DELETE} RETURNING id"


class Successes(NamedTuple):
    """Settlements that are so simple, of attempts with the same token: their positions in the
    batch, and the parameters of all three statements but the moment."""

    positions: tuple[int, ...]
    ids: tuple[bytes, ...]
    parameters: tuple[str, bytes, int]


def plain_successes(settlements: Sequence[Settlement]) -> list[Successes]:
    """Those of the settlements that are so simple. Of several for one attempt the first counts."""
    first: dict[int, dict[bytes, int]] = {}
    for position, each in enumerate(settlements):
        first.setdefault(each.token, {}).setdefault(each.job_id.bytes, position)
    groups = []
    for token, attempts in first.items():
        plain = [(job_id, at) for job_id, at in attempts.items() if _is_plain(settlements[at])]
        if plain:
            ids, positions = zip(*plain, strict=True)
            results = array([settlements[position].result for position in positions])
            groups.append(Successes(positions, ids, (results, b"".join(ids), token)))
    return groups


def settle_plain(groups: Sequence[Successes], instant: int) -> Steps[set[int]]:
    """Settle these; answers the positions of what landed."""
    landed: set[int] = set()
    for positions, ids, parameters in groups:
        ((archived,),) = yield Statement(ARCHIVE, (*parameters, instant), counted=True)
        if archived == len(ids):
            yield Statement(DELETE, parameters)
            landed.update(positions)
        elif archived:
            rows = yield Statement(DELETE_SOME, parameters)
            gone = {row[0] for row in rows}
            landed.update(
                position for position, job_id in zip(positions, ids, strict=True) if job_id in gone
            )
    return landed


def _is_plain(settlement: Settlement) -> bool:
    succeeded = settlement.outcome is Outcome.SUCCEEDED
    return succeeded and not settlement.scheduled and settlement.flow_id is None
