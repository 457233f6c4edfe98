"""Events as application code emits them, and the subscriptions that its code declares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly.client.client import Client, as_id
from duly.model.event import Emitted, Event, EventRecord, Subscription
from duly.model.identifiers import new_id
from duly.policy import options
from duly.policy.subscribing import event_name
from duly.registry import strict_json
from duly.store.operation import Operation

SEEN_ENOUGH = timedelta(hours=1)


class Events:
    """Hands events to a store and asks for them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._declared = 0

    def emit(self, event: EventRecord, connection: object | None) -> Emitted:
        """Store the event; in the caller's transaction when there is one."""
        run = self._client.run if connection is None else self._client.store.carry(connection).run
        declared = self._undeclared()
        if declared and not self._joins(connection):
            run(self._client.store.subscribe(declared, SEEN_ENOUGH))
            self._declared = len(declared)
        elif declared and (missing := _missing(declared, run(self._client.store.subscriptions()))):
            run(self._client.store.subscribe(missing))
        return run(self._emission(event))[0]

    async def aemit(self, event: EventRecord, connection: object | None) -> Emitted:
        """The same without blocking the event loop."""
        client = self._client
        arun = client.arun if connection is None else (await client.store.acarry(connection)).arun
        declared = self._undeclared()
        if declared and not self._joins(connection):
            await arun(client.store.subscribe(declared, SEEN_ENOUGH))
            self._declared = len(declared)
        elif declared and (missing := _missing(declared, await arun(client.store.subscriptions()))):
            await arun(client.store.subscribe(missing))
        return (await arun(self._emission(event)))[0]

    def record(
        self, name: str, payload: Any, key: str | None, event_id: str | None, job: UUID | str | None
    ) -> EventRecord:
        """The event that these make, checked."""
        encoded = strict_json.encode(payload)
        limit = self._client.config.payload_limit
        strict_json.check_size(encoded, f"the payload of event {name!r}", limit)
        return EventRecord(
            id=str(new_id()) if event_id is None else options.key(event_id, "id"),
            name=event_name(name),
            payload=encoded.decode(),
            key=None if key is None else options.key(str(key)),
            job_id=None if job is None else as_id(job),
        )

    def list(
        self, limit: int, name: str | None, key: str | None, before: str | None
    ) -> Sequence[Event]:
        """Stored events, the latest first."""
        found = self._client.run(self._client.store.events(limit, name, key, before))
        return [event.decoded() for event in found]

    def _undeclared(self) -> Sequence[Subscription]:
        """What an app that emits has subscribed itself to must be known before; nothing when it
        is. What is declared in a caller's transaction may be rolled back: it is looked at again.
        """
        declared = tuple(self._client.registry.subscriptions)
        return declared if len(declared) != self._declared else ()

    def _joins(self, connection: object | None) -> bool:
        return connection is not None or self._client.in_transaction

    def _emission(self, event: EventRecord) -> Operation[Sequence[Emitted]]:
        return self._client.store.emit([event])


def _missing(
    declared: Sequence[Subscription], stored: Sequence[Subscription]
) -> Sequence[Subscription]:
    """Those that are not stored as they are. Others are not written: that would hold their rows
    until the caller's transaction ends."""
    return [each for each in declared if each not in stored]
