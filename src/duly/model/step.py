"""Steps: durable pieces inside a job, remembered across crashes, retries and long waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from duly.model.job import Draft

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
"""When a job is due that waits for something without a time limit."""


class StepKind(StrEnum):
    """What a step does."""

    CALL = "call"
    SLEEP = "sleep"
    EVENT = "event"
    JOB = "job"
    VALUE = "value"
    UNDO = "undo"


class StepState(StrEnum):
    """How far a step is. A `done` one never changes again."""

    READY = "ready"
    WAITING = "waiting"
    RETRYING = "retrying"
    FAILED = "failed"
    DONE = "done"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it is recorded; a job has one of each name and key.

    `number` is its place in the order of recording, `attempt` the job's attempt that wrote it,
    `tries` how often its function has been called. `result` is a JSON text. `until` is when a
    sleep or a wait ends, `child_id` the job that it started, `event_id` the event that it got.
    """

    job_id: UUID
    name: str
    key: str
    kind: StepKind
    state: StepState
    number: int
    attempt: int
    tries: int = 0
    fingerprint: str | None = None
    result: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    until: datetime | None = None
    child_id: UUID | None = None
    event_id: str | None = None
    at: datetime | None = None


class StepWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A step to be recorded by the attempt that holds `token`.

    Its `until` becomes `delay` after the store's clock, if that is given. `draft` is a job to be
    stored in the same transaction.
    """

    token: int
    step: Step
    delay: timedelta | None = None
    draft: Draft | None = None


class EventWait(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a job waits for: of this name, of this key if one is given, addressed to it
    or to everybody, not before `since`, and none that it had already."""

    name: str
    key: str | None = None
    since: datetime | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a suspended job waits for: the time of its step, an event, or a job's end."""

    write: StepWrite
    event: EventWait | None = None
    child_id: UUID | None = None


class Recorded(msgspec.Struct, frozen=True):
    """All recorded steps of a job, in order, and the store's clock at that moment."""

    now: datetime
    steps: list[Step]
