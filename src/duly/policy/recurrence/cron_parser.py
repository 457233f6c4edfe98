"""Cron text to a CronExpression, or an error that says where it is wrong and what would be right.

    minute hour day-of-month month day-of-week
    second minute hour day-of-month month day-of-week

or one of @hourly @daily @midnight @weekly @monthly @yearly @annually. The fields are described in
`cron_fields`, the rule for the two day fields in `cron_days.matching_days`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from duly.errors import InvalidSchedule
from duly.policy.recurrence.bits import values_of
from duly.policy.recurrence.cron_expression import CronExpression
from duly.policy.recurrence.cron_fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    FieldText,
    read_days_of_month,
    read_days_of_week,
    read_values,
)

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

# The longest that says something: every value of every field listed one by one.
_LONGEST = 600
_FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
_WORD = re.compile(r"\S+")
_EXAMPLE = "a right example: '30 2 * * mon-fri'"


@lru_cache(maxsize=4096)
def parse(text: str) -> CronExpression:
    """The meaning of a cron text. InvalidSchedule when it is malformed or can never fire.

    Kept for texts seen before: it depends on nothing but the text.
    """
    if len(text) > _LONGEST:
        raise InvalidSchedule(
            f"cron expression {text[:40]!r}...: {len(text):,} characters, at most {_LONGEST} are "
            f"allowed; {_EXAMPLE}"
        )
    words = list(_WORD.finditer(_expand(text)))
    if len(words) not in (5, 6):
        raise InvalidSchedule(_wrong_number(text, len(words)))
    sources = [
        FieldText(field, word.group(), number, word.start() + 1, text)
        for number, (field, word) in enumerate(zip(_FIELDS[-len(words) :], words, strict=True), 1)
    ]
    minute, hour, day_of_month, month, day_of_week = sources[-5:]
    expression = CronExpression(
        seconds=read_values(sources[0]) if len(sources) == 6 else 1,
        minutes=read_values(minute),
        hours=read_values(hour),
        months=read_values(month),
        days_of_month=read_days_of_month(day_of_month),
        days_of_week=read_days_of_week(day_of_week),
        fixed_time="*" not in minute.text and "*" not in hour.text,
    )
    if not expression.ever_matches():
        _refuse_never(expression, day_of_month, day_of_week)
    return expression


def _expand(text: str) -> str:
    stripped = text.strip().lower()
    if not stripped.startswith("@"):
        return text
    if stripped in MACROS:
        return MACROS[stripped]
    hint = ""
    if stripped.startswith("@reboot"):
        hint = ": a fleet has no reboot; enqueue the job where the program starts"
    elif stripped.startswith("@every"):
        hint = ": a fixed rate is a rule of its own, every(minutes=5)"
    raise InvalidSchedule(
        f"cron expression {text!r}: unknown name{hint}; known are {', '.join(MACROS)}"
    )


def _wrong_number(text: str, count: int) -> str:
    hint = ""
    if count == 7:
        hint = " (a field for years is not supported: give the schedule a start and an end)"
    return (
        f"cron expression {text!r}: {count} fields, 5 are needed (minute hour day-of-month month "
        f"day-of-week) or 6 with seconds first{hint}; {_EXAMPLE}"
    )


def _refuse_never(
    expression: CronExpression, day_of_month: FieldText, day_of_week: FieldText
) -> NoReturn:
    months = " or ".join(
        MONTH.names[value - 1].capitalize() for value in values_of(expression.months)
    )
    days = []
    if day_of_month.text not in ("*", "?"):
        days.append(f"day-of-month {day_of_month.text!r}")
    if day_of_week.text not in ("*", "?"):
        days.append(f"day-of-week {day_of_week.text!r}")
    source = day_of_month if day_of_month.text not in ("*", "?") else day_of_week
    source.refuse(f"it can never fire: no day in {months} matches {' and '.join(days)}")
