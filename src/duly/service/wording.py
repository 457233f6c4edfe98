"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(length: timedelta, units: int = 2) -> str:
    """A length of time in its largest units: `4 ms`, `0.4 s`, `12 s`, `3 h 20 min`, `2 d`."""
    seconds = abs(length.total_seconds())
    if 0.0005 <= seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        tenths = round(seconds, 1)
        return f"{tenths:g} s"
    left = round(seconds)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:units])


def relative(moment: datetime, now: datetime, units: int = 2) -> str:
    """Where a moment lies as seen from `now`: `12 s ago`, `in 3 h`, `now`."""
    distance = moment - now
    if abs(distance) < timedelta(milliseconds=50):
        return "now"
    shown = span(distance, units)
    return f"in {shown}" if distance > timedelta(0) else f"{shown} ago"


def absolute(moment: datetime) -> str:
    """A moment in UTC, to the second unless it is a whole minute: `2026-11-16 09:00 UTC`."""
    shown = moment.astimezone(UTC)
    whole_minute = shown.second == shown.microsecond == 0
    return shown.strftime("%Y-%m-%d %H:%M UTC" if whole_minute else "%Y-%m-%d %H:%M:%S UTC")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 job`, `4,000 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
