"""What a job is waiting for, or what became of it, in one plain sentence.

A pure function of what is known at one moment; `duly.service.jobs` gathers that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from duly.model.job import JobRecord, State
from duly.model.query import QueueState
from duly.model.step import Step, StepKind, StepState
from duly.model.worker import Worker
from duly.service.wording import absolute, counted, relative, span

LONGEST_MESSAGE = 200
SOON = timedelta(seconds=2)


class Cause(StrEnum):
    """Why a job is where it is, for programs; the sentence is for people."""

    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    EXPIRED = "expired"
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    NO_FREE_WORKER = "no_free_worker"
    BLOCKED = "blocked"
    WAITING = "waiting"
    RUNNING = "running"
    STARTING = "starting"
    CANCELLING = "cancelling"
    WORKER_LOST = "worker_lost"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Explanation(msgspec.Struct, frozen=True):
    """The answer to "what happened, and what is it waiting for?"."""

    cause: Cause
    sentence: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's fate depends on besides itself.

    `workers` are all registered ones, `catalogued` the names of all tasks ever published.
    """

    queues: Mapping[str, QueueState]
    workers: Sequence[Worker]
    catalogued: frozenset[str]

    def worker(self, worker_id: UUID | None) -> Worker | None:
        """The worker of this id, if it is registered."""
        return next((each for each in self.workers if each.id == worker_id), None)


def is_live(worker: Worker) -> bool:
    """Whether the worker's lease holds."""
    return worker.lease_left > 0


def serves(worker: Worker, queue: str) -> bool:
    """Whether the worker takes jobs from the queue; one that names none takes from all."""
    return not worker.queues or queue in worker.queues


def explain(
    job: JobRecord, now: datetime, around: Surroundings, steps: Sequence[Step] = ()
) -> Explanation:
    """What happened to the job, or what it is waiting for at `now`, given its recorded steps."""
    if job.state is State.PENDING:
        return _pending(job, now, around)
    if job.state is State.RUNNING:
        return _running(job, now, around)
    if job.state is State.BLOCKED:
        where = "" if job.flow_id is None else f": duly flow show {job.flow_id}"
        return Explanation(Cause.BLOCKED, f"waits for other jobs of its flow{where}")
    if job.state is State.WAITING:
        return _waiting(job, now, steps)
    return _finished(job, now)


def _waiting(job: JobRecord, now: datetime, steps: Sequence[Step]) -> Explanation:
    waits = [_wait(step, now) for step in steps if step.state in _OPEN]
    before = f"is to be {job.undoing.value}, and undoes first: " if job.undoing else ""
    what = " and ".join(waits) or "waits for an event or the end of a sleep"
    return Explanation(Cause.WAITING, f"{before}suspended by its own code: {what}")


_OPEN = (StepState.WAITING, StepState.RETRYING)


def _wait(step: Step, now: datetime) -> str:
    limit = "" if step.until is None else f" until {absolute(step.until)}"
    match step.kind:
        case StepKind.SLEEP if step.until is not None:
            return f"sleeps until {absolute(step.until)} ({relative(step.until, now)})"
        case StepKind.EVENT:
            return f"waits for event {step.name.removeprefix('event:')!r}{limit}"
        case StepKind.JOB | StepKind.UNDO:
            return f"waits for job {step.child_id} ({step.name.partition(':')[2]})"
        case _:
            return f"step {step.name!r} failed {counted(step.tries, 'time')}, tried again{limit}"


def _pending(job: JobRecord, now: datetime, around: Surroundings) -> Explanation:
    if job.expires_at is not None and job.expires_at <= now:
        return Explanation(
            Cause.EXPIRED,
            f"expired {relative(job.expires_at, now)}, before it could start: the next worker "
            "that looks cancels it",
        )
    if job.run_at > now:
        return _early(job, now, around)
    since = f"ready for {span(now - job.run_at)}"
    queue = around.queues.get(job.queue)
    if queue is not None and queue.paused:
        return Explanation(Cause.QUEUE_PAUSED, f"{since}, but {_paused(queue)}")
    live = [worker for worker in around.workers if is_live(worker)]
    if not live:
        return Explanation(Cause.NO_WORKER, f"{since}, but no worker is running")
    serving = [worker for worker in live if serves(worker, job.queue)]
    if not serving:
        return Explanation(
            Cause.NO_WORKER_FOR_QUEUE, f"{since}, but no live worker serves queue {job.queue!r}"
        )
    able = [worker for worker in serving if job.task in worker.tasks]
    if not able:
        never = "" if job.task in around.catalogued else ", and none has ever published it"
        return Explanation(
            Cause.NO_WORKER_FOR_TASK,
            f"{since}, but no live worker of queue {job.queue!r} knows task {job.task!r}{never}",
        )
    if now - job.run_at < SOON:
        return Explanation(Cause.NO_FREE_WORKER, f"{since}: about to be started")
    workers = (
        "the worker that could run it is"
        if len(able) == 1
        else (f"the {counted(len(able), 'worker')} that could run it are")
    )
    return Explanation(Cause.NO_FREE_WORKER, f"{since}: {workers} busy with other jobs")


def _early(job: JobRecord, now: datetime, around: Surroundings) -> Explanation:
    queue = around.queues.get(job.queue)
    besides = f"; besides, {_paused(queue)}" if queue is not None and queue.paused else ""
    if job.attempt > 0:
        failed = f"attempt {job.attempt} of {job.max_attempts} failed"
        error = f" with {_error(job)}" if job.error is not None else ""
        return Explanation(
            Cause.RETRYING,
            f"retrying in {span(job.run_at - now)} after {failed}{error}{besides}",
        )
    return Explanation(
        Cause.SCHEDULED, f"waits for {absolute(job.run_at)} ({relative(job.run_at, now)}){besides}"
    )


def _running(job: JobRecord, now: datetime, around: Surroundings) -> Explanation:
    worker = around.worker(job.worker)
    if worker is None:
        return Explanation(
            Cause.WORKER_LOST,
            "its worker is gone: another one takes the job back within moments, if one is running",
        )
    if not is_live(worker):
        ended = span(timedelta(seconds=worker.lease_left))
        return Explanation(
            Cause.WORKER_LOST,
            f"the lease of its worker {worker.name} ended {ended} ago: "
            "another one takes the job back within moments, if one is running",
        )
    if job.started_at is None:
        return Explanation(Cause.STARTING, f"claimed by worker {worker.name}, about to start")
    running = (
        f"running on worker {worker.name} since {absolute(job.started_at)} "
        f"({span(now - job.started_at)}), attempt {job.attempt} of {job.max_attempts}"
    )
    if job.cancel_requested_at is not None:
        asked = relative(job.cancel_requested_at, now)
        return Explanation(Cause.CANCELLING, f"{running}; it was asked to stop {asked}")
    return Explanation(Cause.RUNNING, running)


def _finished(job: JobRecord, now: datetime) -> Explanation:
    finished = job.finished_at or now
    when = f"{absolute(finished)} ({relative(finished, now)})"
    if job.state is State.SUCCEEDED:
        took = f", after {span(finished - job.started_at)}" if job.started_at else ""
        return Explanation(
            Cause.SUCCEEDED,
            f"succeeded at {when}{took}, in attempt {job.attempt} of {job.max_attempts}",
        )
    if job.state is State.CANCELLED:
        reason = _short(job.reason or "cancelled on request")
        if reason.startswith("cancelled"):
            return Explanation(Cause.CANCELLED, f"{reason}, at {when}")
        return Explanation(Cause.CANCELLED, f"cancelled at {when}: {reason}")
    tries = (
        f"attempt {job.attempt} of {job.max_attempts}"
        if job.attempt
        else counted(job.crashes, "crash", "crashes")
    )
    reason = f", {_short(job.reason)}" if job.reason else ""
    error = f": {_error(job)}" if job.error is not None else ""
    return Explanation(Cause.DEAD, f"dead since {when}, after {tries}{reason}{error}")


def _paused(queue: QueueState) -> str:
    note = f": {_short(queue.note)}" if queue.note else ""
    return f"queue {queue.name!r} is paused{note}"


def _error(job: JobRecord) -> str:
    if job.error is None:
        return "no error"
    message = _short(job.error.message)
    return f"{job.error.type}: {message}" if message else job.error.type


def _short(text: str) -> str:
    """The first line, cut where it is long."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}..."
