"""How a worker works."""

from __future__ import annotations

import msgspec


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker process is told. Durations are seconds; no queues means every queue."""

    queues: tuple[str, ...] = ()
    concurrency: int = 10
    lease: float = 15.0
    grace: float = 25.0
    poll: float = 10.0
    fair_share: float = 0.05
    payload_limit: int = 1024 * 1024
    max_jobs: int | None = None
    max_memory: int | None = None
