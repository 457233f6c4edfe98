"""A job: what is submitted, what is stored, and how its state is shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, overload
from uuid import UUID

import msgspec
from msgspec.structs import replace

from duly.model.attempt import Failure
from duly.model.identifiers import id_of


class Priority(IntEnum):
    """Names for common priorities; any integer from 0 to 100 is one."""

    LOW = 1
    NORMAL = 5
    HIGH = 10
    URGENT = 20


class State(StrEnum):
    """What is stored. `duly.policy.states` says how a job gets from one to another."""

    PENDING = "pending"
    BLOCKED = "blocked"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Status(StrEnum):
    """What a person is shown: a pending job is told apart by its time and its attempts."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Delivery(StrEnum):
    """What happens to an attempt that started and did not report."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    TRANSACTIONAL = "transactional"


class KeyPolicy(StrEnum):
    """What a submission gets whose key is held by another job."""

    RETURN = "return"
    REPLACE = "replace"
    REJECT = "reject"


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job as it is submitted.

    It is due at `run_at`, else `delay` after the store's clock at submission, else at once.
    The same holds for `expires_at` and `expires_after`. Durations without a type are seconds.
    """

    id: UUID
    task: str
    arguments: str
    queue: str = "default"
    priority: int = Priority.NORMAL
    run_at: datetime | None = None
    delay: timedelta | None = None
    key: str | None = None
    key_policy: KeyPolicy = KeyPolicy.RETURN
    key_window: float | None = None
    owner: str | None = None
    tenant: str | None = None
    max_attempts: int = 1
    max_crashes: int = 3
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    timeout: float | None = None
    expires_at: datetime | None = None
    expires_after: timedelta | None = None
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    parent_id: UUID | None = None
    flow_id: UUID | None = None
    schedule_id: str | None = None
    scheduled_for: datetime | None = None

    def stored(self, now: datetime) -> JobRecord:
        """The pending job that this becomes when it is stored at `now`."""
        run_at = self.run_at
        if run_at is None:
            run_at = now if self.delay is None else now + self.delay
        expires_at = self.expires_at
        if expires_at is None and self.expires_after is not None:
            expires_at = now + self.expires_after
        return JobRecord(
            id=self.id,
            task=self.task,
            queue=self.queue,
            priority=self.priority,
            state=State.PENDING,
            run_at=run_at,
            created_at=now,
            arguments=self.arguments,
            max_attempts=self.max_attempts,
            max_crashes=self.max_crashes,
            delivery=self.delivery,
            key=self.key,
            key_window=self.key_window,
            owner=self.owner,
            tenant=self.tenant,
            timeout=self.timeout,
            expires_at=expires_at,
            tags=self.tags,
            metadata=self.metadata,
            parent_id=self.parent_id,
            flow_id=self.flow_id,
            schedule_id=self.schedule_id,
            scheduled_for=self.scheduled_for,
        )


class Alike(Sequence[Draft]):
    """Drafts without a key that differ in nothing but their ids, here in 16 bytes each, and their
    arguments. Each is made whenever it is asked for: most are stored without that."""

    __slots__ = ("arguments", "ids", "template")

    def __init__(self, template: Draft, ids: Sequence[bytes], arguments: Sequence[str]) -> None:
        self.template = template
        self.ids = ids
        self.arguments = arguments

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Draft: ...
    @overload
    def __getitem__(self, place: slice) -> Alike: ...
    def __getitem__(self, place: int | slice) -> Draft | Alike:
        ids, arguments = self.ids[place], self.arguments[place]
        if isinstance(ids, bytes):
            return replace(self.template, id=id_of(ids), arguments=arguments)
        return Alike(self.template, ids, arguments)


def joined(batches: Sequence[Sequence[Draft]]) -> Sequence[Draft]:
    """The drafts of all batches, one after another; without making any where all are alike."""
    first = batches[0]
    if isinstance(first, Alike):
        template = first.template
        ids: list[bytes] = []
        arguments: list[str] = []
        for batch in batches:
            if not isinstance(batch, Alike) or batch.template is not template:
                break
            ids += batch.ids
            arguments += batch.arguments
        else:
            return Alike(template, ids, arguments)
    return [draft for batch in batches for draft in batch]


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job as it is stored, at one moment.

    `arguments`, `metadata` and `result` are JSON texts; durations are seconds. `token` counts
    claims, `attempt` counts charged attempts (the running one included), `generation` counts
    replays from 1. `started_at` is empty while an at-most-once job is claimed but not begun.
    `stepped` says that steps are recorded; `undos` counts its compensations; while these run,
    `undoing` is the final state that follows.
    """

    id: UUID
    task: str
    queue: str
    priority: int
    state: State
    run_at: datetime
    created_at: datetime
    arguments: str
    token: int = 0
    attempt: int = 0
    max_attempts: int = 1
    crashes: int = 0
    max_crashes: int = 3
    generation: int = 1
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    alone: bool = False
    key: str | None = None
    key_window: float | None = None
    owner: str | None = None
    tenant: str | None = None
    timeout: float | None = None
    expires_at: datetime | None = None
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    parent_id: UUID | None = None
    flow_id: UUID | None = None
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    worker: UUID | None = None
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    reason: str | None = None
    stepped: bool = False
    undos: int = 0
    undoing: State | None = None
    error: Failure | None = None

    def status(self, now: datetime) -> Status:
        """What a person is shown at `now`."""
        if self.state is not State.PENDING:
            return Status(self.state.value)
        if self.attempt > 0 and self.run_at > now:
            return Status.RETRYING
        return Status.SCHEDULED if self.run_at > now else Status.READY


def plain(record: JobRecord) -> dict[str, Any]:
    """The record as JSON-ready values, for people and programs alike."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    for name in ("arguments", "metadata", "result"):
        text = values[name]
        values[name] = None if text is None else msgspec.json.decode(text)
    return values
