"""A cron expression in plain English.

Made from the meaning, not from the text: `*/15`, `0/15` and `0,15,30,45` read the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.policy.recurrence.bits import all_bits, repeated, values_of
from duly.policy.recurrence.cron_days import LAST_DAY, DaysOfMonth, DaysOfWeek
from duly.policy.recurrence.cron_expression import CronExpression
from duly.policy.recurrence.english import MONTHS, WEEKDAYS, listed, ordinal

_MOST_TIMES = 6
_EVERY_SECOND = _EVERY_MINUTE = all_bits(0, 59)
_EVERY_HOUR = all_bits(0, 23)
_EVERY_DAY = all_bits(1, 31)
_EVERY_MONTH = all_bits(1, 12)
_EVERY_WEEKDAY = all_bits(0, 6)


def describe_cron(expression: CronExpression, zone: str) -> str:
    """The expression in words, such as "every day at 02:30 Europe/Berlin"."""
    days = _days(expression.days_of_month, expression.days_of_week)
    months = ""
    if expression.months != _EVERY_MONTH:
        months = f" in {_spans(expression.months, MONTHS)}"
    times = _times_of_day(expression)
    if times:
        return f"{days or 'every day'}{months} at {listed(times)} {zone}"
    # "every 15 minutes on Monday", but "every Monday at 09:00".
    on_days = f"on {days.removeprefix('every ')}" if days.startswith("every ") else days
    when = f"{_rate(expression)} {on_days}".strip()
    return f"{when}{months}, {zone}"


def _times_of_day(expression: CronExpression) -> list[str]:
    """The times of day when they are few enough to be named one by one."""
    hours, minutes, seconds = expression.hours, expression.minutes, expression.seconds
    if hours == _EVERY_HOUR or seconds.bit_count() > 1:
        return []
    if hours.bit_count() * minutes.bit_count() > _MOST_TIMES:
        return []
    tail = "" if seconds == 1 else f":{next(values_of(seconds)):02}"
    return [
        f"{hour:02}:{minute:02}{tail}" for hour in values_of(hours) for minute in values_of(minutes)
    ]


def _rate(expression: CronExpression) -> str:
    hours, minutes, seconds = expression.hours, expression.minutes, expression.seconds
    if seconds == 1:
        return _minutes_and_hours(minutes, hours)
    of_seconds = _steps(seconds, "second", 60) or f"at {_numbers('second', seconds)}"
    if minutes == _EVERY_MINUTE and hours == _EVERY_HOUR:
        return of_seconds if of_seconds.startswith("every") else f"{of_seconds} of every minute"
    if minutes == _EVERY_MINUTE:
        return f"{of_seconds}{_hour_range(hours)}"
    return f"{of_seconds} of the minute, {_minutes_and_hours(minutes, hours)}"


def _minutes_and_hours(minutes: int, hours: int) -> str:
    of_minutes = _steps(minutes, "minute", 60)
    if of_minutes:
        return of_minutes + _hour_range(hours)
    of_hours = _steps(hours, "hour", 24)
    if of_hours:
        return of_hours if minutes == 1 else f"{of_hours} at {_numbers('minute', minutes)}"
    return f"at {_numbers('minute', minutes)} of {_numbers('hour', hours)}"


def _steps(members: int, noun: str, size: int) -> str:
    """ "every 15 minutes" when the values are evenly spaced around the whole field, else ""."""
    step = size // members.bit_count()
    if size % members.bit_count() or members != repeated(step, size) or step == size:
        return ""
    return f"every {noun}" if step == 1 else f"every {step} {noun}s"


def _hour_range(hours: int) -> str:
    return "" if hours == _EVERY_HOUR else f" during {_numbers('hour', hours)}"


def _numbers(noun: str, members: int) -> str:
    numbers = [str(value) for value in range(60)]
    return f"{noun}{'s' if members.bit_count() > 1 else ''} {_spans(members, numbers)}"


def _days(of_month: DaysOfMonth, of_week: DaysOfWeek) -> str:
    """The days in words; "" for every day."""
    dates, weekdays = _dates(of_month), _weekdays(of_week)
    if dates and weekdays:
        if of_month.unrestricted or of_week.unrestricted:
            return f"{dates}, if that is {_weekdays(of_week, 'or').removeprefix('every ')},"
        return f"{dates} and {weekdays}"
    return dates or weekdays


def _dates(field: DaysOfMonth) -> str:
    if field.days == _EVERY_DAY:
        return ""
    parts = []
    days = list(values_of(field.days))
    step = days[1] - days[0] if len(days) > _MOST_TIMES else 1
    if step > 1 and days == list(range(days[0], 32, step)):
        parts.append(f"every {ordinal(step)} day from the {ordinal(days[0])}")
    elif days:
        parts.append(f"the {_spans(field.days, [ordinal(day) for day in range(32)])}")
    for distance in values_of(field.days_before_last):
        if distance == 0:
            parts.append("the last day")
        else:
            parts.append(f"the {ordinal(distance + 1)} to last day")
    for day in values_of(field.nearest_weekdays):
        if day == LAST_DAY:
            parts.append("the last working day (Monday to Friday)")
        else:
            parts.append(f"the working day (Monday to Friday) nearest to the {ordinal(day)}")
    return f"on {listed(parts)} of the month"


def _weekdays(field: DaysOfWeek, last: str = "and") -> str:
    if field.weekdays == _EVERY_WEEKDAY:
        return ""
    parts = []
    if field.weekdays:
        # Sunday goes last, where it lets a span such as Friday through Sunday be seen.
        monday_first = field.weekdays >> 1 | (field.weekdays & 1) << 6
        parts.append(f"every {_spans(monday_first, [*WEEKDAYS[1:], WEEKDAYS[0]], last)}")
    of_month = [f"the {ordinal(n)} {WEEKDAYS[weekday]}" for weekday, n in field.occurrences]
    of_month += [f"the last {WEEKDAYS[weekday]}" for weekday in values_of(field.last)]
    if of_month:
        parts.append(f"{listed(of_month, last)} of the month")
    return f"on {listed(parts, last)}" if of_month else parts[0]


def _spans(members: int, names: Sequence[str], last: str = "and") -> str:
    """The values by name, runs of three and more as "first through last"."""
    runs: list[list[int]] = []
    for value in values_of(members):
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts = []
    for run in runs:
        if len(run) > 2:
            parts.append(f"{names[run[0]]} through {names[run[-1]]}")
        else:
            parts.extend(names[value] for value in run)
    return listed(parts, last)
