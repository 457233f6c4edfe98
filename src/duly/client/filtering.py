"""Which jobs are asked for: conditions, checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypedDict, TypeVar

from duly.errors import InvalidOption
from duly.model.job import State
from duly.model.query import JobFilter
from duly.policy import options

S = TypeVar("S", bound=StrEnum)

MOST = 10_000


class Conditions(TypedDict, total=False):
    """Every condition given must hold, and all of `tags`.

    `created_from` and `finished_from` are included in the time asked for, `created_before` and
    `finished_before` are not.
    """

    state: State | str | Iterable[State | str] | None
    queue: str | None
    task: str | None
    key: str | None
    owner: str | None
    tenant: str | None
    schedule: str | None
    tags: Iterable[str] | None
    created_from: datetime | str | None
    created_before: datetime | str | None
    finished_from: datetime | str | None
    finished_before: datetime | str | None


def criteria(conditions: Conditions) -> JobFilter:
    """The conditions in the form that stores take."""
    values: dict[str, Any] = {}
    for name, value in conditions.items():
        if name not in _CHECKS:
            raise InvalidOption(name, f"there is no such condition; known are {_KNOWN}")
        if value is not None:
            values[_STORED_AS.get(name, name)] = _CHECKS[name](value, name)
    return JobFilter(**values)


def page(limit: int) -> int:
    """How many jobs a page may have."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidOption("limit", f"must be a whole number from 1 to {MOST:,}; got {limit!r}")
    return limit


def states_of(kind: type[S], value: str | Iterable[str], option: str = "state") -> frozenset[S]:
    """One state or several, of jobs or of flows."""
    given = [value] if isinstance(value, str) else value
    try:
        return frozenset(kind(each) for each in given)
    except (TypeError, ValueError) as error:
        known = ", ".join(state.value for state in kind)
        raise InvalidOption(option, f"{error}; known are {known}") from None


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "state": partial(states_of, State),
    "queue": options.queue,
    "task": options.task,
    "key": options.key,
    "owner": options.owner,
    "tenant": options.tenant,
    "schedule": options.schedule,
    "tags": options.tags,
    "created_from": options.instant,
    "created_before": options.instant,
    "finished_from": options.instant,
    "finished_before": options.instant,
}
_STORED_AS = {"state": "states", "schedule": "schedule_id"}
_KNOWN = ", ".join(_CHECKS)
