"""Where time comes from: the system, or a hand-wound clock for tests and simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    def sleep(self, seconds: float) -> None:
        """Return after that time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(BOOT_CLOCK)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2030, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Move forward by so much."""
        self.advance(timedelta(seconds=seconds))

    def advance(self, step: timedelta) -> datetime:
        """Move forward by `step` and return the new instant."""
        self._now += step
        self._elapsed += step.total_seconds()
        return self._now


# CLOCK_MONOTONIC stands still in suspend on Linux; a lease does not.
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RuntimeClock:
    """The clock that workers and schedulers of this process measure by: the machine's, unless a
    simulation has put another in its place."""

    def __init__(self) -> None:
        self._source: Clock = SystemClock()

    def monotonic(self) -> float:
        """See Clock.monotonic."""
        return self._source.monotonic()

    def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        self._source.sleep(seconds)

    @contextmanager
    def replaced(self, clock: Clock) -> Iterator[None]:
        """Measure by another clock within the block."""
        before, self._source = self._source, clock
        try:
            yield
        finally:
            self._source = before


runtime_clock = RuntimeClock()
