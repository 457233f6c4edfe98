"""What a job says about itself while it runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """How far a job is, from 0 to 1."""

    job_id: UUID
    token: int
    fraction: float
    message: str
    at: datetime


class LogLine(msgspec.Struct, frozen=True):
    """One line that a job logged."""

    job_id: UUID
    token: int
    at: datetime
    level: str
    logger: str
    message: str
