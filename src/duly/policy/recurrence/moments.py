"""One-off fires at a set of instants."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.english import listed
from duly.policy.recurrence.instants import (
    EARLIEST_YEAR,
    LATEST_YEAR,
    SECOND,
    in_utc,
    whole_second,
)
from duly.policy.recurrence.rule import RuleValue, mask_by_walking

_NAMED = 3


class Moments(RuleValue, frozen=True, tag="moments"):
    """Fires once at each of the given instants; kept in order, each once.

    A fraction of a second is rounded up, so that nothing fires before its time. Answers cost a
    binary search.
    """

    at: tuple[datetime, ...]

    def __post_init__(self) -> None:
        if not self.at:
            raise InvalidSchedule(
                "no moments: give at least one, for example "
                "Moments((datetime(2026, 3, 1, 9, 0, tzinfo=UTC),))"
            )
        instants = sorted({_rounded_up(in_utc(moment, "the moment")) for moment in self.at})
        if instants[0].year < EARLIEST_YEAR or instants[-1].year > LATEST_YEAR:
            raise InvalidSchedule(
                f"moments from {instants[0].isoformat()} to {instants[-1].isoformat()}: "
                f"the years {EARLIEST_YEAR} to {LATEST_YEAR} are served"
            )
        msgspec.structs.force_setattr(self, "at", tuple(instants))

    def next_after(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        index = self._count_up_to(instant)
        return self.at[index] if index < len(self.at) else None

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """See FireTimes."""
        index = self._count_up_to(instant)
        return self.at[index - 1] if index else None

    def count_between(self, after: datetime, until: datetime) -> int:
        """See FireTimes."""
        return max(0, self._count_up_to(until) - self._count_up_to(after))

    def mask_of_day(self, day: datetime) -> int:
        """See FireTimes."""
        return mask_by_walking(self, day)

    def describe(self) -> str:
        """The rule in plain English, such as "once, at 2026-03-01 09:00:00 UTC"."""
        named = [f"{moment:%Y-%m-%d %H:%M:%S} UTC" for moment in self.at]
        if len(named) == 1:
            return f"once, at {named[0]}"
        if len(named) <= _NAMED:
            return f"at {listed(named)}"
        return f"at {len(named):,} set times from {named[0]} to {named[-1]}"

    def _count_up_to(self, instant: datetime) -> int:
        return bisect_right(self.at, whole_second(instant))


def _rounded_up(instant: datetime) -> datetime:
    return instant.replace(microsecond=0) + SECOND if instant.microsecond else instant
