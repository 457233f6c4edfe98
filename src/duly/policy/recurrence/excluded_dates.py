"""Calendar dates as a set of instants: every second on which a zone's clocks show such a date."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime, time

import msgspec

from duly.policy.recurrence.bits import all_bits
from duly.policy.recurrence.instants import DAY, SECONDS_A_DAY, seconds_between
from duly.policy.recurrence.wall_clock import WallClock
from duly.policy.recurrence.zones import load_zone

_LAST_SECOND = time(23, 59, 59)


def all_of(dates: tuple[date, ...], zone: str) -> WallClock:
    """All instants of these dates (sorted, each once) in the zone, repeated hours included."""
    return WallClock(_WholeDates(dates), load_zone(zone), gap="skip", fold="both")


class _WholeDates(msgspec.Struct, frozen=True):
    """Every second of some dates, as nominal times."""

    dates: tuple[date, ...]

    def at_or_after(self, wall: datetime) -> datetime | None:
        """See NominalTimes."""
        index = bisect_left(self.dates, wall.date())
        if index == len(self.dates):
            return None
        return max(wall, datetime.combine(self.dates[index], time()))

    def at_or_before(self, wall: datetime) -> datetime | None:
        """See NominalTimes."""
        index = bisect_right(self.dates, wall.date())
        if index == 0:
            return None
        return min(wall, datetime.combine(self.dates[index - 1], _LAST_SECOND))

    def count(self, start: datetime, end: datetime) -> int:
        """See NominalTimes."""
        return max(0, self._seconds_before(end) - self._seconds_before(start))

    def mask(self, start: datetime, end: datetime) -> int:
        """See NominalTimes."""
        members = 0
        first, stop = bisect_left(self.dates, start.date()), bisect_right(self.dates, end.date())
        for excluded in self.dates[first:stop]:
            midnight = datetime.combine(excluded, time())
            low = max(0, seconds_between(start, midnight))
            high = seconds_between(start, min(end, midnight + DAY)) - 1
            if low <= high:
                members |= all_bits(low, high)
        return members

    def _seconds_before(self, wall: datetime) -> int:
        index = bisect_left(self.dates, wall.date())
        seconds = index * SECONDS_A_DAY
        if index < len(self.dates) and self.dates[index] == wall.date():
            seconds += seconds_between(datetime.combine(wall.date(), time()), wall)
        return seconds
