"""Where time comes from: the system, or a hand-wound clock for tests and simulation."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock instants and of monotonic seconds."""

    def now(self) -> datetime:
        """The current instant, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while a laptop sleeps."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(BOOT_CLOCK)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2030, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, step: timedelta) -> datetime:
        """Move forward by `step` and return the new instant."""
        self._now += step
        self._elapsed += step.total_seconds()
        return self._now


# CLOCK_MONOTONIC stands still in suspend on Linux; a lease does not.
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
