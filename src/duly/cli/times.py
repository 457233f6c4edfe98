"""Times as they are typed: a moment, a moment on the clocks of a zone, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

from duly.errors import InvalidOption
from duly.policy import duration, options
from duly.policy.recurrence import load_zone
from duly.policy.recurrence.zones import offsets_of, transition_around

_DATE = re.compile(r"\d{4}-")
_WHOLE_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def since(text: str | None, option: str) -> datetime | None:
    """The moment that an option names: `2026-11-16T09:00Z`, or `2h` for two hours ago."""
    if text is None:
        return None
    if _DATE.match(text):
        return options.instant(text, option)
    return datetime.now(UTC) - duration.parse(text, option)


def length(text: str | None, option: str) -> timedelta | None:
    """The duration that an option gives, such as `30s` or `1h30m`."""
    return None if text is None else duration.parse(text, option)


def moment(text: str, option: str, zone: str, last: bool = False) -> datetime:
    """The moment that an option names, which may leave out its offset: then it is a time on the
    clocks of the zone, and must happen there exactly once.

    A date alone is the first instant of that day, or with `last` the last one.
    """
    try:
        if _WHOLE_DATE.fullmatch(text):
            day = calendar_date(text, option)
            return _last_instant(day, zone) if last else _first_instant(day, zone)
        wall = datetime.fromisoformat(text)
        return _on_clocks(wall, option, zone) if wall.tzinfo is None else wall.astimezone(UTC)
    except InvalidOption:
        raise
    except (ValueError, OverflowError):
        raise InvalidOption(
            option,
            f"{text[:64]!a} is not a time: expected 2026-11-16T09:00 (on the clocks of {zone}), "
            "2026-11-16T09:00Z, 2026-11-16T09:00+01:00, or 2026-11-16",
        ) from None


def past_moment(text: str, option: str, zone: str, last: bool = False) -> datetime:
    """The same, or `2h` for two hours ago, or `now`."""
    if text == "now":
        return datetime.now(UTC)
    if _DATE.match(text):
        return moment(text, option, zone, last)
    return datetime.now(UTC) - duration.parse(text, option)


def calendar_date(text: str, option: str) -> date:
    """A date such as `2026-12-25`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidOption(
            option, f"{text[:64]!a} is not a date: expected such as 2026-12-25"
        ) from None


def _on_clocks(wall: datetime, option: str, zone: str) -> datetime:
    known = load_zone(zone)
    transition = transition_around(known, wall)
    if transition is None:
        return (wall - offsets_of(known, wall)[0]).replace(tzinfo=UTC)
    shown = f"{wall.isoformat(' ')} {{}} on the clocks of {zone}: {{}}"
    if transition.is_gap:
        first = transition.at.astimezone(known).isoformat()
        raise InvalidOption(option, shown.format("is skipped", f"the next time is {first}"))
    both = [
        wall.replace(tzinfo=timezone(offset)).isoformat()
        for offset in (transition.before, transition.after)
    ]
    raise InvalidOption(option, shown.format("happens twice", f"give {' or '.join(both)}"))


def _first_instant(day: date, zone: str) -> datetime:
    """When the day begins on the clocks of the zone, also where they skip midnight."""
    midnight = datetime.combine(day, time())
    known = load_zone(zone)
    transition = transition_around(known, midnight)
    if transition is not None and transition.is_gap:
        return transition.at
    return (midnight - offsets_of(known, midnight)[0]).replace(tzinfo=UTC)


def _last_instant(day: date, zone: str) -> datetime:
    return _first_instant(day + timedelta(days=1), zone) - timedelta(microseconds=1)
