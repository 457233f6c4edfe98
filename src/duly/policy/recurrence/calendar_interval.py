"""Calendar intervals: every so many days, weeks, months or years, at a time of day in a zone."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Literal, get_args

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.cron_expression import FIRST_TIME, LAST_TIME, length_of_month
from duly.policy.recurrence.english import MONTHS, WEEKDAYS, counted, ordinal
from duly.policy.recurrence.instants import (
    EARLIEST_YEAR,
    LATEST_YEAR,
    SECOND,
    seconds_between,
)
from duly.policy.recurrence.wall_clock import Fold, Gap, WallClock, check_policies
from duly.policy.recurrence.wall_clock_rule import WallClockRule
from duly.policy.recurrence.zones import load_zone

Unit = Literal["day", "week", "month", "year"]
ShortMonth = Literal["last", "skip"]

_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}


class CalendarInterval(WallClockRule, frozen=True, tag="calendar"):
    """Fires at the anchor's time of day, each `every` units from the anchor, in both directions.

    `anchor` is a naive wall-clock time in `zone`: `CalendarInterval(2, "week",
    datetime(2026, 1, 5, 9), "Europe/Berlin")` is every other Monday at nine in Berlin. A month
    without the anchor's day fires on its last day, or not at all (`short_month="skip"`); the days
    are always counted from the anchor, so the 31st does not become the 28th for good. Gaps and
    overlaps are treated as for a fixed-time cron expression: `next` and `first` unless said
    otherwise. Answers are arithmetic; with `skip`, one look at each interval passed over.
    """

    every: int
    unit: Unit
    anchor: datetime
    zone: str = "UTC"
    short_month: ShortMonth = "last"
    gap: Gap | None = None
    fold: Fold | None = None

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise InvalidSchedule(f"unit {self.unit!r}: choose 'day', 'week', 'month' or 'year'")
        if self.every < 1:
            raise InvalidSchedule(
                f"every {self.every} {self.unit}s: the least is 1, for example every=3, "
                "unit='month'"
            )
        if self.short_month not in get_args(ShortMonth):
            raise InvalidSchedule(f"short_month {self.short_month!r}: choose 'last' or 'skip'")
        if self.anchor.tzinfo is not None:
            raise InvalidSchedule(
                f"the anchor {self.anchor.isoformat()} has a time zone: give the time on the wall "
                "without one, for example datetime(2026, 1, 31, 9, 0), and the zone as zone=..."
            )
        if not EARLIEST_YEAR <= self.anchor.year <= LATEST_YEAR:
            raise InvalidSchedule(
                f"the anchor {self.anchor.isoformat()}: the years {EARLIEST_YEAR} to {LATEST_YEAR} "
                "are served"
            )
        load_zone(self.zone)
        check_policies(self.gap, self.fold)
        msgspec.structs.force_setattr(self, "anchor", self.anchor.replace(microsecond=0, fold=0))

    def describe(self) -> str:
        """The rule in plain English, such as "every 2 weeks on Monday at 09:00 Europe/Berlin"."""
        text = f"every {counted(self.every, self.unit)}".replace("every 1 ", "every ")
        if self.unit == "week":
            text += f" on {WEEKDAYS[self.anchor.isoweekday() % 7]}"
        elif self.unit == "month":
            text += f" on the {ordinal(self.anchor.day)}"
        elif self.unit == "year":
            text += f" on {self.anchor.day} {MONTHS[self.anchor.month]}"
        if self.unit in _MONTHS and self.anchor.day > 28:
            text += " (or the last day)" if self.short_month == "last" else " (where there is one)"
        shown = "%H:%M:%S" if self.anchor.second else "%H:%M"
        text += f" at {self.anchor.strftime(shown)} {self.zone}"
        if self.every > 1:
            text += f", counted from {self.anchor:%Y-%m-%d}"
        return text

    def wall_clock(self) -> WallClock:
        """The interval's times in the zone, with the policies that are in force."""
        if self.unit in _DAYS:
            step = self.every * _DAYS[self.unit]
        else:
            step = self.every * _MONTHS[self.unit]
        times = _Steps(self.anchor, step, self.unit in _MONTHS, self.short_month == "skip")
        return WallClock(times, load_zone(self.zone), self.gap or "next", self.fold or "first")


class _Steps(msgspec.Struct, frozen=True):
    """The nominal times of an interval, each `step` days or months from the anchor.

    Step k of a walk by months whose day does not exist is either missing or clamped to the last
    day. The order of steps is that of the clamped times in both cases.
    """

    anchor: datetime
    step: int
    by_month: bool
    skip_missing: bool

    def at_or_after(self, wall: datetime) -> datetime | None:
        """See NominalTimes."""
        index = self._first_index(max(wall, FIRST_TIME))
        latest = self._slot_of(LAST_TIME)
        while (slot := self._slot(index)) <= latest:
            time_of_step = self._time(slot)
            if time_of_step is not None:
                return time_of_step
            index += 1
        return None

    def at_or_before(self, wall: datetime) -> datetime | None:
        """See NominalTimes."""
        index = self._first_index(min(wall, LAST_TIME) + SECOND) - 1
        earliest = self._slot_of(FIRST_TIME)
        while (slot := self._slot(index)) >= earliest:
            time_of_step = self._time(slot)
            if time_of_step is not None:
                return time_of_step
            index -= 1
        return None

    def count(self, start: datetime, end: datetime) -> int:
        """See NominalTimes."""
        first = self._first_index(max(start, FIRST_TIME))
        stop = self._first_index(min(end, LAST_TIME + SECOND))
        if not self.skip_missing:
            return max(0, stop - first)
        return sum(self._time(self._slot(index)) is not None for index in range(first, stop))

    def mask(self, start: datetime, end: datetime) -> int:
        """See NominalTimes."""
        members = 0
        for index in range(self._first_index(start), self._first_index(end)):
            time_of_step = self._time(self._slot(index))
            if time_of_step is not None:
                members |= 1 << seconds_between(start, time_of_step)
        return members

    def _first_index(self, wall: datetime) -> int:
        """The least index whose (clamped) time is not before `wall`."""
        wanted = self._slot_of(wall)
        index = (wanted - self._slot_of(self.anchor)) // self.step
        if self._slot(index) < wanted or self._place_in(wanted) < self._place_of(wall):
            index += 1
        return index

    # A slot is a day or a month, numbered; a place is where in its slot a time lies.

    def _slot_of(self, wall: datetime) -> int:
        return wall.year * 12 + wall.month - 1 if self.by_month else wall.toordinal()

    def _slot(self, index: int) -> int:
        return self._slot_of(self.anchor) + index * self.step

    def _place_of(self, wall: datetime) -> tuple[int, time]:
        return (wall.day if self.by_month else 0), wall.time()

    def _place_in(self, slot: int) -> tuple[int, time]:
        if not self.by_month:
            return 0, self.anchor.time()
        return min(self.anchor.day, _length(slot)), self.anchor.time()

    def _time(self, slot: int) -> datetime | None:
        """The time of a slot in the years served, or None when the month lacks the day."""
        if not self.by_month:
            return datetime.combine(date.fromordinal(slot), self.anchor.time())
        if self.skip_missing and self.anchor.day > _length(slot):
            return None
        day, time_of_day = self._place_in(slot)
        return datetime.combine(date(slot // 12, slot % 12 + 1, day), time_of_day)


def _length(month_number: int) -> int:
    return length_of_month(month_number // 12, month_number % 12 + 1)
