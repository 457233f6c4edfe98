"""IANA time zones: loading them by name, and where their offset from UTC changes.

Only what zoneinfo itself offers is used. It gives the offset at an instant and, for a wall-clock
time, the offsets before (fold=0) and after (fold=1) the transition that makes this time missing
or repeated; the transition's own instant is found by bisection.

Assumption: two transitions of one zone are more than two days apart, and none moves the clock by
more than a day. The closest pair in the whole tz database is a week apart (Recife, October 2000);
a test watches over this. Nothing here loops without a bound: bisection halves at most two days.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.instants import (
    EARLIEST_YEAR,
    LATEST_YEAR,
    SECOND,
    seconds_between,
)

_PROBE = timedelta(days=2)
_OF_THIS_MACHINE = frozenset({"localtime", "posixrules"})
# Some systems keep copies there; "right" counts leap seconds, which UTC datetimes do not have.
_COPIES = ("posix/", "right/")


class Transition(msgspec.Struct, frozen=True):
    """A change of a zone's offset. `at` is the first instant that has the new one."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        """Whether wall-clock times are skipped; else they are repeated."""
        return self.after > self.before

    @property
    def wall_before(self) -> datetime:
        """What the clock on the wall would show at `at`, had it not been changed."""
        return self.at.replace(tzinfo=None) + self.before

    @property
    def wall_after(self) -> datetime:
        """What the clock on the wall shows at `at`."""
        return self.at.replace(tzinfo=None) + self.after

    # A gap is wall_before <= wall < wall_after, an overlap wall_after <= wall < wall_before.


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """The zone of this IANA name; an unknown name is refused, and near ones are suggested.

    Held here because zoneinfo itself keeps no more than eight zones and would read the others
    from disk again and again.
    """
    if name in _OF_THIS_MACHINE or name.startswith(_COPIES):
        raise InvalidSchedule(
            f"time zone {name!r} is not the same on every machine: "
            "give an IANA name such as 'Europe/Berlin' or 'UTC'"
        )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidSchedule(_unknown_zone(name)) from error


def refresh_zones() -> None:
    """Forget all that was read from the tz database, so that a changed one is picked up.

    Rules hold zone names only: from the next call on they follow the new database. Fire times
    that the caller has stored are the caller's to compute again.
    """
    ZoneInfo.clear_cache()
    load_zone.cache_clear()
    _transitions_of_year.cache_clear()


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """The zone's offset from UTC at an aware instant."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None, "ZoneInfo gives an offset for every instant"
    return offset


def offsets_of(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The offsets that hold for a naive wall-clock time before and after the nearest transition.

    Equal: the time happens once. The first is greater: it happens twice. The first is smaller: it
    does not happen.
    """
    before, after = zone.utcoffset(wall), zone.utcoffset(wall.replace(fold=1))
    assert before is not None, "ZoneInfo gives an offset for every time"
    assert after is not None, "ZoneInfo gives an offset for every time"
    return before, after


def transition_around(zone: ZoneInfo, wall: datetime) -> Transition | None:
    """The transition that skips or repeats this naive wall-clock time; None when it happens once.

    Costs two offset lookups, and some seventeen more when there is a transition.
    """
    before, after = offsets_of(zone, wall)
    if before == after:
        return None
    aware = wall.replace(tzinfo=UTC)
    return _bisect(zone, aware - max(before, after), aware - min(before, after))


def transitions_between(zone: ZoneInfo, after: datetime, until: datetime) -> list[Transition]:
    """The transitions at instants with after < at <= until, in order.

    Costs some 180 offset lookups for each zone and year that is seen for the first time.
    """
    years = range(max(after.year, EARLIEST_YEAR), min(until.year, LATEST_YEAR) + 1)
    return [
        transition
        for year in years
        for transition in _transitions_of_year(zone, year)
        if after < transition.at <= until
    ]


@lru_cache(maxsize=8192)
def _transitions_of_year(zone: ZoneInfo, year: int) -> tuple[Transition, ...]:
    # The key holds the ZoneInfo object, not its name: a zone that was read anew has new entries.
    found = []
    # The year is taken as start < at <= end; one second back makes that its own first instant on.
    probe = datetime(year, 1, 1, tzinfo=UTC) - SECOND
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    offset = offset_at(zone, probe)
    while probe < end:
        following = min(probe + _PROBE, end)
        following_offset = offset_at(zone, following)
        if following_offset != offset:
            found.append(_bisect(zone, probe, following))
        probe, offset = following, following_offset
    return tuple(found)


def _bisect(zone: ZoneInfo, start: datetime, end: datetime) -> Transition:
    """The transition at an instant with start < at <= end, given that there is one."""
    before, after = offset_at(zone, start), offset_at(zone, end)
    low, high = 0, seconds_between(start, end)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, start + timedelta(seconds=middle)) == before:
            low = middle
        else:
            high = middle
    return Transition(at=start + timedelta(seconds=high), before=before, after=after)


def _unknown_zone(name: str) -> str:
    known = sorted(available_timezones() - _OF_THIS_MACHINE)
    wanted = name.strip().replace(" ", "_").casefold()
    by_folded_name = {zone.casefold(): zone for zone in known}
    near = [zone for zone in known if zone.rpartition("/")[2].casefold() == wanted]
    near += [
        by_folded_name[folded]
        for folded in difflib.get_close_matches(wanted, by_folded_name, n=3, cutoff=0.7)
    ]
    suggested = list(dict.fromkeys(near))[:3] or ["Europe/Berlin", "America/New_York", "UTC"]
    quoted = ", ".join(repr(zone) for zone in suggested)
    return f"unknown time zone {name[:80]!r}: give an IANA name such as {quoted}"
