"""What a supervisor or guardian and a worker process say to each other."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.runtime.settings import WorkerSettings


class Orders(msgspec.Struct, frozen=True, tag=True):
    """To a new worker process: who it is and what to do."""

    app: str
    url: str | None
    worker: UUID
    registered_at: float
    lease_board: int
    settings: WorkerSettings
    log_level: int
    log_format: str


class Lost(msgspec.Struct, frozen=True, tag=True):
    """To a worker: it was reaped; its jobs are somebody else's."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To a worker: finish within the grace period and end."""

    grace: float


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """From a worker: its event loop turns. `deadline` is the boot clock's moment at which the
    first of its jobs reaches its hard time limit."""

    jobs: int
    finished: int
    deadline: float | None


class Charge(msgspec.Struct, frozen=True, tag=True):
    """To a guardian: which program's lease to keep, and in which store."""

    url: str
    schema: str
    worker: UUID
    process: int
    lease: float
    lease_board: int


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """To a guardian: the worker ends in order; nothing is to be taken back."""


ToWorker = Orders | Lost | Drain
