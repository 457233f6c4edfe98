"""Durations as people write them: seconds, timedelta, "1h30m", "PT1H30M"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from duly.errors import InvalidOption

Duration = timedelta | float | str
"""What `parse` takes."""

LONGEST = timedelta(days=36_525)

_EXAMPLE = 'seconds as a number, a timedelta, or text such as "90s", "24h", "1h30m", "500ms"'
_LONGEST_TEXT = 64
_MICROSECONDS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_GAP = re.compile(r"(?<=[a-z])\s+(?=[0-9])|(?<=[0-9])\s+(?=[a-z])")
_SECONDS = re.compile(_NUMBER)
_UNITS = re.compile("".join(rf"(?:{_NUMBER}{unit})?" for unit in _MICROSECONDS))
_ISO_8601 = re.compile(
    rf"P(?=[0-9T])(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_TEXT_FORMS = (
    (_SECONDS, ("s",)),
    (_UNITS, tuple(_MICROSECONDS)),
    (_ISO_8601, ("w", "d", "h", "m", "s")),
)


def parse(
    value: timedelta | int | float | str, option: str, *, negative: bool = False
) -> timedelta:
    """A duration from a timedelta, a number of seconds, or text.

    Text is a number of seconds ("90"), numbers with the units w, d, h, m, s, ms, us from large
    to small ("1h30m", "1.5h"), or ISO 8601 without years and months ("PT1H30M"), to the
    microsecond. Raises InvalidOption, naming `option` and showing what is right, for anything
    else, for NaN and infinities, for more than 100 years, and for negative durations unless
    `negative`.
    """
    duration = _read(value, option)
    if abs(duration) > LONGEST:
        raise _too_long(option)
    if duration < timedelta(0) and not negative:
        raise InvalidOption(option, f"it is negative: expected {_EXAMPLE}")
    return duration


def format(duration: timedelta) -> str:
    """The shortest readable text that `parse` reads as the same duration: "1h30m"."""
    microseconds = duration // timedelta(microseconds=1)
    if microseconds < 0:
        return "-" + format(-duration)
    if 0 < microseconds < _MICROSECONDS["s"]:
        unit = "ms" if microseconds >= _MICROSECONDS["ms"] else "us"
        return _number(microseconds, unit)
    if microseconds and microseconds % _MICROSECONDS["w"] == 0:
        return _number(microseconds, "w")
    parts = []
    for unit in ("d", "h", "m"):
        count, microseconds = divmod(microseconds, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if microseconds or not parts:
        parts.append(_number(microseconds, "s"))
    return "".join(parts)


def _number(microseconds: int, unit: str) -> str:
    whole, rest = divmod(microseconds, _MICROSECONDS[unit])
    digits = len(str(_MICROSECONDS[unit])) - 1
    fraction = f".{rest:0{digits}}".rstrip("0") if rest else ""
    return f"{whole}{fraction}{unit}"


def _read(value: object, option: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return _from_text(value, option)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(
            option, f"a {type(value).__name__} is not a duration: expected {_EXAMPLE}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(option, f"{value} is not a duration: expected {_EXAMPLE}")
    return _bounded(Decimal(value) * _MICROSECONDS["s"], option)


def _from_text(text: str, option: str) -> timedelta:
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    bare = _GAP.sub("", shown.strip()).removeprefix("-")
    sign = -1 if shown.strip().startswith("-") else 1
    for pattern, units in _TEXT_FORMS if bare else ():
        if match := pattern.fullmatch(bare):
            numbers = zip(match.groups(), units, strict=True)
            total = sum(Decimal(number or 0) * _MICROSECONDS[unit] for number, unit in numbers)
            return sign * _bounded(Decimal(total), option)
    raise InvalidOption(option, f"{shown!a} is not a duration: expected {_EXAMPLE}")


def _bounded(microseconds: Decimal, option: str) -> timedelta:
    """Judged before it is made: a timedelta cannot hold every number."""
    if abs(microseconds) > LONGEST // timedelta(microseconds=1):
        raise _too_long(option)
    return timedelta(microseconds=round(microseconds))


def _too_long(option: str) -> InvalidOption:
    return InvalidOption(option, f"more than 100 years: expected {_EXAMPLE}")
