"""The catalogue of tasks, for those who submit by name without the code."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.model.job import Delivery, Priority


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A task as its workers registered it: the schema of its arguments and its defaults."""

    name: str
    schema: dict[str, Any]
    queue: str = "default"
    priority: int = Priority.NORMAL
    max_attempts: int = 1
    max_crashes: int = 3
    timeout: float | None = None
    expires_after: float | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    tags: tuple[str, ...] = ()
