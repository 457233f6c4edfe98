"""Suspended jobs on SQLite: what they wait for, and what wakes them.

One writer at a time: an event, a child's end and a suspension come one after another, and none of
them can miss the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.model.settlement import Settlement
from duly.model.step import EventWait, Wait
from duly.store.operation import Row, Statement, Steps
from duly.store.records import due_after, with_until
from duly.store.sqlite.rows import micros, moment
from duly.store.sqlite.step_rows import WRITE_STEP, step_row

SUSPEND = (
    "UPDATE jobs SET run_at = ?, expires_at = NULL, stepped = 1 WHERE id = ? AND state = 'waiting'"
)
FORGET_WAITS = "DELETE FROM waits WHERE job_id = ?"
WAIT = "INSERT INTO waits (job_id, name, key) VALUES (?, ?, ?)"
WAKE = (
    "UPDATE jobs SET state = 'pending', run_at = ? WHERE id = ? AND state = 'waiting' RETURNING id"
)
# (?1 name, ?2 key, ?3 job, ?4 since)
FITTING = (
    "name = ?1 AND (?2 IS NULL OR key = ?2) AND (job_id IS NULL OR job_id = ?3)"
    " AND (?4 IS NULL OR at >= ?4)"
    " AND id NOT IN (SELECT event_id FROM steps WHERE job_id = ?3 AND event_id IS NOT NULL)"
)
HAPPENED = f"SELECT 1 FROM events WHERE {FITTING} LIMIT 1"
LIVE = "SELECT 1 FROM jobs WHERE id = ?"


def suspend(settlements: Sequence[Settlement], instant: int) -> Steps[None]:
    """Write what jobs that are waiting now wait for; wake those for whom it has come already."""
    if not settlements:
        return
    now = moment(instant)
    waits = {
        each.job_id.bytes: [with_until(wait, now) for wait in each.waits] for each in settlements
    }
    steps = [step_row(wait.write.step, instant) for each in waits.values() for wait in each]
    yield Statement(WRITE_STEP, steps, many=True)
    due = [(micros(due_after(each)), job_id) for job_id, each in waits.items()]
    yield Statement(SUSPEND, due, many=True)
    yield Statement(FORGET_WAITS, [(job_id,) for job_id in waits], many=True)
    events = [
        (job_id, wait.event.name, wait.event.key)
        for job_id, each in waits.items()
        for wait in each
        if wait.event is not None
    ]
    if events:
        yield Statement(WAIT, events, many=True)
    for job_id, each in waits.items():
        if (yield from _has_come(job_id, each)):
            yield Statement(WAKE, (instant, job_id))


def _has_come(job_id: bytes, waits: Sequence[Wait]) -> Steps[bool]:
    for wait in waits:
        if wait.event is not None:
            found = yield Statement(HAPPENED, fitting(wait.event, job_id))
            if found:
                return True
        if wait.child_id is not None:
            live = yield Statement(LIVE, (wait.child_id.bytes,))
            if not live:
                return True
    return False


def fitting(event: EventWait, job_id: bytes) -> Row:
    """The parameters of FITTING."""
    since = None if event.since is None else micros(event.since)
    return (event.name, event.key, job_id, since)


def wake(job_ids: Sequence[bytes], instant: int) -> Steps[int]:
    """Make suspended jobs pending and due; answers how many were suspended."""
    rows = yield Statement(WAKE, [(instant, job_id) for job_id in job_ids], many=True)
    yield Statement(FORGET_WAITS, [(job_id,) for job_id in job_ids], many=True)
    return len(rows)


def wake_parents(parents: Sequence[bytes | None], instant: int) -> Steps[None]:
    """Wake jobs that may wait for the end of these children."""
    known = sorted({parent for parent in parents if parent is not None})
    if known:
        yield from wake(known, instant)
