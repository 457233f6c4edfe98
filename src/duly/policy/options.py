"""What the options of a task or a submission may be.

Each function returns the value in its normal form, or raises InvalidOption with an example of a
right one. `option` is the name under which the user gave it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from duly.errors import InvalidOption
from duly.model.job import Priority
from duly.policy import duration

LONGEST_NAME = 128
LONGEST_KEY = 512
LONGEST_OWNER = 255
LONGEST_TAG = 128
LONGEST_REASON = 1000
MOST_TAGS = 32
HIGHEST_PRIORITY = 100
MOST_RETRIES = 1000

_NAME = re.compile(r"[A-Za-z0-9._:/][A-Za-z0-9._:/-]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRIORITIES = {member.name.lower(): member.value for member in Priority}
_INSTANT_EXAMPLE = (
    'expected an aware datetime such as datetime.now(UTC), or text such as "2026-01-31T09:00:00Z"'
)


def priority(value: int | str, option: str = "priority") -> int:
    """An integer from 0 to 100, higher first; or low (1), normal (5), high (10), urgent (20)."""
    if isinstance(value, str) and value.lower() in _PRIORITIES:
        return _PRIORITIES[value.lower()]
    if _is_integer(value) and 0 <= int(value) <= HIGHEST_PRIORITY:
        return int(value)
    raise InvalidOption(
        option,
        f"{_shown(value)} is not a priority: expected an integer from 0 to {HIGHEST_PRIORITY} "
        'such as 10, or one of "low", "normal", "high", "urgent"',
    )


def queue(value: str, option: str = "queue") -> str:
    """A queue's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "mail")


def task(value: str, option: str = "task") -> str:
    """A task's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "shop.send_email")


def schedule(value: str, option: str = "name") -> str:
    """A schedule's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "reports:daily")


def application(value: str, option: str = "application") -> str:
    """An application's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "shop")


def flow(value: str, option: str = "name") -> str:
    """A flow's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "reports:nightly")


def node(value: str, option: str = "name") -> str:
    """A node's name: 1 to 128 ASCII letters, digits and `._-:/`, no dash in front."""
    return _name(value, option, "load:orders")


def note(value: str, option: str = "note") -> str:
    """Why something is paused: 1 to 1000 characters, no NUL."""
    return _text(value, option, LONGEST_REASON, "moving the database")


def key(value: str, option: str = "key") -> str:
    """A key that makes a job unique: 1 to 512 characters, no NUL."""
    return _text(value, option, LONGEST_KEY, "welcome:42")


def owner(value: str, option: str = "owner") -> str:
    """Who a job belongs to: 1 to 255 characters, no NUL."""
    return _text(value, option, LONGEST_OWNER, "billing-service")


def tenant(value: str, option: str = "tenant") -> str:
    """The tenant a job runs for: 1 to 255 characters, no NUL."""
    return _text(value, option, LONGEST_OWNER, "acme")


def reason(value: str, option: str = "reason") -> str:
    """Why somebody did something to a job: 1 to 1000 characters, no NUL."""
    return _text(value, option, LONGEST_REASON, "ordered by mistake")


def tags(value: Iterable[str], option: str = "tags") -> tuple[str, ...]:
    """Up to 32 different strings of 1 to 128 characters, in the order given, each once."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidOption(
            option, f'{_shown(value)} is not a list of strings: expected such as ["mail", "eu"]'
        )
    distinct = tuple(dict.fromkeys(_text(tag, option, LONGEST_TAG, "mail") for tag in value))
    if len(distinct) > MOST_TAGS:
        raise InvalidOption(option, f"{len(distinct)} tags: expected at most {MOST_TAGS}")
    return distinct


def instant(value: datetime | str, option: str = "run_at") -> datetime:
    """An instant in UTC, from an aware datetime or ISO 8601 text with an offset."""
    moment: object = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = value
    if not isinstance(moment, datetime):
        raise InvalidOption(option, f"{_shown(value)} is not an instant: {_INSTANT_EXAMPLE}")
    if moment.utcoffset() is None:
        raise InvalidOption(
            option,
            f"{moment.isoformat()} has no time zone: make it with datetime.now(UTC), or say which "
            "zone is meant with .replace(tzinfo=...); as text it ends in an offset, such as "
            '"2026-01-31T09:00:00Z"',
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidOption(
            option, f"{moment.isoformat()} has no equal in UTC: {_INSTANT_EXAMPLE}"
        ) from None


def retries(value: int, option: str = "retries") -> int:
    """How often a failed job is tried again: an integer from 0 to 1000."""
    if _is_integer(value) and 0 <= value <= MOST_RETRIES:
        return int(value)
    raise InvalidOption(
        option, f"{_shown(value)}: expected an integer from 0 to {MOST_RETRIES} such as 5"
    )


def timeout(value: timedelta | int | float | str, option: str = "timeout") -> timedelta:
    """How long an attempt may run: a duration above zero."""
    return _positive(value, option)


def expires(
    value: datetime | timedelta | int | float | str, option: str = "expires"
) -> datetime | timedelta:
    """When a job that has not started is given up: an instant in UTC, or a duration above zero
    that counts from submission. Text that begins with a date is an instant."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return instant(value, option)
    return _positive(value, option)


def _positive(value: timedelta | int | float | str, option: str) -> timedelta:
    length = duration.parse(value, option)
    if not length:
        raise InvalidOption(option, 'it is zero: expected more, such as 30 or "24h"')
    return length


def _name(value: object, option: str, example: str) -> str:
    if isinstance(value, str) and len(value) <= LONGEST_NAME and _NAME.fullmatch(value):
        return str(value)
    raise InvalidOption(
        option,
        f"{_shown(value)} is not a name: expected 1 to {LONGEST_NAME} letters (a-z, A-Z), digits "
        f'or any of . _ - : / without a dash in front, such as "{example}"',
    )


def _text(value: object, option: str, longest: int, example: str) -> str:
    if not isinstance(value, str):
        problem = f"a {type(value).__name__} is not text"
    elif not 1 <= len(value) <= longest:
        problem = f"it has {len(value)} characters"
    elif "\0" in value:
        problem = "it contains a NUL character"
    elif _SURROGATE.search(value):
        problem = "it is not valid Unicode: it contains a lone surrogate"
    else:
        return str(value)
    raise InvalidOption(
        option, f'{problem}: expected 1 to {longest} characters, such as "{example}"'
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """The value in an error message: short, inert, and never a failure of its own."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= LONGEST_NAME else f"{value[:LONGEST_NAME]!a}..."
    if isinstance(value, int) and abs(value) > 2**63:
        return "an integer beyond 64 bits"
    if value is None or isinstance(value, int | float):
        return repr(value)
    return f"a {type(value).__name__}"
