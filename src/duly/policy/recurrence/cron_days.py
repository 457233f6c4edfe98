"""Which days of a month the two day fields of a cron expression match.

Days are sets of bits (see `bits`): bit d is day d of the month, 1 to 31. Weekdays count from
Sunday, 0 to 6, as cron does. A month is known by its length and the weekday of its first day:
that is all the day fields can see of it.
"""

from __future__ import annotations

import msgspec

from duly.policy.recurrence.bits import all_bits, values_of

LAST_DAY = 0
"""In `nearest_weekdays`, stands for the last day of the month (`LW`)."""

_EVERY_SEVENTH = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28


class DaysOfMonth(msgspec.Struct, frozen=True):
    """The day-of-month field.

    `days`: plain days. `days_before_last`: bit n for `L-n`, bit 0 for `L`. `nearest_weekdays`: bit
    d for `dW`, bit LAST_DAY for `LW`. `unrestricted`: the field starts with `*`, or is `?`.
    """

    days: int
    days_before_last: int
    nearest_weekdays: int
    unrestricted: bool

    def in_month(self, first_weekday: int, length: int) -> int:
        """The matching days; bits above `length` mean nothing."""
        matching = self.days
        for distance in values_of(self.days_before_last):
            if distance < length:
                matching |= 1 << (length - distance)
        for day in values_of(self.nearest_weekdays):
            wanted = length if day == LAST_DAY else day
            if wanted <= length:
                matching |= 1 << _nearest_weekday(wanted, first_weekday, length)
        return matching


class DaysOfWeek(msgspec.Struct, frozen=True):
    """The day-of-week field.

    `weekdays`: plain weekdays. `occurrences`: (weekday, n) for `fri#n`. `last`: bit w for `wL`.
    `unrestricted`: the field starts with `*`, or is `?`.
    """

    weekdays: int
    occurrences: tuple[tuple[int, int], ...]
    last: int
    unrestricted: bool

    def in_month(self, first_weekday: int, length: int) -> int:
        """The matching days; bits above `length` mean nothing."""
        from_first = (self.weekdays >> first_weekday) | (self.weekdays << (7 - first_weekday))
        matching = ((from_first & 0b1111111) * _EVERY_SEVENTH) << 1
        for weekday, number in self.occurrences:
            matching |= 1 << (1 + (weekday - first_weekday) % 7 + 7 * (number - 1))
        for weekday in values_of(self.last):
            last_weekday = (first_weekday + length - 1) % 7
            matching |= 1 << (length - (last_weekday - weekday) % 7)
        return matching


def matching_days(
    of_month: DaysOfMonth, of_week: DaysOfWeek, first_weekday: int, length: int
) -> int:
    """The days of such a month that match both fields, or either when both are restricted.

    This is the habit of Vixie cron: `0 0 13 * fri` fires on every 13th and on every Friday, while
    `0 0 */2 * fri` fires on Fridays with an odd date, since a field that starts with `*` counts as
    unrestricted.
    """
    by_date = of_month.in_month(first_weekday, length)
    by_weekday = of_week.in_month(first_weekday, length)
    if of_month.unrestricted or of_week.unrestricted:
        matching = by_date & by_weekday
    else:
        matching = by_date | by_weekday
    return matching & all_bits(1, length)


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    """The Monday to Friday nearest to `day` that lies in the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
