"""A worker's lease, as the worker's own clock sees it."""

from __future__ import annotations

from duly.clock import SystemClock

clock = SystemClock()


class LeaseClock:
    """Until when the worker may believe that its jobs are its own.

    The lease is counted from before the renewal was sent, so that it ends here before it ends
    in the database.
    """

    def __init__(self, length: float, sent_at: float | None = None) -> None:
        self.length = length
        self._until = (clock.monotonic() if sent_at is None else sent_at) + length

    def renewed(self, sent_at: float) -> None:
        """A renewal that was sent at this monotonic moment has been confirmed."""
        self._until = max(self._until, sent_at + self.length)

    def remaining(self) -> float:
        """Seconds left; not above zero when it has ended."""
        return self._until - clock.monotonic()
