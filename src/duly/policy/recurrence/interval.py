"""Fixed rate: one fire each so many seconds, on a grid that restarts and downtime do not move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence import bits
from duly.policy.recurrence.english import duration
from duly.policy.recurrence.instants import (
    AFTER_ALL,
    BEFORE_ALL,
    SECONDS_A_DAY,
    in_utc,
    seconds_between,
    whole_second,
)
from duly.policy.recurrence.rule import RuleValue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Every(RuleValue, frozen=True, tag="every"):
    """Fires at anchor + k * seconds for every whole k, before the anchor as well as after it.

    The grid lies in elapsed time, not on the wall clock: `Every(86_400)` is every 24 hours and
    moves by an hour on the wall at a DST transition; for "every day at nine" there are Cron and
    CalendarInterval. The default anchor, the epoch, puts `every(minutes=5)` on :00, :05, :10 and
    is the same on every node and in every release. All answers are arithmetic, in constant time.
    """

    seconds: int
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        if self.seconds < 1:
            raise InvalidSchedule(
                f"an interval of {self.seconds} seconds: the shortest is 1 second, "
                "for example every(minutes=5)"
            )
        anchor = in_utc(self.anchor, "the anchor").replace(microsecond=0)
        msgspec.structs.force_setattr(self, "anchor", anchor)

    def next_after(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        return self._fire(self._index(whole_second(instant)) + 1)

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        return self._fire(self._index(whole_second(instant)))

    def count_between(self, after: datetime, until: datetime) -> int:
        """See FireTimes."""
        return max(0, self._index(whole_second(until)) - self._index(whole_second(after)))

    def mask_of_day(self, day: datetime) -> int:
        """See FireTimes."""
        first = -seconds_between(self.anchor, day) % self.seconds
        if first >= SECONDS_A_DAY:
            return 0
        return _grid(self.seconds) << first & bits.all_bits(0, SECONDS_A_DAY - 1)

    def describe(self) -> str:
        """The rule in plain English, such as "every 5 minutes"."""
        text = f"every {duration(self.seconds)}".replace("every 1 ", "every ")
        if self.anchor != EPOCH:
            text += f", counted from {self.anchor:%Y-%m-%d %H:%M:%S} UTC"
        return text

    def _index(self, instant: datetime) -> int:
        return seconds_between(self.anchor, instant) // self.seconds

    def _fire(self, index: int) -> datetime | None:
        try:
            fire = self.anchor + timedelta(seconds=index * self.seconds)
        except OverflowError:
            return None
        return fire if BEFORE_ALL < fire < AFTER_ALL else None


def every(
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime = EPOCH,
) -> Every:
    """A fixed rate from the parts a person names: `every(minutes=5)`, `every(hours=1.5)`."""
    try:
        period = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise InvalidSchedule(f"the interval is not a length of time: {error}") from error
    if period.microseconds:
        raise InvalidSchedule(
            f"an interval of {period.total_seconds()} seconds: it must be whole seconds, "
            "for example every(seconds=30)"
        )
    return Every(period.days * SECONDS_A_DAY + period.seconds, anchor)


@lru_cache(maxsize=64)
def _grid(period: int) -> int:
    return bits.repeated(period, SECONDS_A_DAY)
