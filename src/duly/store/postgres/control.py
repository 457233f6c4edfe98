"""What operators do to jobs on PostgreSQL: cancel, replay, run now, expire, purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from duly.model.flow import FlowChange
from duly.model.job import State
from duly.model.query import Cancellation, Replay
from duly.policy.states import CANCELLED_AT_ONCE, undoes_first
from duly.store.advancing import retry
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.claiming import Claiming
from duly.store.postgres.finishing import UNDO_FIRST
from duly.store.postgres.reading import TABLES
from duly.store.postgres.reopening import FORGIVE_STEPS, reopened
from duly.store.postgres.rows import CLOCK, COLUMNS, NOW, now_in
from duly.store.postgres.submission import HOLD, INHERIT, INSTANT, TAKE_OVER
from duly.store.records import REASON_CANCELLED, REASON_EXPIRED

LOCK = """
SELECT id, state, undos, undoing FROM {schema}.jobs
WHERE id = ANY(%(jobs)s::uuid[]) ORDER BY id FOR UPDATE
"""
KNOWN = " UNION ALL ".join(
    f"SELECT id, state FROM {{schema}}.{table} WHERE id = ANY(%(jobs)s::uuid[])" for table in TABLES
)
FLOWS_OF = """
SELECT DISTINCT flow_id FROM {schema}.{table}
WHERE id = ANY(%(jobs)s::uuid[]) AND flow_id IS NOT NULL
"""
REQUEST_CANCEL = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET cancel_requested_at = coalesce(cancel_requested_at, {NOW}),
    reason = coalesce(reason, %(reason)s::text)
WHERE id = ANY(%(jobs)s::uuid[])
"""
FORGET_STEPS = "DELETE FROM {schema}.steps WHERE job_id = ANY(%(jobs)s::uuid[])"
CANCEL_REQUESTS = """
SELECT id, token FROM {schema}.jobs
WHERE state = 'running' AND worker = %(worker)s::uuid AND cancel_requested_at IS NOT NULL
"""
LOCK_DEAD = """
SELECT id, task, key, flow_id, undoing IS NULL, stepped FROM {schema}.dead
WHERE id = ANY(%(jobs)s::uuid[]) ORDER BY id FOR UPDATE
"""
REPLAY = f"""
WITH {CLOCK},
raised AS (
    DELETE FROM {{schema}}.dead WHERE id = ANY(%(jobs)s::uuid[]) RETURNING {COLUMNS}
)
INSERT INTO {{schema}}.jobs ({COLUMNS})
SELECT {reopened(State.PENDING, NOW, "raised.id = ANY(%(keeping)s::uuid[])")} FROM raised
"""
RUN_NOW = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET run_at = least(run_at, {NOW})
WHERE id = ANY(%(jobs)s::uuid[]) AND {now_in(State.PENDING)} RETURNING id
"""
EXPIRED = f"""
WITH {CLOCK}
SELECT id FROM {{schema}}.jobs
WHERE state = 'pending' AND expires_at IS NOT NULL AND expires_at <= {NOW}
ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""


class Control(Claiming):
    """The verbs of operators and janitors."""

    def cancel(
        self, job_ids: Sequence[UUID], reason: str | None = None, now: datetime | None = None
    ) -> Operation[list[Cancellation]]:
        return Operation(
            lambda: self._cancel(job_ids, reason, now),
            again=lambda: self._cancel(job_ids, reason, now),
            wakes=frozenset({Wake.WAITERS, Wake.WORKERS, Wake.SCHEDULERS}),
        )

    def cancel_requests(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        return Operation(lambda: self._cancel_requests(worker), writes=False, atomic=False)

    def replay(
        self,
        job_ids: Sequence[UUID],
        arguments: str | None = None,
        now: datetime | None = None,
        keep_steps: bool = True,
    ) -> Operation[list[Replay]]:
        return Operation(
            lambda: self._replay(job_ids, arguments, now, keep_steps),
            wakes=frozenset({Wake.WORKERS}),
        )

    def run_now(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[bool]]:
        return Operation(
            lambda: self._run_now(job_ids, now),
            again=lambda: self._run_now(job_ids, now),
            atomic=False,
            wakes=frozenset({Wake.WORKERS}),
        )

    def expire(self, limit: int, now: datetime | None = None) -> Operation[int]:
        return Operation(
            lambda: self._expire(limit, now),
            wakes=frozenset(Wake),
            quiet=True,
        )

    def _cancel(
        self, job_ids: Sequence[UUID], reason: str | None, now: datetime | None
    ) -> Steps[list[Cancellation]]:
        yield from self._lock_flows(job_ids, "jobs")
        live = yield Statement(self.text(LOCK), {"jobs": list(job_ids)})
        answers = {row[0]: Cancellation.REQUESTED for row in live}
        others = [row for row in live if row[3] is None]
        running = [row[0] for row in others if row[1] not in CANCELLED_AT_ONCE]
        waiting = [row for row in others if row[1] in CANCELLED_AT_ONCE]
        ending = [row[0] for row in waiting if not undoes_first(State.CANCELLED, row[2], None)]
        undone = [row[0] for row in waiting if undoes_first(State.CANCELLED, row[2], None)]
        why = reason or REASON_CANCELLED
        if ending:
            yield from self._finish(ending, why, now)
            answers |= dict.fromkeys(ending, Cancellation.CANCELLED)
        if undone:
            yield Statement(self.text(UNDO_FIRST), {"jobs": undone, "reason": why, "now": now})
        if running:
            yield Statement(
                self.text(REQUEST_CANCEL), {"jobs": running, "reason": reason, "now": now}
            )
        rest = [job_id for job_id in job_ids if job_id not in answers]
        if rest:
            known = yield Statement(self.text(KNOWN), {"jobs": rest})
            answers |= {job_id: Cancellation.FINISHED for job_id, _ in known}
        return [answers.get(job_id, Cancellation.UNKNOWN) for job_id in job_ids]

    def _cancel_requests(self, worker: UUID) -> Steps[list[tuple[UUID, int]]]:
        rows = yield Statement(self.text(CANCEL_REQUESTS), {"worker": worker})
        return [(job_id, token) for job_id, token in rows]

    def _replay(
        self,
        job_ids: Sequence[UUID],
        arguments: str | None,
        now: datetime | None,
        keep_steps: bool,
    ) -> Steps[list[Replay]]:
        yield from self._lock_flows(job_ids, "dead")
        rows = yield Statement(self.text(LOCK_DEAD), {"jobs": list(job_ids)})
        answers: dict[UUID, Replay] = {}
        flows: dict[UUID, list[UUID]] = {}
        for job_id, _, _, flow_id, *_ in rows:
            flows.setdefault(flow_id, []).append(job_id)
        dead = [row for row in rows if row[3] is None]
        for flow_id in sorted(flows.keys() - {None}):
            chosen = flows[flow_id]
            done = yield from retry(self._flow_tables, flow_id, now, chosen, arguments)
            answer = Replay.REPLAYED if done is FlowChange.DONE else Replay.FLOW_ENDING
            answers |= dict.fromkeys(chosen, answer)
        # Of several with one key, the first that was asked for gets it.
        asked = {job_id: turn for turn, job_id in reversed(list(enumerate(job_ids)))}
        keyed = [(task, key, asked[job_id], job_id) for job_id, task, key, *_ in dead if key]
        for task, key, _, job_id in sorted(keyed):
            free = yield from self._hold_key(task, key, job_id, now)
            if not free:
                answers[job_id] = Replay.KEY_HELD
        replayed = [row[0] for row in dead if row[0] not in answers]
        keeping = [row[0] for row in dead if keep_steps and row[4]]
        stepped = [row[0] for row in dead if row[5] and row[0] not in answers]
        forgiving = [job_id for job_id in stepped if job_id in keeping]
        forgetting = [job_id for job_id in stepped if job_id not in keeping]
        yield Statement(
            self.text(REPLAY),
            {"jobs": replayed, "arguments": arguments, "keeping": keeping, "now": now},
        )
        for text, jobs in ((FORGIVE_STEPS, forgiving), (FORGET_STEPS, forgetting)):
            if jobs:
                yield Statement(self.text(text), {"jobs": jobs})
        answers |= dict.fromkeys(replayed, Replay.REPLAYED)
        rest = [job_id for job_id in job_ids if job_id not in answers]
        if rest:
            known = yield Statement(self.text(KNOWN), {"jobs": rest})
            answers |= {job_id: Replay.NOT_DEAD for job_id, _ in known}
        return [answers.get(job_id, Replay.UNKNOWN) for job_id in job_ids]

    def _lock_flows(self, job_ids: Sequence[UUID], table: str) -> Steps[None]:
        """Lock the flows of jobs, before the jobs."""
        rows = yield Statement(
            self.text(FLOWS_OF.replace("{table}", table)), {"jobs": list(job_ids)}
        )
        if rows:
            yield from self._flow_tables.lock(sorted(row[0] for row in rows))

    def _hold_key(self, task: str, key: str, job_id: UUID, now: datetime | None) -> Steps[bool]:
        """Take the key for a replayed job; False when another job has it."""
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        wanted = {"tasks": [task], "keys": [key], "jobs": [job_id], "now": instant}
        taken = yield Statement(self.text(HOLD), wanted)
        taken = taken or (yield Statement(self.text(TAKE_OVER), wanted))
        # Within its own window it has the key still, but only until that ends.
        taken = taken or (
            yield Statement(
                self.text(INHERIT), {"task": task, "key": key, "job": job_id, "holder": job_id}
            )
        )
        return bool(taken)

    def _run_now(self, job_ids: Sequence[UUID], now: datetime | None) -> Steps[list[bool]]:
        rows = yield Statement(self.text(RUN_NOW), {"jobs": list(job_ids), "now": now})
        hurried = {row[0] for row in rows}
        return [job_id in hurried for job_id in job_ids]

    def _expire(self, limit: int, now: datetime | None) -> Steps[int]:
        rows = yield Statement(self.text(EXPIRED), {"limit": limit, "now": now})
        if rows:
            yield from self._finish([row[0] for row in rows], REASON_EXPIRED, now)
        return len(rows)
