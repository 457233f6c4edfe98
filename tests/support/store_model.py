"""What a store should do, in plain Python: dictionaries, sorting, and no SQL.

Written from the contract in duly.store.protocol, not from the stores: where both agree after any
sequence of steps, either both are right or they are wrong in the same way by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from duly.errors import KeyConflict, LeaseLost
from duly.model.attempt import Attempt, Failure, Outcome
from duly.model.job import Delivery, Draft, JobRecord, KeyPolicy, State
from duly.model.query import Cancellation, Demand, Due, Enqueued, Reaped, Replay
from duly.model.settlement import Settlement
from duly.policy.states import CHARGED, FINAL


@dataclass
class _Hold:
    """A key in somebody's hands; for ever, or until its window ends."""

    job_id: UUID
    until: datetime | None = None


@dataclass
class StoreModel:
    """Jobs, attempts, keys, workers and paused queues."""

    jobs: dict[UUID, JobRecord] = field(default_factory=dict)
    attempts: dict[UUID, list[Attempt]] = field(default_factory=dict)
    holds: dict[tuple[str, str], _Hold] = field(default_factory=dict)
    leases: dict[UUID, datetime] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)

    # Submission

    def enqueue(self, drafts: Sequence[Draft], now: datetime) -> list[Enqueued]:
        contenders = _contenders(drafts)
        decided: dict[UUID, Enqueued] = {}
        for draft in contenders.values():
            holder = self._holder(draft, now)
            others = holder is not None and holder.id != draft.id
            if draft.key_policy is KeyPolicy.REJECT and others and holder is not None:
                raise KeyConflict(draft.task, draft.key or "", holder.id)
        for draft in contenders.values():
            holder = self._holder(draft, now)
            if holder is None:
                continue
            decided[draft.id] = Enqueued(holder, created=False)
            unstarted = holder.state is State.PENDING and holder.attempt == 0
            if draft.key_policy is KeyPolicy.REPLACE and unstarted and holder.id != draft.id:
                fresh = replace(
                    _record(draft, now),
                    id=holder.id,
                    created_at=holder.created_at,
                    token=holder.token,
                    generation=holder.generation,
                    alone=holder.alone,
                )
                self.jobs[holder.id] = fresh
                decided[draft.id] = Enqueued(fresh, created=False, replaced=True)
        answers = []
        for draft in drafts:
            contender = draft if draft.key is None else contenders[draft.task, draft.key]
            if contender.id not in decided:
                decided[contender.id] = self._store(contender, now)
            answer = decided[contender.id]
            answers.append(answer if contender is draft else Enqueued(answer.job, created=False))
        return answers

    def _holder(self, draft: Draft, now: datetime) -> JobRecord | None:
        hold = self.holds.get((draft.task, draft.key or ""))
        if hold is None or (hold.until is not None and hold.until <= now):
            return None
        return self.jobs.get(hold.job_id)

    def _store(self, draft: Draft, now: datetime) -> Enqueued:
        if draft.id in self.jobs:
            return Enqueued(self.jobs[draft.id], created=False)
        if draft.key is not None:
            self.holds[draft.task, draft.key] = _Hold(draft.id)
        self.jobs[draft.id] = _record(draft, now)
        self.attempts[draft.id] = []
        return Enqueued(self.jobs[draft.id], created=True)

    # Attempts

    def claim(self, demand: Demand, now: datetime) -> list[JobRecord]:
        if self.leases.get(demand.worker, now) <= now:
            raise LeaseLost(demand.worker)
        due = sorted(self._claimable(demand.queues, demand.tasks, now), key=_place)
        chosen = due[: demand.limit - demand.longest_waiting]
        if demand.longest_waiting:
            rest = sorted(
                (job for job in due if job not in chosen), key=lambda job: (job.run_at, job.id)
            )
            chosen += rest[: demand.limit - len(chosen)]
        taken = []
        for job in sorted(chosen, key=_place):
            if job.expires_at is not None and job.expires_at <= now:
                self._end(job, State.CANCELLED, now, reason="expired")
                continue
            begins = job.delivery is not Delivery.AT_MOST_ONCE
            running = replace(
                job,
                state=State.RUNNING,
                token=job.token + 1,
                attempt=job.attempt + 1,
                worker=demand.worker,
                started_at=now if begins else None,
            )
            self.jobs[job.id] = running
            taken.append(running)
        return taken

    def next_due(self, queues: Sequence[str], tasks: Sequence[str], now: datetime) -> Due | None:
        times = [job.run_at for job in self._claimable(queues, tasks, None)]
        if not times:
            return None
        return Due(min(times), (min(times) - now).total_seconds())

    def _claimable(
        self, queues: Sequence[str], tasks: Sequence[str], now: datetime | None
    ) -> list[JobRecord]:
        return [
            job
            for job in self.jobs.values()
            if job.state is State.PENDING
            and (now is None or job.run_at <= now)
            and (not queues or job.queue in queues)
            and job.queue not in self.paused
            and job.task in tasks
        ]

    def begin(self, job_id: UUID, token: int, now: datetime) -> bool:
        job = self._held(job_id, token)
        if job is None or job.started_at is not None:
            return False
        self.jobs[job_id] = replace(job, started_at=now)
        return True

    def settle(self, settlements: Sequence[Settlement], now: datetime) -> list[bool]:
        return [self._settle(each, now) is not None for each in settlements]

    def _held(self, job_id: UUID, token: int) -> JobRecord | None:
        job = self.jobs.get(job_id)
        holds = job is not None and job.state is State.RUNNING and job.token == token
        return job if holds else None

    def _settle(self, each: Settlement, now: datetime) -> State | None:
        job = self._held(each.job_id, each.token)
        if job is None:
            return None
        if job.started_at is not None:
            self.attempts[job.id].append(
                Attempt(
                    job_id=job.id,
                    token=job.token,
                    number=job.attempt,
                    generation=job.generation,
                    worker=job.worker,
                    started_at=job.started_at,
                    ended_at=now,
                    outcome=each.outcome,
                    error=each.error,
                )
            )
        state, reason = each.state, each.reason
        if state is State.PENDING and job.cancel_requested_at is not None:
            state, reason = State.CANCELLED, job.reason or "cancelled on request"
        elif job.reason and reason is not None and reason.startswith("cancelled on request"):
            reason = f"{reason}: {job.reason}"
        crashed = each.outcome is Outcome.CRASHED
        job = replace(
            job,
            attempt=job.attempt if each.outcome in CHARGED else job.attempt - 1,
            crashes=job.crashes + 1 if each.crashed_alone else job.crashes,
            error=each.error or job.error,
        )
        if state in FINAL:
            error = None if state is State.SUCCEEDED else job.error
            self._end(replace(job, error=error), state, now, reason, each.result)
        else:
            run_at = job.run_at if each.outcome is Outcome.RELEASED else now + each.delay
            self.jobs[job.id] = replace(
                job,
                state=state,
                run_at=run_at,
                worker=None,
                started_at=None,
                alone=job.alone or crashed,
            )
        return state

    def _end(
        self,
        job: JobRecord,
        state: State,
        now: datetime,
        reason: str | None,
        result: str | None = None,
    ) -> None:
        self.jobs[job.id] = replace(job, state=state, finished_at=now, reason=reason, result=result)
        hold = self.holds.get((job.task, job.key or ""))
        if job.key is None or hold is None or hold.job_id != job.id:
            return
        if job.key_window is None:
            del self.holds[job.task, job.key]
        else:
            hold.until = now + timedelta(seconds=job.key_window)

    # Workers

    def register(self, worker: UUID, lease: timedelta, now: datetime) -> None:
        self.leases[worker] = now + lease

    def renew(self, workers: Iterable[UUID], lease: timedelta, now: datetime) -> frozenset[UUID]:
        known = frozenset(workers) & frozenset(self.leases)
        for worker in known:
            self.leases[worker] = now + lease
        return known

    def held(self, worker: UUID) -> list[tuple[UUID, int]]:
        return sorted((job.id, job.token) for job in self._running(worker))

    def cancel_requests(self, worker: UUID) -> list[tuple[UUID, int]]:
        return sorted(
            (job.id, job.token)
            for job in self._running(worker)
            if job.cancel_requested_at is not None
        )

    def _running(self, worker: UUID) -> list[JobRecord]:
        return [
            job for job in self.jobs.values() if job.state is State.RUNNING and job.worker == worker
        ]

    def reap(
        self, workers: Iterable[UUID], cause: str, expired_only: bool, now: datetime
    ) -> list[Reaped]:
        reaped = []
        for worker in workers:
            if worker not in self.leases or (expired_only and self.leases[worker] > now):
                continue
            del self.leases[worker]
            for job in self._running(worker):
                state = self._settle(_after_crash(job, cause), now)
                assert state is not None
                reaped.append(Reaped(job.id, worker, state))
        return reaped

    # Operators

    def cancel(
        self, job_ids: Sequence[UUID], reason: str | None, now: datetime
    ) -> list[Cancellation]:
        answers = {}
        for job_id in dict.fromkeys(job_ids):
            job = self.jobs.get(job_id)
            if job is None:
                answers[job_id] = Cancellation.UNKNOWN
            elif job.state in FINAL:
                answers[job_id] = Cancellation.FINISHED
            elif job.state is State.RUNNING:
                since = job.cancel_requested_at or now
                why = job.reason or reason
                self.jobs[job_id] = replace(job, cancel_requested_at=since, reason=why)
                answers[job_id] = Cancellation.REQUESTED
            else:
                self._end(job, State.CANCELLED, now, reason or "cancelled on request")
                answers[job_id] = Cancellation.CANCELLED
        return [answers[job_id] for job_id in job_ids]

    def replay(self, job_ids: Sequence[UUID], arguments: str | None, now: datetime) -> list[Replay]:
        answers = {
            job_id: self._replay(job_id, arguments, now) for job_id in dict.fromkeys(job_ids)
        }
        return [answers[job_id] for job_id in job_ids]

    def _replay(self, job_id: UUID, arguments: str | None, now: datetime) -> Replay:
        job = self.jobs.get(job_id)
        if job is None:
            return Replay.UNKNOWN
        if job.state is not State.DEAD:
            return Replay.NOT_DEAD
        if job.key is not None:
            hold = self.holds.get((job.task, job.key))
            held = hold is not None and (hold.until is None or hold.until > now)
            if held and hold is not None and hold.job_id != job_id:
                return Replay.KEY_HELD
            self.holds[job.task, job.key] = _Hold(job_id)
        self.jobs[job_id] = JobRecord(
            id=job.id,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            state=State.PENDING,
            run_at=now,
            created_at=job.created_at,
            arguments=job.arguments if arguments is None else arguments,
            token=job.token,
            max_attempts=job.max_attempts,
            max_crashes=job.max_crashes,
            generation=job.generation + 1,
            delivery=job.delivery,
            key=job.key,
            key_window=job.key_window,
            error=job.error,
        )
        return Replay.REPLAYED

    def run_now(self, job_ids: Sequence[UUID], now: datetime) -> list[bool]:
        answers = []
        for job_id in job_ids:
            job = self.jobs.get(job_id)
            pending = job is not None and job.state is State.PENDING
            if pending and job is not None:
                self.jobs[job_id] = replace(job, run_at=min(job.run_at, now))
            answers.append(pending)
        return answers

    def expire(self, now: datetime) -> int:
        past = [
            job
            for job in self.jobs.values()
            if job.state is State.PENDING and job.expires_at is not None and job.expires_at <= now
        ]
        for job in past:
            self._end(job, State.CANCELLED, now, "expired")
        return len(past)

    def purge(self, state: State, before: datetime) -> int:
        past = [
            job.id
            for job in self.jobs.values()
            if job.state is state and job.finished_at is not None and job.finished_at < before
        ]
        for job_id in past:
            del self.jobs[job_id], self.attempts[job_id]
        return len(past)

    def counts(self) -> dict[tuple[str, State], int]:
        counted: dict[tuple[str, State], int] = {}
        for job in self.jobs.values():
            counted[job.queue, job.state] = counted.get((job.queue, job.state), 0) + 1
        return counted


def _place(job: JobRecord) -> tuple[int, datetime, UUID]:
    return (-job.priority, job.run_at, job.id)


def _contenders(drafts: Sequence[Draft]) -> dict[tuple[str, str], Draft]:
    chosen: dict[tuple[str, str], Draft] = {}
    for draft in drafts:
        if draft.key is None:
            continue
        slot = (draft.task, draft.key)
        if slot not in chosen or draft.key_policy is KeyPolicy.REPLACE:
            chosen[slot] = draft
        elif draft.key_policy is KeyPolicy.REJECT:
            raise KeyConflict(draft.task, draft.key, chosen[slot].id)
    return chosen


def _record(draft: Draft, now: datetime) -> JobRecord:
    delay = draft.delay or timedelta(0)
    expiry = draft.expires_at
    if draft.expires_after is not None:
        expiry = now + draft.expires_after
    return JobRecord(
        id=draft.id,
        task=draft.task,
        queue=draft.queue,
        priority=draft.priority,
        state=State.PENDING,
        run_at=draft.run_at or now + delay,
        created_at=now,
        arguments=draft.arguments,
        max_attempts=draft.max_attempts,
        max_crashes=draft.max_crashes,
        delivery=draft.delivery,
        key=draft.key,
        key_window=draft.key_window,
        expires_at=expiry,
    )


def _after_crash(job: JobRecord, cause: str) -> Settlement:
    outcome, state, reason = Outcome.CRASHED, State.PENDING, None
    error: Failure | None = Failure("WorkerCrashed", cause, None, "WorkerCrashed")
    if job.started_at is None:
        outcome, error = Outcome.RELEASED, None
    elif job.delivery is Delivery.AT_MOST_ONCE:
        outcome, state, reason = Outcome.LOST, State.DEAD, "lost"
    return Settlement(
        job_id=job.id, token=job.token, outcome=outcome, state=state, reason=reason, error=error
    )
