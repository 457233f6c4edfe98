"""What operators do to jobs on SQLite: cancel, replay, run now, expire, purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from duly.model.flow import FlowChange
from duly.model.identifiers import id_of
from duly.model.job import State
from duly.model.query import Cancellation, Replay
from duly.policy.states import CANCELLED_AT_ONCE, undoes_first
from duly.store.advancing import retry
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.records import REASON_CANCELLED, REASON_EXPIRED
from duly.store.sqlite.flow_tables import TABLES
from duly.store.sqlite.reading import LIVE_JOB, SELECT
from duly.store.sqlite.reopening import FORGIVE_STEPS, reopened
from duly.store.sqlite.rows import COLUMN, clock
from duly.store.sqlite.settling import finish
from duly.store.sqlite.submission import HOLD, HOLDER, INSERT

DEAD_JOB = f"{SELECT} dead WHERE id = ?"
EXISTS = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE id = ?1" for table in ("jobs", "archive", "dead")
)
REQUEST_CANCEL = (
    "UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, ?),"
    " reason = coalesce(reason, ?) WHERE id = ?"
)
RAISE_DEAD = "DELETE FROM dead WHERE id = ?"
FORGET_STEPS = "DELETE FROM steps WHERE job_id = ?"
RUN_NOW = "UPDATE jobs SET run_at = min(run_at, ?) WHERE id = ? AND state = 'pending' RETURNING id"
EXPIRED = (
    f"{SELECT} jobs WHERE state = 'pending' AND expires_at IS NOT NULL AND expires_at <= ?"
    " ORDER BY expires_at LIMIT ?"
)
CANCEL_REQUESTS = (
    "SELECT id, token FROM jobs"
    " WHERE worker = ? AND state = 'running' AND cancel_requested_at IS NOT NULL"
)


def cancel(
    job_ids: Sequence[UUID], reason: str | None, now: datetime | None
) -> Steps[list[Cancellation]]:
    """See Verbs.cancel."""
    instant = clock(now)
    answers = {}
    for job_id in dict.fromkeys(job_ids):
        rows = yield Statement(LIVE_JOB, (job_id.bytes,))
        if not rows:
            known = yield Statement(EXISTS, (job_id.bytes,))
            answers[job_id] = Cancellation.FINISHED if known else Cancellation.UNKNOWN
        elif rows[0][COLUMN["undoing"]] is not None:
            answers[job_id] = Cancellation.REQUESTED
        elif rows[0][COLUMN["state"]] in CANCELLED_AT_ONCE:
            undos = undoes_first(State.CANCELLED, rows[0][COLUMN["undos"]], None)
            yield from finish([(rows[0], "cancelled", reason or REASON_CANCELLED)], now)
            answers[job_id] = Cancellation.REQUESTED if undos else Cancellation.CANCELLED
        else:
            yield Statement(REQUEST_CANCEL, (instant, reason, job_id.bytes))
            answers[job_id] = Cancellation.REQUESTED
    return [answers[job_id] for job_id in job_ids]


def _cancel_requests(worker: UUID) -> Steps[list[tuple[UUID, int]]]:
    rows = yield Statement(CANCEL_REQUESTS, (worker.bytes,))
    return [(id_of(job_id), token) for job_id, token in rows]


def _replay(
    job_ids: Sequence[UUID], arguments: str | None, now: datetime | None, keep_steps: bool
) -> Steps[list[Replay]]:
    answers = {}
    for job_id in dict.fromkeys(job_ids):
        answers[job_id] = yield from _replay_one(job_id, arguments, now, keep_steps)
    return [answers[job_id] for job_id in job_ids]


def _replay_one(
    job_id: UUID, arguments: str | None, now: datetime | None, keep_steps: bool
) -> Steps[Replay]:
    instant = clock(now)
    rows = yield Statement(DEAD_JOB, (job_id.bytes,))
    if not rows:
        known = yield Statement(EXISTS, (job_id.bytes,))
        return Replay.NOT_DEAD if known else Replay.UNKNOWN
    row = rows[0]
    if row[COLUMN["flow_id"]] is not None:
        flow_id = id_of(row[COLUMN["flow_id"]])
        done = yield from retry(TABLES, flow_id, now, [job_id], arguments)
        return Replay.REPLAYED if done is FlowChange.DONE else Replay.FLOW_ENDING
    if row[COLUMN["key"]] is not None:
        slot = (row[COLUMN["task"]], row[COLUMN["key"]])
        holders = yield Statement(HOLDER, (*slot, instant))
        if holders and holders[0][0] != row[0]:
            return Replay.KEY_HELD
        yield Statement(HOLD, (*slot, row[0]))
    yield Statement(RAISE_DEAD, (row[0],))
    keeps = keep_steps and row[COLUMN["undoing"]] is None
    if row[COLUMN["stepped"]]:
        yield Statement(FORGIVE_STEPS if keeps else FORGET_STEPS, (row[0],))
    yield Statement(INSERT, reopened(row, State.PENDING, instant, arguments, keeps))
    return Replay.REPLAYED


def _run_now(job_ids: Sequence[UUID], now: datetime | None) -> Steps[list[bool]]:
    instant = clock(now)
    rows = yield Statement(RUN_NOW, [(instant, job_id.bytes) for job_id in job_ids], many=True)
    hurried = {row[0] for row in rows}
    return [job_id.bytes in hurried for job_id in job_ids]


def _expire(limit: int, now: datetime | None) -> Steps[int]:
    instant = clock(now)
    rows = yield Statement(EXPIRED, (instant, limit))
    yield from finish([(row, "cancelled", REASON_EXPIRED) for row in rows], now)
    return len(rows)


class Control:
    """The verbs of operators and janitors."""

    def cancel(
        self, job_ids: Sequence[UUID], reason: str | None = None, now: datetime | None = None
    ) -> Operation[list[Cancellation]]:
        return Operation(
            lambda: cancel(job_ids, reason, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
        )

    def cancel_requests(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        return Operation(lambda: _cancel_requests(worker), writes=False)

    def replay(
        self,
        job_ids: Sequence[UUID],
        arguments: str | None = None,
        now: datetime | None = None,
        keep_steps: bool = True,
    ) -> Operation[list[Replay]]:
        return Operation(
            lambda: _replay(job_ids, arguments, now, keep_steps), wakes=frozenset({Wake.WORKERS})
        )

    def run_now(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[bool]]:
        return Operation(lambda: _run_now(job_ids, now), wakes=frozenset({Wake.WORKERS}))

    def expire(self, limit: int, now: datetime | None = None) -> Operation[int]:
        return Operation(lambda: _expire(limit, now), wakes=frozenset(Wake))
