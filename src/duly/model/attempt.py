"""An attempt: one run of a job by one worker."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class Outcome(StrEnum):
    """How an attempt ended. `duly.policy.states` says which outcomes are charged."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"
    SNOOZED = "snoozed"
    SUSPENDED = "suspended"
    UNDONE = "undone"


class Failure(msgspec.Struct, frozen=True, gc=False):
    """What an attempt died of. Equal fingerprints mean the same fault."""

    type: str
    message: str
    traceback: str | None = None
    fingerprint: str | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One finished attempt. `number` repeats when the attempt before was not charged."""

    job_id: UUID
    token: int
    number: int
    generation: int
    worker: UUID | None
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    error: Failure | None = None
