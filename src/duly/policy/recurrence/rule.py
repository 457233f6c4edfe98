"""What every recurrence rule is: a set of instants on whole seconds, and a frozen JSON value."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from duly.policy.recurrence.instants import DAY, SECOND, seconds_between


class FireTimes(Protocol):
    """A set of instants, in UTC and on whole seconds. Methods take any aware datetime."""

    def next_after(self, instant: datetime) -> datetime | None:
        """The least fire strictly after the instant, or None when there is none any more."""

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The greatest fire at or before the instant, or None."""

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many fires have after < fire <= until."""

    def mask_of_day(self, day: datetime) -> int:
        """The fires of the UTC day that starts at `day`, as bits: bit s is s seconds after it."""


class RuleValue(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """Base of the rules: values that are stored as JSON objects, told apart by `kind`."""


def mask_by_walking(fires: FireTimes, day: datetime) -> int:
    """`mask_of_day` for sets with few fires a day."""
    members = 0
    fire = fires.next_after(day - SECOND)
    while fire is not None and fire < day + DAY:
        members |= 1 << seconds_between(day, fire)
        fire = fires.next_after(fire)
    return members
