"""The options of a submission, checked when they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

import msgspec

from duly.errors import InvalidOption
from duly.model.job import KeyPolicy
from duly.policy import options
from duly.policy.duration import parse as parse_duration
from duly.registry import strict_json

Duration = timedelta | float | str


class SubmissionOptions(TypedDict, total=False):
    """What `using(...)` takes, for tasks and for tasks known by name only."""

    delay: Duration | None
    run_at: datetime | None
    priority: int | None
    queue: str | None
    key: str | None
    key_policy: KeyPolicy | str | None
    key_window: Duration | None
    retries: int | None
    timeout: Duration | None
    expires: datetime | Duration | None
    tags: Iterable[str] | None
    tenant: str | None
    owner: str | None
    metadata: Mapping[str, Any] | None
    connection: object | None


class Options(msgspec.Struct, frozen=True):
    """What one submission asks for beyond its task's defaults; None means the default."""

    delay: timedelta | None = None
    run_at: datetime | None = None
    priority: int | None = None
    queue: str | None = None
    key: str | None = None
    key_policy: KeyPolicy = KeyPolicy.RETURN
    key_window: float | None = None
    retries: int | None = None
    timeout: float | None = None
    expires_at: datetime | None = None
    expires_after: timedelta | None = None
    tags: tuple[str, ...] | None = None
    tenant: str | None = None
    owner: str | None = None
    metadata: str | None = None
    connection: object | None = None

    def merged(self, **given: Any) -> Options:
        """These options with others laid over them, each checked."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in _CHECKS:
                raise InvalidOption(name, f"there is no such option; known are {_KNOWN}")
            if value is not None:
                values |= _CHECKS[name](value)
        if values.get("run_at") is not None and values.get("delay") is not None:
            raise InvalidOption("delay", "give either delay or run_at, not both")
        if "run_at" in values:
            values.setdefault("delay", None)
        if "delay" in values:
            values.setdefault("run_at", None)
        merged = msgspec.structs.replace(self, **values)
        if merged.key is None and (merged.key_window or merged.key_policy is not KeyPolicy.RETURN):
            raise InvalidOption("key", "key_policy and key_window need a key, such as 'order:42'")
        return merged


def _key_policy(value: Any) -> dict[str, Any]:
    try:
        return {"key_policy": KeyPolicy(value)}
    except ValueError:
        raise InvalidOption(
            "key_policy", f"must be 'return', 'replace' or 'reject'; got {value!r}"
        ) from None


def _expires(value: Any) -> dict[str, Any]:
    checked = options.expires(value)
    if isinstance(checked, datetime):
        return {"expires_at": checked, "expires_after": None}
    return {"expires_after": checked, "expires_at": None}


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption(
            "metadata",
            f"a {type(value).__name__} is not a mapping: expected such as {{'source': 'import'}}",
        )
    plain = dict(value)
    strict_json.check(plain)
    return {"metadata": strict_json.encode(plain).decode()}


_CHECKS: dict[str, Any] = {
    "delay": lambda value: {"delay": parse_duration(value, "delay")},
    "run_at": lambda value: {"run_at": options.instant(value, "run_at")},
    "priority": lambda value: {"priority": options.priority(value)},
    "queue": lambda value: {"queue": options.queue(value)},
    "key": lambda value: {"key": options.key(value)},
    "key_policy": _key_policy,
    "key_window": lambda value: {"key_window": parse_duration(value, "key_window").total_seconds()},
    "retries": lambda value: {"retries": options.retries(value)},
    "timeout": lambda value: {"timeout": options.timeout(value).total_seconds()},
    "expires": _expires,
    "tags": lambda value: {"tags": options.tags(value)},
    "tenant": lambda value: {"tenant": options.tenant(value)},
    "owner": lambda value: {"owner": options.owner(value)},
    "metadata": _metadata,
    "connection": lambda value: {"connection": value},
}
_KNOWN = ", ".join(_CHECKS)
