"""Events: something that happened, by name, with a payload."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.model.catalogue import CatalogueEntry


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting job gets and what a subscribed task is called with.

    `job_id` is the job that it is addressed to, if it is a signal to one.
    """

    id: str
    name: str
    key: str | None = None
    payload: Any = None
    at: datetime | None = None
    job_id: UUID | None = None


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is stored: `payload` is a JSON text. Events of one id are one event."""

    id: str
    name: str
    payload: str
    key: str | None = None
    job_id: UUID | None = None
    at: datetime | None = None

    def decoded(self) -> Event:
        """The event for application code."""
        return Event(
            id=self.id,
            name=self.name,
            key=self.key,
            payload=msgspec.json.decode(self.payload),
            at=self.at,
            job_id=self.job_id,
        )


class Emitted(msgspec.Struct, frozen=True):
    """What an emission did. Not `created`: an event of this id was there before, and this is it."""

    event: EventRecord
    created: bool
    started: tuple[UUID, ...] = ()
    woken: int = 0


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is started for each event whose name fits `pattern` and whose payload `where`.

    `entry` says how its jobs are made, `argument` under which name they get the event.
    """

    name: str
    pattern: str
    where: dict[str, Any] = {}
    entry: CatalogueEntry
    argument: str
