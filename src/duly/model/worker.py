"""A worker process, as the store knows it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of one worker process. The id is fresh for every boot and after every fork.

    `machine` names the kernel's boot and the pid namespace: a worker there with the same value
    can tell for certain whether process `pid`, started at `process_started`, still lives.
    """

    id: UUID
    name: str
    machine: str
    pid: int
    process_started: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    version: str
    started_at: datetime | None = None
    lease_left: float = 0.0
    """Seconds until the lease ends, by the store's clock; below zero when it has ended."""
