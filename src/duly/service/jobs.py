"""Jobs: look, list, explain, cancel, retry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from duly.errors import InvalidOption, UnknownJob
from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State, Status
from duly.model.query import Cancellation, JobFilter, Replay
from duly.model.report import LogLine, Progress
from duly.model.step import Step
from duly.model.worker import Worker
from duly.service.explain import Explanation, Surroundings, explain
from duly.service.timeline import Happening, timeline

if TYPE_CHECKING:
    from duly.store.protocol import Store

LARGEST_PAGE = 10_000
SCAN_STEP = 1_000
LONGEST_SCAN = 100_000
LONGEST_TIMELINE = 10_000

PENDING_STATUSES = frozenset({Status.SCHEDULED, Status.READY, Status.RETRYING})


class Page(msgspec.Struct, frozen=True):
    """Jobs, newest first, and the cursor of the next page; None when there is none.

    A page may hold fewer jobs than asked for although another follows: when few of very many
    jobs match, the search stops now and then.
    """

    jobs: list[JobRecord]
    next: UUID | None


class JobDetail(msgspec.Struct, frozen=True):
    """Everything known of one job at one moment."""

    job: JobRecord
    attempts: list[Attempt]
    explanation: Explanation
    worker: Worker | None
    progress: Progress | None
    steps: list[Step]
    now: datetime


class Retried(StrEnum):
    """What a request to run a job again, or sooner, came to."""

    REPLAYED = "replayed"
    HURRIED = "hurried"
    READY = "ready"
    RUNNING = "running"
    HELD_BACK = "held_back"
    KEY_HELD = "key_held"
    FLOW_ENDING = "flow_ending"
    FINISHED = "finished"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class Jobs:
    """The use cases about jobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, job_id: UUID) -> JobRecord:
        """The job; UnknownJob when there is none."""
        (record,) = self._store.run(self._store.get([job_id]))
        if record is None:
            raise UnknownJob(job_id)
        return record

    def detail(self, job_id: UUID) -> JobDetail:
        """The job with its attempts and what it is waiting for; UnknownJob when there is none."""
        job = self.get(job_id)
        around = self.surroundings()
        now = datetime.now(UTC)
        steps = self._steps(job)
        return JobDetail(
            job=job,
            attempts=self._store.run(self._store.attempts(job_id)),
            explanation=explain(job, now, around, steps),
            worker=around.worker(job.worker),
            progress=self._store.run(self._store.progress(job_id)),
            steps=steps,
            now=now,
        )

    def explain(self, job_id: UUID) -> Explanation:
        """What the job is waiting for, or what became of it; UnknownJob when there is none."""
        job = self.get(job_id)
        return explain(job, datetime.now(UTC), self.surroundings(), self._steps(job))

    def _steps(self, job: JobRecord) -> list[Step]:
        return self._store.run(self._store.steps(job.id)).steps if job.stepped else []

    def logs(self, job_id: UUID) -> list[LogLine]:
        """What the job has logged so far; UnknownJob when there is none."""
        self.get(job_id)
        return self._store.run(self._store.log_lines(job_id))

    def timeline(self, job_id: UUID) -> list[Happening]:
        """What happened to the job, in order; UnknownJob when there is none."""
        job = self.get(job_id)
        return timeline(
            job,
            self._store.run(self._store.attempts(job_id)),
            self._steps(job),
            self._store.run(self._store.journal(LONGEST_TIMELINE, job_ids=[job_id])),
        )

    def surroundings(self) -> Surroundings:
        """What the fate of jobs depends on besides themselves."""
        return Surroundings(
            queues={queue.name: queue for queue in self._store.run(self._store.queues())},
            workers=self._store.run(self._store.workers()),
            catalogued=frozenset(entry.name for entry in self._store.run(self._store.catalogue())),
        )

    def page(
        self,
        criteria: JobFilter,
        statuses: Iterable[Status] | None = None,
        limit: int = 50,
        before: UUID | None = None,
    ) -> Page:
        """Jobs that match, newest first, below the cursor `before`.

        `statuses`, when given, replace the states of `criteria`.
        """
        if not 1 <= limit <= LARGEST_PAGE:
            raise InvalidOption(
                "limit", f"must be a whole number from 1 to {LARGEST_PAGE:,}; got {limit}"
            )
        if statuses is None:
            return self._page(criteria, limit, before)
        wanted = frozenset(statuses)
        criteria = msgspec.structs.replace(criteria, states=_states(wanted))
        if not wanted & PENDING_STATUSES or wanted >= PENDING_STATUSES:
            return self._page(criteria, limit, before)
        return self._search(criteria, wanted, limit, before)

    def cancel(self, job_ids: Sequence[UUID], reason: str | None = None) -> list[Cancellation]:
        """Cancel what has not started, ask for it where it runs; answers in order."""
        return self._store.run(self._store.cancel(job_ids, reason))

    def retry(self, job_ids: Sequence[UUID]) -> list[Retried]:
        """Replay dead jobs, and run scheduled and retrying ones now; answers in order."""
        now = datetime.now(UTC)
        records = self._store.run(self._store.get(job_ids))
        return [
            Retried.UNKNOWN if record is None else self._retry(record, now) for record in records
        ]

    def _retry(self, job: JobRecord, now: datetime) -> Retried:
        if job.state is State.DEAD:
            (replayed,) = self._store.run(self._store.replay([job.id]))
            return _REPLAYED[replayed]
        if job.state is State.RUNNING:
            return Retried.RUNNING
        if job.state in (State.BLOCKED, State.WAITING):
            return Retried.HELD_BACK
        if job.state is not State.PENDING:
            return Retried.FINISHED
        if job.run_at <= now:
            # Its place in the queue follows from run_at: moved to now, it would lose it.
            return Retried.READY
        (hurried,) = self._store.run(self._store.run_now([job.id]))
        return Retried.HURRIED if hurried else Retried.CHANGED

    def _page(self, criteria: JobFilter, limit: int, before: UUID | None) -> Page:
        found = self._store.run(self._store.find(criteria, limit + 1, before))
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def _search(
        self, criteria: JobFilter, wanted: frozenset[Status], limit: int, before: UUID | None
    ) -> Page:
        """The store knows no statuses: pending jobs are told apart here, some at a time."""
        now = datetime.now(UTC)
        found: list[JobRecord] = []
        for seen, record in enumerate(scan(self._store, criteria, before), start=1):
            if record.status(now) in wanted:
                if len(found) == limit:
                    return Page(found, found[-1].id)
                found.append(record)
            if seen == LONGEST_SCAN:
                return Page(found, record.id)
        return Page(found, None)


def scan(store: Store, criteria: JobFilter, before: UUID | None = None) -> Iterator[JobRecord]:
    """Every job that matches, newest first, read some at a time."""
    while True:
        records = store.run(store.find(criteria, SCAN_STEP, before))
        yield from records
        if len(records) < SCAN_STEP:
            return
        before = records[-1].id


def statuses_of(names: Iterable[str]) -> frozenset[Status]:
    """Statuses by name; `pending` stands for scheduled, ready and retrying."""
    wanted: set[Status] = set()
    for name in names:
        if name == State.PENDING:
            wanted |= PENDING_STATUSES
            continue
        try:
            wanted.add(Status(name))
        except ValueError:
            known = ", ".join([State.PENDING.value, *(status.value for status in Status)])
            raise InvalidOption("status", f"{name!a} is not one: known are {known}") from None
    return frozenset(wanted)


def _states(statuses: frozenset[Status]) -> frozenset[State]:
    return frozenset(
        State.PENDING if status in PENDING_STATUSES else State(status.value) for status in statuses
    )


_REPLAYED = {
    Replay.REPLAYED: Retried.REPLAYED,
    Replay.KEY_HELD: Retried.KEY_HELD,
    Replay.FLOW_ENDING: Retried.FLOW_ENDING,
    Replay.NOT_DEAD: Retried.CHANGED,
    Replay.UNKNOWN: Retried.UNKNOWN,
}
