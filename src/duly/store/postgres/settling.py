"""The ends of attempts on PostgreSQL: settle, reap, and what finishes a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.attempt import Outcome
from duly.model.flow import Ended
from duly.model.job import State
from duly.model.query import Reaped
from duly.model.settlement import Settlement
from duly.policy.reaping import after_crash
from duly.policy.states import FINAL
from duly.store.advancing import advance
from duly.store.operation import Operation, Row, Statement, Steps, Wake
from duly.store.postgres.finishing import FINISH
from duly.store.postgres.flow_tables import PostgresFlowTables
from duly.store.postgres.rows import job_record, utc
from duly.store.postgres.settlements import (
    FLOWS_OF,
    FORGET_WORKERS,
    LANDED,
    LOCK_WORKERS,
    ORPHANS,
    RUNNING_OF,
    SETTLE,
    SUCCEED,
    SUCCEED_IN_FLOWS,
)
from duly.store.postgres.submission import INSTANT, Submission
from duly.store.postgres.suspension import Suspension
from duly.store.records import due_after, wakes_of, with_until


class Settling(Submission, Suspension):
    """The verbs that end attempts."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self._flow_tables = PostgresFlowTables(schema)

    def settle(
        self, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[list[bool]]:
        plain = all(
            each.outcome is Outcome.SUCCEEDED and each.flow_id is None and each.parent_id is None
            for each in settlements
        )
        return Operation(
            lambda: self._settle(settlements, now),
            again=lambda: self._settle_again(settlements, now),
            atomic=not plain,
            wakes=wakes_of(settlements),
        )

    def reap(
        self,
        workers: Sequence[UUID],
        cause: str,
        expired_only: bool = True,
        now: datetime | None = None,
    ) -> Operation[list[Reaped]]:
        return Operation(
            lambda: self._reap(workers, cause, expired_only, now),
            again=lambda: self._reap(workers, cause, expired_only, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
            quiet=True,
        )

    def reap_orphans(self, cause: str, now: datetime | None = None) -> Operation[list[Reaped]]:
        return Operation(
            lambda: self._reap_orphans(cause, now),
            again=lambda: self._reap_orphans(cause, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
            quiet=True,
        )

    def _settle(self, settlements: Sequence[Settlement], now: datetime | None) -> Steps[list[bool]]:
        # Of several for one attempt the first counts. In the order of ids, as everybody locks jobs.
        first = {
            (each.job_id.int, each.token): position
            for position, each in reversed(list(enumerate(settlements)))
        }
        landed = [False] * len(settlements)
        unique = [settlements[first[attempt]] for attempt in sorted(first)]
        succeeded = [each for each in unique if each.outcome is Outcome.SUCCEEDED]
        others = [each for each in unique if each.outcome is not Outcome.SUCCEEDED]
        # Flows are locked before their jobs, as everybody does.
        flows = sorted({each.flow_id for each in unique if each.flow_id is not None})
        if flows:
            yield from self._flow_tables.lock(flows)
        ended: list[Ended] = []
        if any(map(_has_family, unique)):
            yield from self._hold_families(unique)
        if any(each.waits for each in others):
            others = yield from self._with_ends(others, now)
        if succeeded:
            rows = yield Statement(
                self.text(SUCCEED_IN_FLOWS if flows else SUCCEED),
                {
                    "now": now,
                    "jobs": [each.job_id for each in succeeded],
                    "tokens": [each.token for each in succeeded],
                    "results": [each.result for each in succeeded],
                },
            )
            ((all_landed, ids, tokens),) = rows
            if not all_landed:
                attempts = set(zip(ids or (), tokens or (), strict=True))
                succeeded = [each for each in succeeded if (each.job_id, each.token) in attempts]
            for each in succeeded:
                landed[first[each.job_id.int, each.token]] = True
                if each.flow_id is not None:
                    ended.append(Ended(each.job_id, each.flow_id, State.SUCCEEDED, each.result))
        if others:
            moved = yield from self._settle_others(others, now)
            for job_id, token, *_ in moved:
                landed[first[job_id.int, token]] = True
            asleep = {
                (job_id, token) for job_id, token, state, *_ in moved if state == State.WAITING
            }
            suspended = [each for each in others if (each.job_id, each.token) in asleep]
            if suspended:
                yield from self._suspend(suspended, now)
            ended += _ends(moved)
        yield from self._wake(
            sorted({each.parent_id for each in unique if each.parent_id is not None}), now
        )
        if ended:
            yield from advance(self._flow_tables, ended, now)
        return landed

    def _with_ends(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[Settlement]]:
        """The settlements, with the moments at which their waits end, and the first as delay."""
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        ended = []
        for each in settlements:
            if each.state is State.WAITING:
                waits = tuple(with_until(wait, utc(instant)) for wait in each.waits)
                delay = due_after(waits) - utc(instant)
                ended.append(msgspec.structs.replace(each, waits=waits, delay=delay))
            else:
                ended.append(each)
        return ended

    def _settle_others(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[Row]]:
        errors = [each.error for each in settlements]
        return (
            yield Statement(
                self.text(SETTLE),
                {
                    "now": now,
                    "jobs": [each.job_id for each in settlements],
                    "tokens": [each.token for each in settlements],
                    "outcomes": [each.outcome.value for each in settlements],
                    "states": [each.state.value for each in settlements],
                    "delays": [each.delay for each in settlements],
                    "results": [each.result for each in settlements],
                    "reasons": [each.reason for each in settlements],
                    "types": [error and error.type for error in errors],
                    "messages": [error and error.message for error in errors],
                    "tracebacks": [error and error.traceback for error in errors],
                    "fingerprints": [error and error.fingerprint for error in errors],
                    "crashed_alone": [each.crashed_alone for each in settlements],
                },
            )
        )

    def _settle_again(
        self, settlements: Sequence[Settlement], now: datetime | None
    ) -> Steps[list[bool]]:
        """Settle what is not settled yet: an attempt's row tells that an earlier try landed.

        One with another outcome is the reaper's.
        """
        landed = yield from self._settle(settlements, now)
        rows = yield Statement(
            self.text(LANDED),
            {
                "jobs": [each.job_id for each in settlements],
                "tokens": [each.token for each in settlements],
            },
        )
        earlier = set(rows)
        return [
            now_landed or (each.job_id, each.token, each.outcome.value) in earlier
            for now_landed, each in zip(landed, settlements, strict=True)
        ]

    def _finish(self, job_ids: list[UUID], reason: str, now: datetime | None) -> Steps[list[Row]]:
        """Cancel jobs that are not running."""
        gone = yield Statement(self.text(FINISH), {"now": now, "jobs": job_ids, "reason": reason})
        ended = [
            Ended(job_id, flow_id, State.CANCELLED, reason=reason)
            for job_id, flow_id in gone
            if flow_id is not None
        ]
        if ended:
            yield from advance(self._flow_tables, ended, now)
        return gone

    def _reap(
        self, workers: Sequence[UUID], cause: str, expired_only: bool, now: datetime | None
    ) -> Steps[list[Reaped]]:
        rows = yield Statement(
            self.text(LOCK_WORKERS),
            {"now": now, "workers": list(workers), "expired_only": expired_only},
        )
        gone = {"workers": [row[0] for row in rows]}
        if not gone["workers"]:
            return []
        yield Statement(self.text(FORGET_WORKERS), gone)
        flows = yield Statement(self.text(FLOWS_OF), gone)
        if flows:
            yield from self._flow_tables.lock(sorted(row[0] for row in flows))
        jobs = yield Statement(self.text(RUNNING_OF), gone)
        return (yield from self._take_back(jobs, cause, now))

    def _reap_orphans(self, cause: str, now: datetime | None) -> Steps[list[Reaped]]:
        rows = yield Statement(self.text(ORPHANS))
        return (yield from self._take_back(rows, cause, now))

    def _take_back(self, rows: list[Row], cause: str, now: datetime | None) -> Steps[list[Reaped]]:
        if not rows:
            return []
        jobs = {job.id: job for job in map(job_record, rows)}
        moved = yield from self._settle_others(
            [after_crash(job, cause) for job in jobs.values()], now
        )
        parents = {jobs[job_id].parent_id for job_id, _, state, *_ in moved if state in FINAL}
        yield from self._wake(sorted(parent for parent in parents if parent is not None), now)
        ended = _ends(moved)
        if ended:
            yield from advance(self._flow_tables, ended, now)
        reaped = []
        for job_id, _, state, *_ in moved:
            worker = jobs[job_id].worker
            if worker is not None:
                reaped.append(Reaped(job_id, worker, State(state)))
        return reaped


def _ends(moved: list[Row]) -> list[Ended]:
    """The jobs of flows among those that were settled, where they have ended."""
    return [
        Ended(job_id, flow_id, State(state), reason=reason)
        for job_id, _, state, flow_id, reason in moved
        if flow_id is not None and State(state) in FINAL
    ]


def _has_family(settlement: Settlement) -> bool:
    """Whether somebody may wait for the job's end, or it waits for others."""
    return settlement.parent_id is not None or bool(settlement.waits)
