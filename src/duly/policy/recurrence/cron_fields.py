"""The fields of a cron expression: their ranges and names, and how one field's text is read.

A field is a list of terms, separated by commas. A term is `*`, a value, a range `a-b`, or one of
these with a step: `*/n`, `a-b/n`, `a/n` (from a to the end of the field). Values are numbers or,
for months and weekdays, English names of three letters in either case. Sunday is 0 or 7.

Beyond Vixie cron, day of month takes `L`, `L-3`, `15W`, `LW`, and day of week takes `fri#2`, `friL`
(numbers too: `5#2`, `5L`); both take `?` for `*`.

A range may wrap around (`22-2`, `fri-mon`, `nov-feb`): it can only be meant one way. Day of month
is the exception, since months end on different days. A step larger than the field is refused: it
would match the first value only, which is never what was meant (`*/90` minutes).
"""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from duly.errors import InvalidSchedule
from duly.policy.recurrence.bits import all_bits, bits_of
from duly.policy.recurrence.cron_days import LAST_DAY, DaysOfMonth, DaysOfWeek

_BEFORE_LAST = re.compile(r"l-([0-9]{1,2})")
_NEAREST_WEEKDAY = re.compile(r"([0-9]{1,2})w")
_OCCURRENCE = re.compile(r"([^#]*)#(.*)")


class Field(msgspec.Struct, frozen=True):
    """What a field is called, which values it takes, and a whole expression that is right."""

    name: str
    low: int
    high: int
    names: tuple[str, ...]
    example: str


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

SECOND = Field("second", 0, 59, (), "*/10 * * * * *")
MINUTE = Field("minute", 0, 59, (), "*/15 * * * *")
HOUR = Field("hour", 0, 23, (), "0 9-17 * * *")
DAY_OF_MONTH = Field("day-of-month", 1, 31, (), "0 9 1,15 * *")
MONTH = Field("month", 1, 12, _MONTHS, "0 9 1 jan,jul *")
DAY_OF_WEEK = Field("day-of-week", 0, 6, _WEEKDAYS, "0 9 * * mon-fri")


class FieldText(msgspec.Struct, frozen=True):
    """The text of one field of an expression, and where it stands (both counted from 1)."""

    field: Field
    text: str
    number: int
    column: int
    expression: str

    def refuse(self, problem: str) -> NoReturn:
        """Raise InvalidSchedule that names the field, its place and a right example."""
        raise InvalidSchedule(
            f"cron expression {self.expression!r}: {self.field.name} {self.text!r} "
            f"(field {self.number}, column {self.column}): {problem}; "
            f"a right example: {self.field.example!r}"
        )

    @property
    def unrestricted(self) -> bool:
        """Whether the field counts as unrestricted for the rule of the two day fields."""
        return self.text.startswith(("*", "?"))


def read_values(source: FieldText) -> int:
    """The values of a second, minute, hour or month field, as bits."""
    members = 0
    for term in _terms(source):
        members |= _values(source, term)
    return members


def read_days_of_month(source: FieldText) -> DaysOfMonth:
    """The day-of-month field with its `L`, `L-n`, `nW`, `LW` and `?`."""
    days = days_before_last = nearest_weekdays = 0
    for term in _terms(source):
        if term == "l":
            days_before_last |= 1
        elif term == "lw":
            nearest_weekdays |= 1 << LAST_DAY
        elif match := _BEFORE_LAST.fullmatch(term):
            distance = int(match[1])
            if not 1 <= distance <= 30:
                source.refuse(f"{term.upper()!r} counts back from the last day: L-1 to L-30")
            days_before_last |= 1 << distance
        elif match := _NEAREST_WEEKDAY.fullmatch(term):
            nearest_weekdays |= 1 << _value(source, match[1])
        elif "l" in term or "w" in term:
            source.refuse(f"{term!r} is none of L, L-3, LW and 15W")
        else:
            days |= _values(source, term)
    return DaysOfMonth(days, days_before_last, nearest_weekdays, source.unrestricted)


def read_days_of_week(source: FieldText) -> DaysOfWeek:
    """The day-of-week field with its `fri#2`, `friL` and `?`; 7 becomes 0."""
    weekdays = last = 0
    occurrences = set()
    for term in _terms(source):
        if term == "l":
            source.refuse("'L' needs a weekday: 'friL' is the last Friday of the month")
        elif match := _OCCURRENCE.fullmatch(term):
            if match[2] not in {"1", "2", "3", "4", "5"}:
                source.refuse(f"{term!r}: a month has up to five of a weekday, #1 to #5")
            occurrences.add((_value(source, match[1]) % 7, int(match[2])))
        elif term.endswith("l"):
            last |= 1 << _value(source, term[:-1]) % 7
        else:
            weekdays |= _values(source, term)
    if weekdays >> 7:
        weekdays = weekdays & all_bits(0, 6) | 1
    return DaysOfWeek(weekdays, tuple(sorted(occurrences)), last, source.unrestricted)


def _terms(source: FieldText) -> list[str]:
    text = source.text.lower()
    if text == "?":
        if source.field not in (DAY_OF_MONTH, DAY_OF_WEEK):
            source.refuse("'?' is for the two day fields only")
        return ["*"]
    terms = text.split(",")
    if "" in terms:
        source.refuse("a value is missing beside a comma")
    return terms


def _values(source: FieldText, term: str) -> int:
    """The values of a plain term: `*`, `a`, `a-b`, and these with `/step`."""
    field = source.field
    body, slash, step_text = term.partition("/")
    step = _step(source, term, step_text) if slash else 1
    if body == "*":
        return bits_of(range(field.low, field.high + 1, step))
    start_text, dash, end_text = body.partition("-")
    start = _value(source, start_text)
    end = _value(source, end_text) if dash else _highest(field) if slash else start
    if field is DAY_OF_WEEK:
        # The week runs from 0 to 7, with Sunday at both ends: "1/2" is Monday, Wednesday, Friday
        # and Sunday, "fri-sun" ends on 7, "7-2" starts on 0.
        if start == 7:
            start, end = 0, end if slash and not dash else end % 7
        elif end == 0 and start > 0:
            end = 7
    if start <= end:
        return bits_of(range(start, end + 1, step))
    if field is DAY_OF_MONTH:
        source.refuse(
            f"{body!r} runs backwards, and months end on different days: write '{start}-31,1-{end}'"
        )
    wrapped = [*range(start, field.high + 1), *range(field.low, end + 1)]
    return bits_of(wrapped[::step])


def _value(source: FieldText, text: str) -> int:
    field = source.field
    if text in field.names:
        return field.low + field.names.index(text)
    if not (text.isascii() and text.isdigit()):
        names = f" or a name ({field.names[0]} to {field.names[-1]})" if field.names else ""
        wanted = f"a number from {field.low} to {_highest(field)}{names}"
        source.refuse(f"{text!r} is not {wanted}" if text else f"{wanted} is missing")
    value = int(text)
    if not field.low <= value <= _highest(field):
        source.refuse(f"{text} is not between {field.low} and {_highest(field)}")
    return value


def _step(source: FieldText, term: str, text: str) -> int:
    largest = source.field.high - source.field.low
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        source.refuse(f"{term!r}: the step after '/' must be a number from 1 to {largest}")
    if int(text) > largest:
        source.refuse(
            f"{term!r}: a step of {int(text)} is longer than the field, it would match the first "
            "value only; name that value, or use a fixed rate such as every(minutes=90)"
        )
    return int(text)


def _highest(field: Field) -> int:
    return 7 if field is DAY_OF_WEEK else field.high
