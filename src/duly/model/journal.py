"""The journal: every stored change of a job, written in the transaction that made it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from duly.model.job import State


class Journal(StrEnum):
    """Whether a database keeps one."""

    OFF = "off"
    FULL = "full"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a job, and what its row said right after it.

    `number` grows with every change of one job. `before` is empty for the first entry of a job.
    Where `before` and `after` are the same, the job was given another time (`due`), or asked to
    cancel (`cancelling`). `at` is the database's clock.
    """

    number: int
    job_id: UUID
    generation: int
    token: int
    attempt: int
    before: State | None
    after: State
    due: datetime
    cancelling: bool
    worker: UUID | None
    reason: str | None
    at: datetime
