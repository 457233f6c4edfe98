"""Several sets of instants as one: all that are in some included set and in no excluded one.

With a single included set and nothing excluded every question goes straight to that set. Else
there are two ways to an answer, and the cheaper one is taken: walking from fire to fire, or
joining the sets day by day as bits (86,400 bits a day, see `bits`), which costs the same however
many fires a day has. So "every second except from one to five at night" over a year takes 365
such steps, not 31 million.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.policy.recurrence.bits import all_bits, first_from, last_up_to
from duly.policy.recurrence.instants import (
    AFTER_ALL,
    BEFORE_ALL,
    DAY,
    SECOND,
    SECONDS_A_DAY,
    seconds_between,
    whole_second,
)
from duly.policy.recurrence.rule import FireTimes

# A search that meets this many excluded fires in a row looks at as many whole days at once.
_STRIDE = 64
# A search for a fire that is not excluded ends here. The rarest dates of the calendar are 40 years
# apart; what is excluded for longer is excluded for good.
_HORIZON = timedelta(days=50 * 366)
# Roughly how many steps of a walk cost as much as the bits of one day.
_STEPS_A_DAY = 8


class FireSet(msgspec.Struct, frozen=True):
    """The fires of `included` without those of `excluded`.

    A search ends without a result when all fires of the 50 years ahead (or back) are excluded; this
    bounds it by the fires or the days in them, whichever are fewer (some seconds at the worst, for
    a schedule that `Recurrence.check_fires` refuses).
    """

    included: tuple[FireTimes, ...]
    excluded: tuple[FireTimes, ...]

    def first_between(self, after: datetime, until: datetime) -> datetime | None:
        """The least fire with after < fire <= until, or None."""
        position, until = whole_second(after), whole_second(until)
        if len(self.included) == 1 and not self.excluded:
            fire = self.included[0].next_after(position)
            return fire if fire is not None and fire <= until else None
        horizon = until if until - position < _HORIZON else position + _HORIZON
        while position < horizon:
            start = position
            for _ in range(_STRIDE):
                upcoming = [fires.next_after(position) for fires in self.included]
                found = min((fire for fire in upcoming if fire is not None), default=None)
                if found is None or found > until:
                    return None
                if not self._excludes(found):
                    return found
                position = found
            if position - start < _STRIDE * DAY:
                found, position = self._first_in_days(position)
                if found is not None:
                    return found if found <= until else None
        return None

    def last_between(self, after: datetime, until: datetime) -> datetime | None:
        """The greatest fire with after < fire <= until, or None."""
        after, position = whole_second(after), whole_second(until)
        horizon = after if position - after < _HORIZON else position - _HORIZON
        while position > horizon:
            start = position
            for _ in range(_STRIDE):
                past = [fires.last_at_or_before(position) for fires in self.included]
                found = max((fire for fire in past if fire is not None), default=None)
                if found is None or found <= after:
                    return None
                if not self._excludes(found):
                    return found
                position = found - SECOND
            if start - position < _STRIDE * DAY:
                found, position = self._last_in_days(position)
                if found is not None:
                    return found if found > after else None
        return None

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many fires have after < fire <= until."""
        after, until = whole_second(after), whole_second(until)
        if len(self.included) == 1 and not self.excluded:
            return self.included[0].count_between(after, until)
        steps = sum(fires.count_between(after, until) for fires in self.included)
        if steps <= _STEPS_A_DAY * ((until - after).days + 1):
            return self._count_by_walking(after, until)
        return self._count_by_days(after, until)

    def _mask_of_day(self, day: datetime) -> int:
        members = 0
        for fires in self.included:
            members |= fires.mask_of_day(day)
        for fires in self.excluded:
            members &= ~fires.mask_of_day(day)
        return members

    def _excludes(self, fire: datetime) -> bool:
        return any(fires.last_at_or_before(fire) == fire for fires in self.excluded)

    def _first_in_days(self, after: datetime) -> tuple[datetime | None, datetime]:
        """The first fire after an instant within some whole days, or the end of those days."""
        day = _midnight(after)
        ignored = seconds_between(day, after) + 1
        for _ in range(_STRIDE):
            if day + DAY > AFTER_ALL:
                break
            found = first_from(self._mask_of_day(day), ignored)
            if found >= 0:
                return day + timedelta(seconds=found), day
            day, ignored = day + DAY, 0
        return None, day - SECOND

    def _last_in_days(self, until: datetime) -> tuple[datetime | None, datetime]:
        """The last fire up to an instant within some whole days, or the instant before them."""
        day = _midnight(until)
        highest = seconds_between(day, until)
        for _ in range(_STRIDE):
            if day <= BEFORE_ALL:
                break
            found = last_up_to(self._mask_of_day(day), highest)
            if found >= 0:
                return day + timedelta(seconds=found), day
            day, highest = day - DAY, SECONDS_A_DAY - 1
        return None, day + DAY - SECOND

    def _count_by_walking(self, after: datetime, until: datetime) -> int:
        count = 0
        fire = self.first_between(after, until)
        while fire is not None:
            count += 1
            fire = self.first_between(fire, until)
        return count

    def _count_by_days(self, after: datetime, until: datetime) -> int:
        count = 0
        day = _midnight(after)
        while day <= until:
            members = self._mask_of_day(day)
            if day <= after:
                members &= ~all_bits(0, seconds_between(day, after))
            if until < day + DAY:
                members &= all_bits(0, seconds_between(day, until))
            count += members.bit_count()
            day += DAY
        return count


def _midnight(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0)
