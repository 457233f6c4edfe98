"""A history: what clients were told, what the store wrote down, and what user code did.

The three records are kept by different parties, so that no one of them can hide a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from duly.model.attempt import Attempt
from duly.model.event import EventRecord
from duly.model.flow import FlowRecord, NodeView
from duly.model.job import JobRecord
from duly.model.journal import JournalEntry
from duly.model.query import JobFilter
from duly.model.schedule import ScheduleRecord, Tick
from duly.model.step import Step

if TYPE_CHECKING:
    from duly.store.protocol import Store

PAGE = 1_000


class Told(StrEnum):
    """What a client learnt of its request. `unknown`: the connection broke before the answer."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a client's log: the job it was answered with, or the id it had asked for."""

    job_id: UUID
    told: Told = Told.OK
    key: str | None = None
    at: datetime | None = None


class Emission(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a client's log: an event that it emitted."""

    event_id: str
    told: Told = Told.OK


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a job's code, or of one of its steps, did, as that code noted it.

    `key` is the idempotency key that it was handed. `ended` is empty when it did not get to its
    end; `result` is what it returned then, as JSON. Of a step, `recorded` says that the code was
    told so. Of a transactional task only effects that were committed count. A history has them in
    the order in which they began.
    """

    job_id: UUID
    token: int
    attempt: int = 1
    key: str | None = None
    node: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    result: str | None = None
    step: str | None = None
    recorded: bool = False


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The death of a worker process, as the one who killed it saw it."""

    worker: UUID
    at: datetime


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the invariants are judged by.

    `submissions` None: what clients were told is not known, and nothing is asked of it; the same
    holds for `effects`. `settled` says that faults have ended and that whatever is due should be
    done. `timed` says that the journal's times and the jobs' are of one clock. Once faults had
    ended, at `quiet_since`, due jobs had to start within `start_within` seconds. Jobs of workers
    that were lost had to be taken back within `taken_back_within` seconds.
    """

    now: datetime
    jobs: Sequence[JobRecord] = ()
    attempts: Sequence[Attempt] = ()
    journal: Sequence[JournalEntry] = ()
    schedules: Sequence[ScheduleRecord] = ()
    ticks: Sequence[Tick] = ()
    flows: Sequence[FlowRecord] = ()
    nodes: dict[UUID, list[NodeView]] = {}
    steps: Sequence[Step] = ()
    events: Sequence[EventRecord] = ()
    submissions: Sequence[Submission] | None = None
    emissions: Sequence[Emission] = ()
    effects: Sequence[Effect] | None = None
    losses: Sequence[Loss] = ()
    settled: bool = True
    timed: bool = True
    quiet_since: datetime | None = None
    start_within: float | None = None
    taken_back_within: float | None = None


def read_history(
    store: Store,
    *,
    submissions: Sequence[Submission] | None = None,
    emissions: Sequence[Emission] = (),
    effects: Sequence[Effect] | None = None,
) -> History:
    """What the store says of all its jobs, beside what the others say. Nothing should be written
    to it meanwhile. Other fields can be set with `msgspec.structs.replace`."""
    jobs = list(_jobs(store))
    schedules = list(_schedules(store))
    flows = list(_flows(store))
    distinct = list(dict.fromkeys(job.id for job in jobs))
    return History(
        now=store.run(store.clock()),
        jobs=jobs,
        attempts=[each for job_id in distinct for each in store.run(store.attempts(job_id))],
        journal=list(_journal(store)),
        schedules=schedules,
        ticks=[tick for schedule in schedules for tick in _ticks(store, schedule.id)],
        flows=flows,
        nodes={flow.id: store.run(store.flow_nodes(flow.id)) for flow in flows},
        steps=[
            step for job in jobs if job.stepped for step in store.run(store.steps(job.id)).steps
        ],
        events=list(_events(store)),
        submissions=submissions,
        emissions=emissions,
        effects=effects,
    )


def _jobs(store: Store) -> Iterator[JobRecord]:
    cursor: UUID | None = None
    while page := store.run(store.find(JobFilter(), PAGE, cursor)):
        # A job that is in two places must not be cut in two by the end of a page.
        if len(page) == PAGE and page[-1].id != page[0].id:
            page = [job for job in page if job.id != page[-1].id]
        yield from page
        cursor = page[-1].id


def _journal(store: Store) -> Iterator[JournalEntry]:
    cursor = 0
    while page := store.run(store.journal(PAGE, cursor)):
        yield from page
        cursor = page[-1].number


def _schedules(store: Store) -> Iterator[ScheduleRecord]:
    cursor: str | None = None
    while page := store.run(store.schedules(PAGE, cursor)):
        yield from page
        cursor = page[-1].id


def _ticks(store: Store, schedule_id: str) -> Iterator[Tick]:
    cursor: Tick | None = None
    while page := store.run(store.ticks(schedule_id, PAGE, cursor)):
        yield from page
        cursor = page[-1]


def _flows(store: Store) -> Iterator[FlowRecord]:
    cursor: UUID | None = None
    while page := store.run(store.flows(PAGE, before=cursor)):
        yield from page
        cursor = page[-1].id


def _events(store: Store) -> Iterator[EventRecord]:
    cursor: str | None = None
    while page := store.run(store.events(PAGE, before=cursor)):
        yield from page
        cursor = page[-1].id
