"""A whole recurrence: one rule or several, between a start and an end, with exceptions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.calendar_interval import CalendarInterval
from duly.policy.recurrence.cron import Cron
from duly.policy.recurrence.english import counted, duration, listed
from duly.policy.recurrence.excluded_dates import all_of
from duly.policy.recurrence.fire_set import FireSet
from duly.policy.recurrence.instants import AFTER_ALL, BEFORE_ALL, SECOND, in_utc, whole_second
from duly.policy.recurrence.interval import Every
from duly.policy.recurrence.moments import Moments
from duly.policy.recurrence.rule import FireTimes
from duly.policy.recurrence.zones import load_zone

Rule = Cron | Every | CalendarInterval | Moments
"""Any rule, as it is stored: a JSON object whose `kind` is cron, every, calendar or moments."""

_MICROSECONDS = 1_000_000
_NAMED_DATES = 3
# `check_fires` without a start looks from here on: DST as it is now, not as it once was.
_PRESENT = datetime(2000, 1, 1, tzinfo=UTC)


class FireRange(msgspec.Struct, frozen=True):
    """A run of fires, told without listing them."""

    first: datetime
    last: datetime
    count: int


class Recurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a schedule fires.

    - `rules`: fires when any of them does; instants that several share are one fire.
    - `start`, `end`: no fire before the one or after the other; both are included.
    - `maximum_fires`: no more than that many nominal fires, counted from `start`, which it needs.
      They are counted whether or not they were run, so the end does not depend on downtime.
    - `excluded_dates`: no fire while the clocks of `zone` show one of these dates.
    - `excluded_rules`: no fire when any of these fires.
    - `jitter_seconds`: each fire is due up to that much after its nominal time (`due_at`). Nominal
      times do not change.
    - `zone`: where `excluded_dates` are dates, and the zone to show fires in. Rules have their own.

    The answers of one rule without exclusions cost what they cost that rule; those of several
    rules, or with exclusions, are bounded as FireSet says. `maximum_fires` adds a count from the
    start to each.
    """

    rules: tuple[Rule, ...]
    start: datetime | None = None
    end: datetime | None = None
    maximum_fires: int | None = None
    excluded_dates: tuple[date, ...] = ()
    excluded_rules: tuple[Rule, ...] = ()
    jitter_seconds: int = 0
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.rules:
            raise InvalidSchedule(
                "no rules: give at least one, for example Cron('0 9 * * mon-fri', 'Europe/Berlin')"
            )
        load_zone(self.zone)
        for name in ("start", "end"):
            moment = getattr(self, name)
            if moment is not None:
                msgspec.structs.force_setattr(self, name, in_utc(moment, f"the {name}"))
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidSchedule(
                f"the end {self.end.isoformat()} is before the start {self.start.isoformat()}"
            )
        if self.maximum_fires is not None:
            if self.maximum_fires < 1:
                raise InvalidSchedule(
                    f"a maximum of {self.maximum_fires} fires: the least is 1, and None is no limit"
                )
            if self.start is None:
                raise InvalidSchedule("a maximum number of fires needs a start to count from")
        if self.jitter_seconds < 0:
            raise InvalidSchedule(
                f"a jitter of {self.jitter_seconds} seconds: it must be 0 (none) or more"
            )
        dates = tuple(sorted(set(self.excluded_dates)))
        msgspec.structs.force_setattr(self, "excluded_dates", dates)

    def next_after(self, instant: datetime) -> datetime | None:
        """The least fire strictly after the instant, or None when there is none any more."""
        instant = max(whole_second(instant), self._before_start())
        fire = self._fires().first_between(instant, self._end())
        if self.maximum_fires is not None and self._number_up_to(instant) >= self.maximum_fires:
            return None
        return fire

    def last_at_or_before(self, instant: datetime) -> datetime | None:
        """The greatest fire at or before the instant, or None."""
        instant = min(whole_second(instant), self._end())
        if self.maximum_fires is not None and self._number_up_to(instant) > self.maximum_fires:
            return self._last_allowed(instant, self.maximum_fires)
        return self._fires().last_between(self._before_start(), instant)

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many fires have after < fire <= until."""
        after = max(whole_second(after), self._before_start())
        until = min(whole_second(until), self._end())
        if after >= until:
            return 0
        if self.maximum_fires is None:
            return self._fires().count_between(after, until)
        counted_before = min(self._number_up_to(after), self.maximum_fires)
        return min(self._number_up_to(until), self.maximum_fires) - counted_before

    def range_between(self, after: datetime, until: datetime) -> FireRange | None:
        """The fires with after < fire <= until as first, last and count; None when there are none.

        This is how a long downtime is accounted for in one row.
        """
        first, last = self.next_after(after), self.last_at_or_before(until)
        if first is None or last is None or first > last:
            return None
        return FireRange(first, last, self.count_between(after, until))

    def due_at(self, schedule_id: str, nominal: datetime) -> datetime:
        """When the fire of this nominal time is due: the same for every node that asks.

        Spread evenly over the jitter window by a hash of the schedule and the nominal time.
        """
        if not self.jitter_seconds:
            return nominal
        seed = f"{schedule_id}\n{int(whole_second(nominal).timestamp())}".encode()
        draw = int.from_bytes(blake2b(seed, digest_size=8).digest())
        return nominal + timedelta(microseconds=draw % (self.jitter_seconds * _MICROSECONDS))

    def check_fires(self) -> None:
        """Raise InvalidSchedule when it never fires. To be called where a schedule is made.

        Not done on construction: whether a time falls into a gap depends on the tz database, and a
        schedule that is stored must be readable whatever the database says now.
        """
        from_here = self._before_start() if self.start is not None else _PRESENT
        if self.next_after(from_here) is not None:
            return
        if all(rule.next_after(from_here) is None for rule in self.rules):
            reason = (
                "its times never come, or all fall into gaps of the clock, which gap='skip' drops"
            )
        else:
            reason = "its start, end and exclusions leave no fire"
        raise InvalidSchedule(f"this schedule can never fire ({self.describe()}): {reason}")

    def describe(self) -> str:
        """The recurrence in plain English."""
        parts = [" and ".join(rule.describe() for rule in self.rules)]
        if self.start is not None:
            parts.append(f"from {self._shown(self.start)}")
        if self.end is not None:
            parts.append(f"until {self._shown(self.end)}")
        if self.maximum_fires is not None:
            parts.append(f"at most {counted(self.maximum_fires, 'time')}")
        if self.excluded_dates:
            named = [day.isoformat() for day in self.excluded_dates[:_NAMED_DATES]]
            if len(self.excluded_dates) > _NAMED_DATES:
                named.append(f"{len(self.excluded_dates) - _NAMED_DATES:,} more dates")
            parts.append(f"not on {listed(named)} ({self.zone})")
        parts += [f"not {rule.describe()}" for rule in self.excluded_rules]
        if self.jitter_seconds:
            parts.append(f"each up to {duration(self.jitter_seconds)} later (jitter)")
        return "; ".join(parts)

    def _fires(self) -> FireSet:
        excluded: tuple[FireTimes, ...] = self.excluded_rules
        if self.excluded_dates:
            excluded = (*excluded, all_of(self.excluded_dates, self.zone))
        return FireSet(self.rules, excluded)

    def _before_start(self) -> datetime:
        """The last whole second before the start."""
        if self.start is None:
            return BEFORE_ALL
        return whole_second(self.start - timedelta(microseconds=1))

    def _end(self) -> datetime:
        return AFTER_ALL if self.end is None else whole_second(self.end)

    def _number_up_to(self, instant: datetime) -> int:
        """How many fires there are from the start up to the instant, without the maximum."""
        return self._fires().count_between(self._before_start(), instant)

    def _last_allowed(self, too_late: datetime, maximum: int) -> datetime:
        """The fire that reaches the maximum, which is known to lie before `too_late`."""
        low, high = self._before_start(), too_late
        while high - low > SECOND:
            middle = low + (high - low) // (2 * SECOND) * SECOND
            if self._number_up_to(middle) >= maximum:
                high = middle
            else:
                low = middle
        return high

    def _shown(self, instant: datetime) -> str:
        return f"{instant.astimezone(load_zone(self.zone)):%Y-%m-%d %H:%M:%S} {self.zone}"
