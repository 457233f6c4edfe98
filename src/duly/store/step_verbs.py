"""The verbs about durable steps and events; part of the contract in `protocol`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from duly.model.event import Emitted, EventRecord, Subscription
from duly.model.step import EventWait, Recorded, Step, StepWrite
from duly.store.operation import Operation


class StepVerbs(Protocol):
    """What a running attempt records, what wakes a suspended job, and what starts jobs.

    A settlement that takes a job to `waiting` writes the steps of its waits in the same
    transaction. The job is due again at the first `until` of them. Before that it is made pending
    by an event that fits one of its waits, in the transaction that emits it, and by the end of a
    job whose parent it is, in the transaction that ends that. What has come already when the job
    is suspended makes it pending at once: whatever the order, a wake-up is never lost, though one
    may come in vain. A job that would end dead or cancelled and has compensations is made pending
    with `undoing` set instead; so it ends only once they have run.
    """

    def steps(self, job_id: UUID, now: datetime | None = None) -> Operation[Recorded]:
        """All recorded steps of the job, in the order they were recorded."""
        ...

    def steps_of(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[Recorded]]:
        """The same for each of these jobs, in their order."""
        ...

    def record(
        self, writes: Sequence[StepWrite], now: datetime | None = None
    ) -> Operation[list[Step | None]]:
        """Write steps, each with the job that it starts; answers with each as it is stored.

        None: the token is stale or the job is not running, and nothing of it was written. A step
        that is done is not changed.
        """
        ...

    def take_event(
        self, token: int, step: Step, wait: EventWait, now: datetime | None = None
    ) -> Operation[tuple[bool, Step | None]]:
        """Record the step as done with the first event that fits; answers whether the token is
        good, and the step if there was such an event. Its result is the event as JSON."""
        ...

    def emit(
        self, events: Sequence[EventRecord], now: datetime | None = None
    ) -> Operation[list[Emitted]]:
        """Store events, start a job for each subscription that fits, and wake the jobs that wait.

        All in one transaction, and only for events whose id is new. Answers in order.
        """
        ...

    def events(
        self,
        limit: int,
        name: str | None = None,
        key: str | None = None,
        before: str | None = None,
    ) -> Operation[list[EventRecord]]:
        """Stored events, the latest first, of this name and key, older than the one of id
        `before`."""
        ...

    def subscribe(
        self,
        subscriptions: Sequence[Subscription],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        """Say that running code declares these; the latest word on a name holds. One that was
        seen, as it is, no longer than `unless_seen` ago is not written again."""
        ...

    def subscriptions(self) -> Operation[list[Subscription]]:
        """Every stored subscription, by name."""
        ...

    def unsubscribe(self, names: Sequence[str]) -> Operation[int]:
        """Remove subscriptions; answers how many there were."""
        ...

    def forget_subscriptions(self, before: datetime) -> Operation[int]:
        """Remove subscriptions that were last declared before that; answers how many."""
        ...

    def purge_events(self, before: datetime, limit: int) -> Operation[int]:
        """Forget up to `limit` events emitted before that; answers how many."""
        ...

    def purge_steps(self, before: datetime, limit: int) -> Operation[int]:
        """Forget up to `limit` steps recorded before that whose jobs are forgotten, and waits of
        jobs that do not wait; answers how many steps."""
        ...
