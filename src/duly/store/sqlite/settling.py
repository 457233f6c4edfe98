"""The ends of attempts on SQLite: settle, reap, and what finishes a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from duly.model.attempt import Outcome
from duly.model.flow import Ended
from duly.model.identifiers import id_of
from duly.model.job import State
from duly.model.query import Reaped
from duly.model.settlement import Settlement
from duly.policy.reaping import after_crash
from duly.policy.states import CHARGED, FINAL, undoes_first
from duly.store.advancing import advance
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.records import (
    ATTEMPT_COLUMNS,
    JOB_COLUMNS,
    columns_of,
    reason_of_cancellation,
    wakes_of,
)
from duly.store.sqlite.finishing import is_undone_first, move, undo_first, with_ends
from duly.store.sqlite.flow_tables import TABLES
from duly.store.sqlite.rows import COLUMN, changed, clock, duration, job_record
from duly.store.sqlite.succeeding import Successes, plain_successes, settle_plain
from duly.store.sqlite.suspension import suspend

RUNNING = (
    f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs WHERE id = ? AND token = ? AND state = 'running'"
)
RUNNING_OF = f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs WHERE worker = ? AND state = 'running'"
ORPHANS = (
    f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs WHERE state = 'running'"
    " AND worker NOT IN (SELECT id FROM workers)"
)
GO_BACK = (
    "UPDATE jobs SET state = ?, run_at = ?, attempt = ?, crashes = ?, alone = ?, worker = NULL,"
    " started_at = NULL, error_type = ?, error_message = ?, error_traceback = ?,"
    " error_fingerprint = ? WHERE id = ?"
)
ATTEMPT = (
    f"INSERT INTO attempts ({', '.join(ATTEMPT_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(ATTEMPT_COLUMNS))})"
)
UNWRITTEN = frozenset({Outcome.SUSPENDED, Outcome.SUCCEEDED})
"""One goes on later; of the other the archived job tells."""
EXPIRED_WORKER = "SELECT id FROM workers WHERE id = ? AND lease_until <= ?"
ANY_WORKER = "SELECT id FROM workers WHERE id = ?"
FORGET_WORKER = "DELETE FROM workers WHERE id = ?"


def settle(
    settlements: Sequence[Settlement], successes: Sequence[Successes], now: datetime | None
) -> Steps[list[bool]]:
    """See Verbs.settle; `successes` are the plain ones, made ready before anything is locked."""
    plain = yield from settle_plain(successes, clock(now))
    if len(plain) == len(settlements):
        return [True] * len(settlements)
    rest = [each for position, each in enumerate(settlements) if position not in plain]
    others = iter((yield from _settle_rest(rest, now)))
    return [position in plain or next(others) for position in range(len(settlements))]


def _settle_rest(settlements: Sequence[Settlement], now: datetime | None) -> Steps[list[bool]]:
    instant = clock(now)
    rows = yield Statement(
        RUNNING, [(each.job_id.bytes, each.token) for each in settlements], many=True
    )
    held = {row[0]: row for row in rows}
    landed = []
    attempts: list[Row] = []
    finished: list[Row] = []
    back: list[Row] = []
    undoing: list[Row] = []
    suspended: list[Settlement] = []
    for each in settlements:
        row = held.get(each.job_id.bytes)
        if row is None or row[COLUMN["token"]] != each.token:
            landed.append(False)
            continue
        del held[row[0]]
        landed.append(True)
        if row[COLUMN["started_at"]] is not None and each.outcome not in UNWRITTEN:
            attempts.append(_attempt(row, each, instant))
        state = _wanted(row, each)
        if undoes_first(state, row[COLUMN["undos"]], row[COLUMN["undoing"]]):
            undoing.append(_finished(row, each, state, instant))
        elif state in FINAL:
            finished.append(_finished(row, each, state, instant))
        else:
            back.append(_going_back(row, each, state, instant))
            if state is State.WAITING:
                suspended.append(each)
    if attempts:
        yield Statement(ATTEMPT, attempts, many=True)
    if back:
        yield Statement(GO_BACK, back, many=True)
    yield from undo_first(undoing, instant)
    yield from suspend(suspended, instant)
    yield from move(finished, instant)
    yield from move_flows_on(finished, now)
    return landed


def _wanted(row: Row, each: Settlement) -> State:
    if each.state not in FINAL and row[COLUMN["cancel_requested_at"]] is not None:
        return State.CANCELLED
    return each.state


def _target(row: Row, each: Settlement) -> State:
    state = _wanted(row, each)
    first = undoes_first(state, row[COLUMN["undos"]], row[COLUMN["undoing"]])
    return State.PENDING if first else state


def _attempt(row: Row, each: Settlement, instant: int) -> Row:
    return (
        row[0],
        row[COLUMN["token"]],
        row[COLUMN["attempt"]],
        row[COLUMN["generation"]],
        row[COLUMN["worker"]],
        row[COLUMN["started_at"]],
        instant,
        each.outcome.value,
        *columns_of(each.error),
    )


def _attempts_left(row: Row, each: Settlement) -> tuple[int, int]:
    """The counts of charged attempts and of charged crashes after this outcome."""
    attempt = row[COLUMN["attempt"]] - (each.outcome not in CHARGED)
    return attempt, row[COLUMN["crashes"]] + each.crashed_alone


def _finished(row: Row, each: Settlement, state: State, instant: int) -> Row:
    attempt, crashes = _attempts_left(row, each)
    reason = each.reason
    if state is State.CANCELLED:
        undone = row[COLUMN["undoing"]] is not None
        reason = reason_of_cancellation(each, row[COLUMN["reason"]], undone)
    error = columns_of(each.error) if each.error else row[COLUMN["error_type"] :]
    if state is State.SUCCEEDED:
        error = columns_of(None)
    values = changed(
        row,
        state=state.value,
        attempt=attempt,
        crashes=crashes,
        finished_at=instant,
        result=each.result,
        reason=reason,
    )
    return (*values[: COLUMN["error_type"]], *error)


def _going_back(row: Row, each: Settlement, state: State, instant: int) -> Row:
    attempt, crashes = _attempts_left(row, each)
    released = each.outcome is Outcome.RELEASED
    error = columns_of(each.error) if each.error else row[COLUMN["error_type"] :]
    return (
        state.value,
        row[COLUMN["run_at"]] if released else instant + duration(each.delay),
        attempt,
        crashes,
        int(row[COLUMN["alone"]] or each.outcome is Outcome.CRASHED),
        *error,
        row[0],
    )


def finish(jobs: Sequence[tuple[Row, str, str | None]], now: datetime | None) -> Steps[None]:
    """End jobs without an attempt's outcome, (row, final state, reason) each, and move their flows
    on; those with compensations end when these have run."""
    instant = clock(now)
    ends = with_ends(jobs, instant)
    ended = [row for row in ends if not is_undone_first(row)]
    yield from undo_first([row for row in ends if is_undone_first(row)], instant)
    yield from move(ended, instant)
    yield from move_flows_on(ended, now)


def move_flows_on(finished: Sequence[Row], now: datetime | None) -> Steps[None]:
    """Tell flows of the jobs that have ended."""
    ended = [
        Ended(
            id_of(row[0]),
            id_of(row[COLUMN["flow_id"]]),
            State(row[COLUMN["state"]]),
            row[COLUMN["result"]],
            row[COLUMN["reason"]],
        )
        for row in finished
        if row[COLUMN["flow_id"]] is not None
    ]
    if ended:
        yield from advance(TABLES, ended, now)


def _reap(
    workers: Sequence[UUID], cause: str, expired_only: bool, now: datetime | None
) -> Steps[list[Reaped]]:
    instant = clock(now)
    reaped: list[Reaped] = []
    for worker in workers:
        if expired_only:
            gone = yield Statement(EXPIRED_WORKER, (worker.bytes, instant))
        else:
            gone = yield Statement(ANY_WORKER, (worker.bytes,))
        if not gone:
            continue
        yield Statement(FORGET_WORKER, (worker.bytes,))
        rows = yield Statement(RUNNING_OF, (worker.bytes,))
        reaped += yield from _take_back(rows, cause, now)
    return reaped


def _reap_orphans(cause: str, now: datetime | None) -> Steps[list[Reaped]]:
    rows = yield Statement(ORPHANS)
    return (yield from _take_back(rows, cause, now))


def _take_back(rows: list[Row], cause: str, now: datetime | None) -> Steps[list[Reaped]]:
    jobs = [job_record(row) for row in rows]
    settlements = [after_crash(job, cause) for job in jobs]
    yield from settle(settlements, (), now)
    return [
        Reaped(job.id, job.worker, _target(row, each))
        for job, row, each in zip(jobs, rows, settlements, strict=True)
        if job.worker is not None
    ]


class Settling:
    """The verbs that end attempts."""

    def settle(
        self, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[list[bool]]:
        successes = plain_successes(settlements)
        return Operation(lambda: settle(settlements, successes, now), wakes=wakes_of(settlements))

    def reap(
        self,
        workers: Sequence[UUID],
        cause: str,
        expired_only: bool = True,
        now: datetime | None = None,
    ) -> Operation[list[Reaped]]:
        return Operation(
            lambda: _reap(workers, cause, expired_only, now),
            wakes=frozenset(Wake),
        )

    def reap_orphans(self, cause: str, now: datetime | None = None) -> Operation[list[Reaped]]:
        return Operation(lambda: _reap_orphans(cause, now), wakes=frozenset(Wake))
