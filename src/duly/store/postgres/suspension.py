"""Suspended jobs on PostgreSQL: what they wait for, and what wakes them.

Whoever suspends a job and whoever brings what it waits for must not miss each other.

A child's end and its parent's suspension both hold the parent's row first. Who comes second sees,
in a statement of its own, what the first has committed.

Events have no row in common with those who wait. So an emission holds a shared lock, for its name
and until its transaction ends; a suspension tries to get the same lock for itself alone. If it
does, no emission is under way: what has happened can be seen, and what will happen is going to see
the waiting job. If it does not, it must not wait for a caller's long transaction; the job looks
again in a moment instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from duly.model.job import State
from duly.model.settlement import Settlement
from duly.store.operation import Statement, Steps
from duly.store.postgres.rows import CLOCK, NOW, InSchema, now_in
from duly.store.postgres.step_rows import KEEP_DONE, STEP_LIST, STEP_TYPES, step_values

SLOTS = 64
"""Into how many locks the names of events fall: a transaction takes no more, however many events
it emits."""

SECOND_LOOK = "1 second"

_ARRAYS = ", ".join(f"%({name})s::{kind}[]" for name, kind in STEP_TYPES.items())
_STEPS = ", ".join(STEP_TYPES)


def lock_of(name: str) -> str:
    """The lock's number for an event's name, both expressions."""
    slot = f"(hashtext({name}) & {SLOTS - 1})"
    return f"hashtextextended('duly ' || %(schema)s::text || ' ' || {slot}, 0)"


LOCK_JOBS = """
SELECT id FROM {schema}.jobs WHERE id = ANY(%(jobs)s::uuid[]) ORDER BY id FOR UPDATE
"""
WRITE_STEPS = f"""
WITH {CLOCK}
INSERT INTO {{schema}}.steps ({STEP_LIST})
SELECT {_STEPS}, {NOW} FROM unnest({_ARRAYS}) AS step ({_STEPS})
{KEEP_DONE}
"""
FORGET_WAITS = "DELETE FROM {schema}.waits WHERE job_id = ANY(%(jobs)s::uuid[])"
WAIT = """
INSERT INTO {schema}.waits (job_id, name, key)
SELECT * FROM unnest(%(jobs)s::uuid[], %(names)s::text[], %(keys)s::text[])
"""
TRY_LOCKS = f"""
SELECT name, pg_try_advisory_xact_lock({lock_of("name")})
FROM unnest(%(names)s::text[]) AS wanted (name)
"""
FITTING = """
events.name = wanted.name AND (wanted.key IS NULL OR events.key = wanted.key)
AND (events.job_id IS NULL OR events.job_id = wanted.job)
AND (wanted.since IS NULL OR events.at >= wanted.since)
AND NOT EXISTS (
    SELECT FROM {schema}.steps WHERE steps.job_id = wanted.job AND steps.event_id = events.id
)
"""
HAPPENED = f"""
SELECT DISTINCT wanted.job
FROM unnest(%(jobs)s::uuid[], %(names)s::text[], %(keys)s::text[], %(since)s::timestamptz[])
    AS wanted (job, name, key, since)
WHERE EXISTS (SELECT FROM {{schema}}.events WHERE {FITTING})
"""
ENDED = """
SELECT DISTINCT wanted.job FROM unnest(%(jobs)s::uuid[], %(children)s::uuid[])
    AS wanted (job, child)
LEFT JOIN LATERAL (
    SELECT true AS lives FROM {schema}.jobs WHERE jobs.id = wanted.child LIMIT 1
) there ON true WHERE lives IS NULL
"""
LOOK_AGAIN = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET run_at = least(run_at, {NOW} + interval '{SECOND_LOOK}')
WHERE id = ANY(%(jobs)s::uuid[]) AND {now_in(State.WAITING)}
"""
WAKE = f"""
WITH {CLOCK},
asleep AS MATERIALIZED (
    SELECT id FROM {{schema}}.jobs WHERE id = ANY(%(jobs)s::uuid[]) AND {now_in(State.WAITING)}
    ORDER BY id FOR UPDATE
)
UPDATE {{schema}}.jobs SET state = 'pending', run_at = {NOW}
WHERE id = ANY(ARRAY(SELECT id FROM asleep)) RETURNING id
"""


class Suspension(InSchema):
    """What settlements and events do with suspended jobs."""

    def _hold_families(self, settlements: Sequence[Settlement]) -> Steps[None]:
        """Lock the jobs and their parents, all in the order of ids."""
        jobs = {each.job_id for each in settlements}
        jobs |= {each.parent_id for each in settlements if each.parent_id is not None}
        yield Statement(self.text(LOCK_JOBS), {"jobs": sorted(jobs)})

    def _suspend(self, settlements: Sequence[Settlement], now: datetime | None) -> Steps[None]:
        """Write what jobs that are waiting now wait for; wake those for whom it has come already.

        The steps of their waits have their ends.
        """
        waits = [(each.job_id, wait) for each in settlements for wait in each.waits]
        steps = [step_values(wait.write.step) for _, wait in waits]
        columns = {name: [step[name] for step in steps] for name in STEP_TYPES}
        yield Statement(self.text(WRITE_STEPS), {**columns, "now": now})
        jobs = [each.job_id for each in settlements]
        yield Statement(self.text(FORGET_WAITS), {"jobs": jobs})
        come: set[UUID] = set()
        events = [(job, wait.event) for job, wait in waits if wait.event is not None]
        if events:
            wanted = {
                "jobs": [job for job, _ in events],
                "names": [event.name for _, event in events],
                "keys": [event.key for _, event in events],
                "since": [event.since for _, event in events],
            }
            yield Statement(
                self.text(WAIT), {name: wanted[name] for name in ("jobs", "names", "keys")}
            )
            names = sorted({event.name for _, event in events})
            locks = yield Statement(TRY_LOCKS, {"names": names, "schema": self.schema})
            busy = {name for name, locked in locks if not locked}
            rows = yield Statement(self.text(HAPPENED), wanted)
            come |= {row[0] for row in rows}
            unsure = [job for job, event in events if event.name in busy]
            if unsure:
                yield Statement(self.text(LOOK_AGAIN), {"jobs": unsure, "now": now})
        children = [(job, wait.child_id) for job, wait in waits if wait.child_id is not None]
        if children:
            rows = yield Statement(
                self.text(ENDED),
                {"jobs": [job for job, _ in children], "children": [each for _, each in children]},
            )
            come |= {row[0] for row in rows}
        yield from self._wake(sorted(come), now)

    def _wake(self, job_ids: Sequence[UUID], now: datetime | None) -> Steps[int]:
        """Make suspended jobs pending and due; answers how many were suspended."""
        if not job_ids:
            return 0
        rows = yield Statement(self.text(WAKE), {"jobs": list(job_ids), "now": now})
        yield Statement(self.text(FORGET_WAITS), {"jobs": list(job_ids)})
        return len(rows)
