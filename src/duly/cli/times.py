"""Times as they are typed: a moment, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from duly.policy import duration, options

_DATE = re.compile(r"\d{4}-")


def since(text: str | None, option: str) -> datetime | None:
    """The moment that an option names: `2026-11-16T09:00Z`, or `2h` for two hours ago."""
    if text is None:
        return None
    if _DATE.match(text):
        return options.instant(text, option)
    return datetime.now(UTC) - duration.parse(text, option)


def length(text: str | None, option: str) -> timedelta | None:
    """The duration that an option gives, such as `30s` or `1h30m`."""
    return None if text is None else duration.parse(text, option)
