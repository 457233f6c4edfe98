"""A parsed cron expression: a set of nominal times, searched by calendar arithmetic.

Cost of a search: one look at each month passed over. An expression matches some month of the
Gregorian calendar, which repeats every 400 years, or the parser has refused it; so a search ends,
in practice within 40 years (29 February on one weekday, across 2100), and at the latest where the
years served end.
"""

# ruff: noqa: DTZ001 - nominal times are times on the wall: they have no time zone.

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache

import msgspec

from duly.policy.recurrence.bits import (
    all_bits,
    count_below,
    first_from,
    last_up_to,
    values_of,
)
from duly.policy.recurrence.cron_days import DaysOfMonth, DaysOfWeek, matching_days
from duly.policy.recurrence.instants import (
    DAY,
    EARLIEST_YEAR,
    LATEST_YEAR,
    SECOND,
    seconds_between,
)

FIRST_TIME = datetime(EARLIEST_YEAR, 1, 1)
LAST_TIME = datetime(LATEST_YEAR, 12, 31, 23, 59, 59)
"""The first and the last nominal time there can be."""

_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronExpression(msgspec.Struct, frozen=True):
    """What a cron text means. Seconds, minutes, hours and months are sets of bits (see `bits`).

    `fixed_time`: neither the minute nor the hour field contains `*`; such a schedule means times
    of day, and is not lost in a gap nor doubled in an overlap unless it asks for that.
    """

    seconds: int
    minutes: int
    hours: int
    months: int
    days_of_month: DaysOfMonth
    days_of_week: DaysOfWeek
    fixed_time: bool

    def ever_matches(self) -> bool:
        """Whether any date of the calendar matches. Exact: all kinds of month are looked at."""
        return any(
            matching_days(self.days_of_month, self.days_of_week, first_weekday, length)
            for month in values_of(self.months)
            for length in ((29, 28) if month == 2 else (_LENGTHS[month],))
            for first_weekday in range(7)
        )

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The least nominal time that is not before `wall`, or None past the years served."""
        year, month, day = wall.year, wall.month, wall.day
        if not EARLIEST_YEAR <= year <= LATEST_YEAR:
            return self.at_or_after(FIRST_TIME) if year < EARLIEST_YEAR else None
        days = self._days(year, month) >> day
        if days & 1:
            time = self._time_at_or_after(wall.hour, wall.minute, wall.second)
            if time is not None:
                return datetime(year, month, day, *time)
        days = days >> 1 << (day + 1)
        while not days:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > LATEST_YEAR:
                return None
            days = self._days(year, month)
        time = first_from(self.hours, 0), first_from(self.minutes, 0), first_from(self.seconds, 0)
        return datetime(year, month, first_from(days, 0), *time)

    def at_or_before(self, wall: datetime) -> datetime | None:
        """The greatest nominal time that is not after `wall`, or None before the years served."""
        year, month, day = wall.year, wall.month, wall.day
        if not EARLIEST_YEAR <= year <= LATEST_YEAR:
            return self.at_or_before(LAST_TIME) if year > LATEST_YEAR else None
        days = self._days(year, month)
        if days >> day & 1:
            time = self._time_at_or_before(wall.hour, wall.minute, wall.second)
            if time is not None:
                return datetime(year, month, day, *time)
        days &= all_bits(0, day - 1)
        while not days:
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if year < EARLIEST_YEAR:
                return None
            days = self._days(year, month)
        time = (
            last_up_to(self.hours, 23),
            last_up_to(self.minutes, 59),
            last_up_to(self.seconds, 59),
        )
        return datetime(year, month, last_up_to(days, 31), *time)

    def count(self, start: datetime, end: datetime) -> int:
        """How many nominal times have start <= time < end. One look at each month in between."""
        start, end = max(start, FIRST_TIME), min(end, LAST_TIME + SECOND)
        if start >= end:
            return 0
        days = 0
        year, month = start.year, start.month
        while (year, month) <= (end.year, end.month):
            matching = self._days(year, month)
            if (year, month) == (end.year, end.month):
                matching &= all_bits(0, end.day - 1)
            if (year, month) == (start.year, start.month):
                matching = matching >> start.day << start.day
            days += matching.bit_count()
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        a_day = self.hours.bit_count() * self.minutes.bit_count() * self.seconds.bit_count()
        return days * a_day + self._count_before_on_day(end) - self._count_before_on_day(start)

    def mask(self, start: datetime, end: datetime) -> int:
        """Nominal times with start <= time < end as bits: bit s stands for start + s seconds."""
        times = _times_of_day(self.hours, self.minutes, self.seconds)
        members = 0
        midnight = datetime(start.year, start.month, start.day)
        while midnight < end:
            if self._days(midnight.year, midnight.month) >> midnight.day & 1:
                position = seconds_between(start, midnight)
                members |= times << position if position >= 0 else times >> -position
            midnight += DAY
        return members & all_bits(0, seconds_between(start, end) - 1)

    def _days(self, year: int, month: int) -> int:
        if not self.months >> month & 1:
            return 0
        first_weekday = date(year, month, 1).isoweekday() % 7
        return matching_days(
            self.days_of_month, self.days_of_week, first_weekday, length_of_month(year, month)
        )

    def _time_at_or_after(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                found = first_from(self.seconds, second)
                if found >= 0:
                    return hour, minute, found
            found = first_from(self.minutes, minute + 1)
            if found >= 0:
                return hour, found, first_from(self.seconds, 0)
        found = first_from(self.hours, hour + 1)
        if found >= 0:
            return found, first_from(self.minutes, 0), first_from(self.seconds, 0)
        return None

    def _time_at_or_before(
        self, hour: int, minute: int, second: int
    ) -> tuple[int, int, int] | None:
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                found = last_up_to(self.seconds, second)
                if found >= 0:
                    return hour, minute, found
            found = last_up_to(self.minutes, minute - 1) if minute else -1
            if found >= 0:
                return hour, found, last_up_to(self.seconds, 59)
        found = last_up_to(self.hours, hour - 1) if hour else -1
        if found >= 0:
            return found, last_up_to(self.minutes, 59), last_up_to(self.seconds, 59)
        return None

    def _count_before_on_day(self, wall: datetime) -> int:
        """How many nominal times the day of `wall` has before it."""
        if not self._days(wall.year, wall.month) >> wall.day & 1:
            return 0
        minutes, seconds = self.minutes.bit_count(), self.seconds.bit_count()
        counted = count_below(self.hours, wall.hour) * minutes * seconds
        if self.hours >> wall.hour & 1:
            counted += count_below(self.minutes, wall.minute) * seconds
            if self.minutes >> wall.minute & 1:
                counted += count_below(self.seconds, wall.second)
        return counted


def length_of_month(year: int, month: int) -> int:
    """The number of days of a month."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


@lru_cache(maxsize=64)
def _times_of_day(hours: int, minutes: int, seconds: int) -> int:
    """All times of a matching day as bits, by second of the day (some 11 kB each)."""
    of_an_hour = sum(seconds << 60 * minute for minute in values_of(minutes))
    return sum(of_an_hour << 3600 * hour for hour in values_of(hours))
