"""Rules that follow the clock on a wall: their fires are those of a WallClock."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

from duly.policy.recurrence.rule import RuleValue
from duly.policy.recurrence.wall_clock import WallClock


class WallClockRule(RuleValue, frozen=True):
    """Base of cron and of calendar intervals."""

    @abstractmethod
    def wall_clock(self) -> WallClock:
        """The rule's times in its zone, with the policies that are in force."""

    def next_after(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        return self.wall_clock().next_after(instant)

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        return self.wall_clock().last_at_or_before(instant)

    def count_between(self, after: datetime, until: datetime) -> int:
        """See FireTimes."""
        return self.wall_clock().count_between(after, until)

    def mask_of_day(self, day: datetime) -> int:
        """See FireTimes."""
        return self.wall_clock().mask_of_day(day)
