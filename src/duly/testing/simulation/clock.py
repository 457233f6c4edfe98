"""The time of a simulation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Time that passes when the simulation says so.

    `pass_time` is what code that waits sees: both readings move. `jump` moves the hands on the
    wall only, while nothing is under way that measures time.
    """

    def __init__(self, start: datetime = START) -> None:
        self._base = start.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """See Clock.now."""
        return self._base + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """See Clock.monotonic."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """See Clock.sleep: it takes no time at all."""
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        self._elapsed += seconds

    def jump(self, moment: datetime) -> None:
        """Make it that time; never an earlier one."""
        self._base += max(moment - self.now(), timedelta(0))
