"""Which due jobs come first, as common table expressions: from the lanes that are wanted to
`shares`, which says how many of each lane are to be taken. Nothing is locked for that.
"""

from __future__ import annotations

from enum import Enum, auto

from duly.store.postgres.lanes import claimable_in, lanes_wanted
from duly.store.postgres.rows import NOW

# What is due by a moment ahead may be claimed, unless that has passed when the claim arrives.
DUE = f"greatest({NOW}, %(due_by)s::timestamptz)"

_LIMIT = "%(limit)s::integer"
_IN_ORDER = "priority DESC, run_at, id"
_BY_PRIORITY = f"""by_priority AS MATERIALIZED (
    SELECT * FROM due ORDER BY {_IN_ORDER} LIMIT %(ordinary)s::integer
)"""
_ROOM = f"{_LIMIT} - (SELECT count(*) FROM by_priority)"


class Expected(Enum):
    """What a claim is expected to bring, and whether more than one lane has due jobs, by what the
    last one has brought and seen. All bring the same: they differ in what they read for it."""

    FEW = auto()
    MANY = auto()
    MANY_BESIDE_OTHERS = auto()


def number_of_busy(expected: Expected) -> str:
    """How many lanes have due jobs, if the statement finds out."""
    return "NULL" if expected is Expected.FEW else "(SELECT count(*) FROM busy)"


def chosen(fair: bool, marked: bool, expected: Expected) -> str:
    """Jobs by priority and, if that is to be `fair`, the longest-waiting of any; of lanes that
    begin at their marks if they are `marked`."""
    match expected:
        case Expected.FEW:
            return _each_to_the_limit(fair, marked)
        case Expected.MANY:
            return _all_of_one(fair, marked)
        case Expected.MANY_BESIDE_OTHERS:
            return _in_parts(fair, marked)


def _head(lane: str, marked: bool, limit: str, more: str = "") -> str:
    return f"""CROSS JOIN LATERAL (
        SELECT run_at, id FROM {{schema}}.jobs
        WHERE {claimable_in(lane, marked)} AND run_at <= {DUE}{more}
        ORDER BY run_at, id LIMIT {limit}
    ) head"""


def _shares(lane: str, fair: bool, candidates: str) -> str:
    """How many of each lane: what comes by priority, and of the candidates what waited longest."""
    waiting = f"""
        UNION ALL (
            SELECT * FROM {candidates} AS candidates WHERE id NOT IN (SELECT id FROM by_priority)
            ORDER BY run_at, id LIMIT {_ROOM}
        )"""
    return f"""SELECT {lane}, count(*)::integer AS share FROM (
        SELECT * FROM by_priority{waiting if fair else ""}
    ) chosen GROUP BY {lane}"""


_LANE = "queue, task, priority"
_LANE_FROM = f"{_LANE}, from_time, from_id"


def _each_to_the_limit(fair: bool, marked: bool) -> str:
    """Each lane is read as if all came from it."""
    lane = _LANE_FROM if marked else _LANE
    return f"""{lanes_wanted(marked)},
due AS MATERIALIZED (
    SELECT lanes.*, head.run_at, head.id
    FROM holder CROSS JOIN lanes {_head("lanes", marked, _LIMIT)}
),
{_BY_PRIORITY},
shares AS MATERIALIZED ({_shares(lane, fair, "due")})"""


def _busy(marked: bool, lanes: str = "lanes", more: str = "") -> str:
    """Where the due jobs of each lane begin, so that what is gone is walked over only once."""
    return f"""busy AS MATERIALIZED (
    SELECT queue, task, priority, head.run_at AS from_time, head.id AS from_id{more}
    FROM holder CROSS JOIN {lanes} {_head(lanes, marked, "1")}
)"""


_ONE_IS_BUSY = "(SELECT count(*) FROM busy) = 1"


def _all_of_one(fair: bool, marked: bool) -> str:
    """If one lane alone has due jobs, all come from there. To look for that takes as long as it
    saves with some twenty jobs."""
    return f"""{lanes_wanted(marked)},
{_busy(marked)},
due AS MATERIALIZED (
    SELECT busy.*, head.run_at, head.id
    FROM busy {_head("busy", True, _LIMIT)} WHERE NOT {_ONE_IS_BUSY}
),
{_BY_PRIORITY},
shares AS MATERIALIZED (
    SELECT busy.*, {_LIMIT} AS share FROM busy WHERE {_ONE_IS_BUSY} UNION ALL
    {_shares(_LANE_FROM, fair, "due")}
)"""


# To read each lane as if all came from it would be most of a claim where many lanes are full. So
# each is read for a part at first: twice what it gave to the last claim, or twice an even share, if
# that is more. The limit-th of what is `near` then is a bound: there are enough before it, so what
# comes after it is not taken. Only lanes that are `short`, whose own last comes before the bound,
# may have more before it, and are read on up to there. So `due` has the first of all, to the limit.
#
# Who has waited for longest and is not among these by its priority has one below the last that is.
# Of those lanes the first W have to be looked at if W are wanted, in the order in which they begin,
# and W jobs of each: before any other job there are W.
_JOB = f"{_LANE_FROM}, run_at, id"
# A full join is never a loop over all pairs, and what the condition means is not seen through.
_WITH_WHAT_THEY_GAVE = """givers AS MATERIALIZED (
    SELECT lanes.*, gave.number AS gave
    FROM lanes FULL JOIN unnest(%(gave_queues)s::text[], %(gave_tasks)s::text[],
        %(gave_priorities)s::smallint[], %(gave_numbers)s::integer[])
    AS gave (queue, task, priority, number) USING (queue, task, priority)
    WHERE CASE WHEN lanes.queue IS NULL THEN false ELSE true END
)"""
_PART = f""", least({_LIMIT},
            greatest(2 * gave::bigint, 2 * {_LIMIT}::bigint / count(*) OVER () + 1)
        ) AS part"""
_BEFORE_THE_BOUND = """bound.id IS NULL OR near.priority > bound.priority
        OR near.priority = bound.priority AND (near.run_at, near.id) < (bound.run_at, bound.id)"""
_UP_TO_THE_BOUND = """
        AND (run_at, jobs.id) <= (short.bound_time, short.bound_id)"""
_WAITING = "%(limit)s::integer - %(ordinary)s::integer"
_BELOW = f"""
below AS MATERIALIZED (
    SELECT {_LANE_FROM} FROM busy
    WHERE priority < (SELECT coalesce(min(priority), 32767) FROM by_priority)
    ORDER BY from_time, from_id LIMIT {_WAITING}
),"""
_ALSO_BELOW = f"""(
                SELECT {_JOB} FROM due UNION SELECT below.*, head.run_at, head.id
                FROM below {_head("below", True, _WAITING)}
            )"""


def _in_parts(fair: bool, marked: bool) -> str:
    """Little more is read than is chosen, while lanes give what they gave."""
    return f"""{lanes_wanted(marked)},
{_WITH_WHAT_THEY_GAVE},
{_busy(marked, "givers", _PART)},
near AS MATERIALIZED (
    SELECT busy.*, head.run_at, head.id, head.place FROM busy CROSS JOIN LATERAL (
        SELECT run_at, id, row_number() OVER (ORDER BY run_at, id) AS place FROM {{schema}}.jobs
        WHERE {claimable_in("busy", True)} AND run_at <= {DUE}
        ORDER BY run_at, id LIMIT busy.part
    ) head
),
bound AS MATERIALIZED (
    SELECT priority, run_at, id FROM near
    ORDER BY {_IN_ORDER} OFFSET greatest({_LIMIT} - 1, 0) LIMIT 1
),
short AS MATERIALIZED (
    SELECT near.queue, near.task, near.priority, near.from_time AS begin_time,
        near.from_id AS begin_id, near.run_at AS from_time, near.id AS from_id,
        CASE WHEN near.priority = bound.priority THEN bound.run_at
            ELSE 'infinity' END AS bound_time,
        CASE WHEN near.priority = bound.priority THEN bound.id
            ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END AS bound_id
    FROM near LEFT JOIN bound ON true WHERE place = part AND ({_BEFORE_THE_BOUND})
),
due AS MATERIALIZED (
    SELECT {_JOB} FROM near UNION ALL
    SELECT queue, task, priority, begin_time, begin_id, head.run_at, head.id
    FROM short {_head("short", True, f"{_LIMIT} OFFSET 1", _UP_TO_THE_BOUND)}
),
{_BY_PRIORITY},{_BELOW if fair else ""}
shares AS MATERIALIZED ({_shares(_LANE_FROM, fair, _ALSO_BELOW)})"""
