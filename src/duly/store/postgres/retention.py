"""Forgetting on PostgreSQL: finished jobs beyond their retention, keys beyond their window.

The archive as a whole is forgotten by dropping partitions, see schema.py; rows are deleted where
some queue or state has a shorter retention than the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from duly.model.job import State
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.rows import CLOCK, NOW, InSchema

_IN_QUEUE = "(%(queue)s::text IS NULL OR queue = %(queue)s::text)"
_FORGET = """
past AS (DELETE FROM {schema}.{attempts} USING old WHERE {attempts}.job_id = old.id),
told AS (DELETE FROM {schema}.progress USING old WHERE progress.job_id = old.id),
logged AS (DELETE FROM {schema}.log_lines USING old WHERE log_lines.job_id = old.id)
"""
_DEAD = f"""
{_FORGET.replace("{attempts}", "attempts")}
DELETE FROM {{schema}}.dead USING old WHERE dead.id = old.id RETURNING dead.id
"""
_ARCHIVE = f"""
{_FORGET.replace("{attempts}", "archived_attempts")}
DELETE FROM {{schema}}.archive USING old
WHERE archive.id = old.id AND archive.finished_at = old.finished_at RETURNING archive.id
"""
PURGE_DEAD = f"""
WITH old AS MATERIALIZED (
    SELECT id FROM {{schema}}.dead WHERE finished_at < %(before)s AND {_IN_QUEUE}
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), {_DEAD}
"""
PURGE_ARCHIVE = f"""
WITH old AS MATERIALIZED (
    SELECT id, finished_at FROM {{schema}}.archive
    WHERE finished_at < %(before)s AND state = %(state)s AND {_IN_QUEUE}
    LIMIT %(limit)s
), {_ARCHIVE}
"""
SURPLUS_DEAD = f"""
WITH old AS MATERIALIZED (
    SELECT id FROM {{schema}}.dead WHERE {_IN_QUEUE}
    ORDER BY finished_at DESC, id DESC OFFSET %(keep)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), {_DEAD}
"""
SURPLUS_ARCHIVE = f"""
WITH old AS MATERIALIZED (
    SELECT id, finished_at FROM {{schema}}.archive WHERE state = %(state)s AND {_IN_QUEUE}
    ORDER BY finished_at DESC, id DESC OFFSET %(keep)s LIMIT %(limit)s
), {_ARCHIVE}
"""
DISCARD = f"""
WITH old AS MATERIALIZED (
    SELECT id FROM {{schema}}.dead WHERE id = ANY(%(jobs)s::uuid[]) ORDER BY id FOR UPDATE
), {_DEAD}
"""
FREE_KEYS = f"""
WITH {CLOCK},
free AS MATERIALIZED (
    SELECT task, key FROM {{schema}}.keys WHERE held_until <= {NOW}
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM {{schema}}.keys USING free
WHERE (keys.task, keys.key) = (free.task, free.key) RETURNING keys.key
"""


class Retention(InSchema):
    """The verbs that forget."""

    def purge(
        self, state: State, finished_before: datetime, limit: int, queue: str | None = None
    ) -> Operation[int]:
        text = PURGE_DEAD if state is State.DEAD else PURGE_ARCHIVE
        values = {"state": state.value, "before": finished_before, "limit": limit, "queue": queue}
        return Operation(lambda: self._count(text, values), atomic=False)

    def purge_surplus(
        self, state: State, keep: int, limit: int, queue: str | None = None
    ) -> Operation[int]:
        text = SURPLUS_DEAD if state is State.DEAD else SURPLUS_ARCHIVE
        values = {"state": state.value, "keep": keep, "limit": limit, "queue": queue}
        return Operation(lambda: self._count(text, values), atomic=False)

    def discard(self, job_ids: Sequence[UUID]) -> Operation[int]:
        return Operation(lambda: self._count(DISCARD, {"jobs": list(job_ids)}), atomic=False)

    def free_keys(self, limit: int, now: datetime | None = None) -> Operation[int]:
        values = {"limit": limit, "now": now}
        return Operation(lambda: self._count(FREE_KEYS, values), atomic=False)

    def _count(self, text: str, values: Mapping[str, object]) -> Steps[int]:
        rows = yield Statement(self.text(text), values)
        return len(rows)
