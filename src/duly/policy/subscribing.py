"""Which events start which jobs: patterns of names, conditions on payloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from duly.errors import InvalidOption
from duly.model.event import EventRecord, Subscription
from duly.model.identifiers import new_id
from duly.model.job import Draft

LONGEST_NAME = 128

_NAME = re.compile(r"[A-Za-z0-9_:/-]+(\.[A-Za-z0-9_:/-]+)*")
_PATTERN = re.compile(r"(\*|[A-Za-z0-9_:/-]+)(\.(\*|[A-Za-z0-9_:/-]+))*")


def event_name(value: object, option: str = "name") -> str:
    """An event's name: 1 to 128 ASCII letters, digits and `_:/-`, in parts with dots between."""
    if isinstance(value, str) and len(value) <= LONGEST_NAME and _NAME.fullmatch(value):
        return value
    raise InvalidOption(
        option,
        f"{value!r} is not an event's name: expected up to {LONGEST_NAME} letters, digits and "
        '_:/- in parts with dots between, such as "order.paid"',
    )


def event_pattern(value: object, option: str = "pattern") -> str:
    """An event's name in which parts may be `*`; a `*` at the end stands for one part or more."""
    if isinstance(value, str) and len(value) <= LONGEST_NAME and _PATTERN.fullmatch(value):
        return value
    raise InvalidOption(
        option,
        f"{value!r} is not a pattern of event names: expected such as "
        '"order.paid", "order.*" or "*.created"',
    )


def conditions(value: object, option: str = "where") -> dict[str, Any]:
    """Conditions on a payload: a path of names with dots between, and a value or a list of those
    that are right."""
    if not isinstance(value, Mapping) or not all(isinstance(path, str) for path in value):
        raise InvalidOption(
            option,
            f"{value!r} is not a set of conditions: expected paths in the payload and their "
            'values, such as {"currency": "EUR", "customer.country": ["DE", "AT"]}',
        )
    return dict(value)


def fits(pattern: str, name: str) -> bool:
    """Whether the name fits the pattern."""
    wanted, parts = pattern.split("."), name.split(".")
    if wanted[-1] == "*" and len(parts) > len(wanted):
        parts = parts[: len(wanted)]
    return len(wanted) == len(parts) and all(
        each in ("*", part) for each, part in zip(wanted, parts, strict=True)
    )


def holds(where: Mapping[str, Any], payload: Any) -> bool:
    """Whether every condition holds for the payload."""
    return all(_holds(path, right, payload) for path, right in where.items())


def _holds(path: str, right: Any, payload: Any) -> bool:
    value = payload
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return value in right if isinstance(right, list) else bool(value == right)


def drafts_for(event: EventRecord, subscriptions: Iterable[Subscription]) -> list[Draft]:
    """The jobs that a new event starts, one for each subscription that fits; none for a signal,
    which is for one job only."""
    if event.job_id is not None:
        return []
    decoded = event.decoded()
    return [
        _draft(event, subscription)
        for subscription in subscriptions
        if fits(subscription.pattern, event.name) and holds(subscription.where, decoded.payload)
    ]


def _draft(event: EventRecord, subscription: Subscription) -> Draft:
    entry = subscription.entry
    arguments = msgspec.json.encode({subscription.argument: event.decoded()}).decode()
    expires_after = entry.expires_after
    return Draft(
        id=new_id(),
        task=entry.name,
        arguments=arguments,
        queue=entry.queue,
        priority=entry.priority,
        max_attempts=entry.max_attempts,
        max_crashes=entry.max_crashes,
        delivery=entry.delivery,
        timeout=entry.timeout,
        expires_after=None if expires_after is None else timedelta(seconds=expires_after),
        tags=entry.tags,
        metadata=msgspec.json.encode({"event": event.id, "event_name": event.name}).decode(),
    )
