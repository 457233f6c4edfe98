"""What can be asked about jobs, and what the answers look like."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import overload
from uuid import UUID

import msgspec

from duly.model.job import Draft, JobRecord, State


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; every condition given must hold, and all of `tags`."""

    states: frozenset[State] | None = None
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    owner: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    flow_id: UUID | None = None
    parent_id: UUID | None = None
    schedule_id: str | None = None
    fingerprint: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    finished_from: datetime | None = None
    finished_before: datetime | None = None


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What a submission came to: a new job, or the one that holds its key.

    A new job is told by its draft and the moment of storing: most submitters never look at it.
    """

    source: JobRecord | Draft
    created: bool
    replaced: bool = False
    stored_at: datetime | None = None

    @property
    def job(self) -> JobRecord:
        """The job as it was stored, or found."""
        source = self.source
        if isinstance(source, JobRecord):
            return source
        assert self.stored_at is not None
        return source.stored(self.stored_at)


class Stored(Sequence[Enqueued]):
    """What a submission came to that was nothing but new jobs. Each is made whenever it is asked
    for."""

    __slots__ = ("_drafts", "at")

    def __init__(self, drafts: Sequence[Draft], at: datetime) -> None:
        self._drafts = drafts
        self.at = at

    def __len__(self) -> int:
        return len(self._drafts)

    @overload
    def __getitem__(self, place: int) -> Enqueued: ...
    @overload
    def __getitem__(self, place: slice) -> Stored: ...
    def __getitem__(self, place: int | slice) -> Enqueued | Stored:
        if isinstance(place, slice):
            return Stored(self._drafts[place], self.at)
        return Enqueued(self._drafts[place], True, False, self.at)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can start now; no queues means every queue.

    Of `limit` jobs, `longest_waiting` go to those due for longest, whatever their priority. With
    `expiring`, due jobs that have expired are cancelled; without, they may be left where they are.
    With `due_by`, a moment a little ahead, what is due by then is claimed, each as of its own time
    if that is not past.
    """

    worker: UUID
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    limit: int
    longest_waiting: int = 0
    expiring: bool = True
    due_by: datetime | None = None


class Due(msgspec.Struct, frozen=True):
    """When a job is due: the moment, and in how many seconds by the store's clock; negative where
    that was so many seconds ago."""

    at: datetime
    seconds: float


class Cancellation(StrEnum):
    """What a request to cancel came to."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class Replay(StrEnum):
    """What a request to replay came to."""

    REPLAYED = "replayed"
    NOT_DEAD = "not_dead"
    KEY_HELD = "key_held"
    FLOW_ENDING = "flow_ending"
    UNKNOWN = "unknown"


class Reaped(msgspec.Struct, frozen=True):
    """A job taken back from a worker that is gone, and where it went."""

    job_id: UUID
    worker: UUID
    state: State


class Count(msgspec.Struct, frozen=True):
    """How many jobs of one queue are in one state."""

    queue: str
    state: State
    jobs: int


class Waiting(msgspec.Struct, frozen=True):
    """A queue with due jobs, and since when the one that waits for longest is due."""

    queue: str
    since: datetime


class QueueState(msgspec.Struct, frozen=True):
    """A queue's switch: whether its jobs may be claimed, and why not."""

    name: str
    paused: bool
    note: str | None = None
