"""What a cron schedule must do, found the slow and obvious way.

Nothing of the engine is used here: the expression is read term by term and asked of every value,
time is walked minute by minute (or second by second) through a window, and what is missing or
repeated on the wall is seen on the walk. Slow, and right by inspection.

The walk assumes what holds since 1972: transitions happen on whole minutes.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * sun",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 jan *",
    "@annually": "0 0 1 jan *",
}


class BruteForceCron:
    """One expression, asked of single wall-clock times."""

    def __init__(self, text: str) -> None:
        fields = MACROS.get(text.lower(), text).lower().split()
        if len(fields) == 5:
            fields.insert(0, "0")
        second, minute, hour, self.day_of_month, month, self.day_of_week = fields
        self.seconds = _matching_values(second, 0, 59)
        self.minutes = _matching_values(minute, 0, 59)
        self.hours = _matching_values(hour, 0, 23)
        self.months = _matching_values(month, 1, 12, MONTHS, 1)
        self.fixed_time = "*" not in minute and "*" not in hour

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.matches_date(wall.date())
        )

    def matches_date(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date = any(_date_matches(term, day) for term in self.day_of_month.split(","))
        by_weekday = any(_weekday_matches(term, day) for term in self.day_of_week.split(","))
        if self.day_of_month[0] in "*?" or self.day_of_week[0] in "*?":
            return by_date and by_weekday
        return by_date or by_weekday


class Walk:
    """Every minute (or second) of a window of time, as the clocks of a zone show it.

    The walk goes on for some hours on both sides of the window, more than any clock is moved by,
    since a time is known to be repeated only when its other pass has been met.
    """

    def __init__(
        self,
        zone: ZoneInfo,
        start: datetime,
        end: datetime,
        step: timedelta,
        margin: timedelta = timedelta(hours=26),
    ) -> None:
        self.start, self.end = start, end
        self.shown: list[tuple[datetime, datetime]] = []
        self.missing: list[tuple[datetime, list[datetime]]] = []
        self.passes: dict[datetime, list[datetime]] = {}
        previous: datetime | None = None
        instant = start - margin
        while instant <= end + margin:
            wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
            self.shown.append((instant, wall))
            self.passes.setdefault(wall, []).append(instant)
            if previous is not None and wall > previous + step:
                skipped = []
                while previous + step < wall:
                    previous += step
                    skipped.append(previous)
                self.missing.append((instant, skipped))
            previous = wall
            instant += step

    def fires(self, text: str, gap: str | None = None, fold: str | None = None) -> list[datetime]:
        """All fires with start <= fire <= end, in order."""
        cron = BruteForceCron(text)
        gap = gap or ("next" if cron.fixed_time else "skip")
        fold = fold or ("first" if cron.fixed_time else "both")
        matches_date = cache(cron.matches_date)
        found = set()
        for instant, wall in self.shown:
            if (
                wall.minute in cron.minutes
                and wall.hour in cron.hours
                and wall.second in cron.seconds
                and matches_date(wall.date())
            ):
                passes = self.passes[wall]
                if (
                    fold == "both"
                    or (fold == "first" and instant == passes[0])
                    or (fold == "second" and instant == passes[-1])
                ):
                    found.add(instant)
        if gap == "next":
            for instant, skipped in self.missing:
                if any(cron.matches(wall) for wall in skipped):
                    found.add(instant)
        return sorted(instant for instant in found if self.start <= instant <= self.end)


def transitions(zone: ZoneInfo, first_year: int, last_year: int, step: timedelta) -> list[datetime]:
    """The instants at which a zone's offset changes, found by looking once each step."""
    instant = datetime(first_year, 1, 1, tzinfo=UTC)
    end = datetime(last_year + 1, 1, 1, tzinfo=UTC)
    offset = instant.astimezone(zone).utcoffset()
    found = []
    while instant < end:
        following = instant + step
        following_offset = following.astimezone(zone).utcoffset()
        if following_offset != offset:
            moment = instant
            while (moment + timedelta(hours=1)).astimezone(zone).utcoffset() == offset:
                moment += timedelta(hours=1)
            while moment.astimezone(zone).utcoffset() == offset:
                moment += timedelta(minutes=1)
            found.append(moment)
        instant, offset = following, following_offset
    return found


def _matching_values(
    field: str, low: int, high: int, names: list[str] | None = None, first_name: int = 0
) -> set[int]:
    return {
        value
        for value in range(low, high + 1)
        if any(_matches(term, value, low, high, names, first_name) for term in field.split(","))
    }


def _matches(
    term: str, value: int, low: int, high: int, names: list[str] | None, first_name: int
) -> bool:
    def number(text: str) -> int:
        return names.index(text) + first_name if names and text in names else int(text)

    body, _, step_text = term.partition("/")
    step = int(step_text or 1)
    if body == "*":
        start, end = low, high
    elif "-" in body:
        start_text, end_text = body.split("-")
        start, end = number(start_text), number(end_text)
    elif step_text:
        start, end = number(body), high
    else:
        return value == number(body)
    # Count up from the start, around the end of the field if need be, until the end is met.
    current, distance = start, 0
    while True:
        if current == value and distance % step == 0:
            return True
        if current == end:
            return False
        current = current + 1 if current < high else low
        distance += 1


def _date_matches(term: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if term == "?":
        return True
    if term == "l":
        return day.day == last
    if term.startswith("l-"):
        return day.day == last - int(term[2:])
    if term.endswith("w"):
        wanted = last if term == "lw" else int(term[:-1])
        working = [d for d in range(1, last + 1) if day.replace(day=d).weekday() < 5]
        return wanted <= last and day.day == min(working, key=lambda d: abs(d - wanted))
    return _matches(term, day.day, 1, 31, None, 0)


def _weekday_matches(term: str, day: date) -> bool:
    weekday = (day.weekday() + 1) % 7
    last = calendar.monthrange(day.year, day.month)[1]
    if term == "?":
        return True
    if "#" in term:
        wanted, number = term.split("#")
        return _weekday(wanted) == weekday and (day.day - 1) // 7 + 1 == int(number)
    if term.endswith("l"):
        return _weekday(term[:-1]) == weekday and day.day > last - 7
    body, slash, step = term.partition("/")
    if "-" in body:
        start, end = (_weekday(part) for part in body.split("-"))
        if start == end == 0 and body in ("0-7", "sun-7"):
            return _matches(f"*/{step or 1}", weekday, 0, 6, None, 0)
        # Written out day by day from the start, so that a week may end on Sunday.
        days = [(start + distance) % 7 for distance in range((end - start) % 7 + 1)]
        return weekday in days[:: int(step or 1)]
    if slash and body != "*":
        days = list(range(_weekday(body), 8))
        return weekday in {d % 7 for d in days[:: int(step)]}
    if body == "*":
        return _matches(term, weekday, 0, 6, None, 0)
    return weekday == _weekday(body)


def _weekday(text: str) -> int:
    return WEEKDAYS.index(text) if text in WEEKDAYS else int(text) % 7
