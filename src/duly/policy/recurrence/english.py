"""Small pieces of English that several descriptions need."""

from __future__ import annotations

from collections.abc import Sequence

# Not from the calendar module, whose names follow the locale.
MONTHS = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def listed(items: Sequence[str], last: str = "and") -> str:
    """Items as a person lists them: "a", "a and b", "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 hour", "2 hours"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: int) -> str:
    """A length of time in the largest unit that divides it, or in parts: "90 minutes", "1 day"."""
    for size, noun in _UNITS:
        if seconds and seconds % size == 0:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def ordinal(number: int) -> str:
    """A number as a place in a row: "1st", "2nd", "13th"."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(number % 10, 'th')}"
