"""Forgetting on SQLite: finished jobs beyond their retention, keys beyond their window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from duly.model.job import State
from duly.store.operation import Operation, Row, Statement, Steps
from duly.store.sqlite.rows import clock, micros

OLD = {
    table: f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE state = ?1"
    " AND finished_at < ?2 AND (?3 IS NULL OR queue = ?3) LIMIT ?4) RETURNING id"
    for table in ("archive", "dead")
}
SURPLUS = {
    table: f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE state = ?1"
    " AND (?2 IS NULL OR queue = ?2) ORDER BY finished_at DESC, id DESC LIMIT ?4 OFFSET ?3)"
    " RETURNING id"
    for table in ("archive", "dead")
}
DISCARD = "DELETE FROM dead WHERE id = ? RETURNING id"
FORGET = tuple(
    f"DELETE FROM {table} WHERE job_id = ?" for table in ("attempts", "progress", "log_lines")
)
FREE_KEYS = (
    "DELETE FROM keys WHERE (task, key) IN"
    " (SELECT task, key FROM keys WHERE held_until <= ? LIMIT ?) RETURNING key"
)


def _table(state: State) -> str:
    return "dead" if state is State.DEAD else "archive"


def _purge(state: State, finished_before: datetime, limit: int, queue: str | None) -> Steps[int]:
    rows = yield Statement(OLD[_table(state)], (state, micros(finished_before), queue, limit))
    return (yield from _forget(rows))


def _purge_surplus(state: State, keep: int, limit: int, queue: str | None) -> Steps[int]:
    rows = yield Statement(SURPLUS[_table(state)], (state, queue, keep, limit))
    return (yield from _forget(rows))


def _discard(job_ids: Sequence[UUID]) -> Steps[int]:
    rows = yield Statement(DISCARD, [(job_id.bytes,) for job_id in job_ids], many=True)
    return (yield from _forget(rows))


def _forget(rows: Sequence[Row]) -> Steps[int]:
    """What belongs to jobs goes with them."""
    for statement in FORGET:
        yield Statement(statement, rows, many=True)
    return len(rows)


def _free_keys(limit: int, now: datetime | None) -> Steps[int]:
    rows = yield Statement(FREE_KEYS, (clock(now), limit))
    return len(rows)


class Retention:
    """The verbs that forget."""

    def purge(
        self, state: State, finished_before: datetime, limit: int, queue: str | None = None
    ) -> Operation[int]:
        return Operation(lambda: _purge(state, finished_before, limit, queue))

    def purge_surplus(
        self, state: State, keep: int, limit: int, queue: str | None = None
    ) -> Operation[int]:
        return Operation(lambda: _purge_surplus(state, keep, limit, queue))

    def discard(self, job_ids: Sequence[UUID]) -> Operation[int]:
        return Operation(lambda: _discard(job_ids))

    def free_keys(self, limit: int, now: datetime | None = None) -> Operation[int]:
        return Operation(lambda: _free_keys(limit, now))
