"""Events and subscriptions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.errors import StoreError
from duly.model.event import Emitted, EventRecord, Subscription
from duly.policy.subscribing import drafts_for
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.rows import CLOCK, NOW
from duly.store.postgres.settling import Settling
from duly.store.postgres.step_rows import EVENT_LIST, event_record
from duly.store.postgres.suspension import lock_of

# In the order of their numbers, as everybody takes several locks.
LOCK = f"""
SELECT pg_advisory_xact_lock_shared(number), current_setting('transaction_isolation')
FROM (
    SELECT DISTINCT {lock_of("name")} AS number
    FROM unnest(%(names)s::text[]) AS emitted (name) ORDER BY 1
) AS locks
"""
INSERT = f"""
WITH {CLOCK}
INSERT INTO {{schema}}.events ({EVENT_LIST})
SELECT id, name, payload, key, job, {NOW}
FROM unnest(%(ids)s::text[], %(names)s::text[], %(payloads)s::text[], %(keys)s::text[],
    %(jobs)s::uuid[]) WITH ORDINALITY AS event (id, name, payload, key, job, place)
ORDER BY place
ON CONFLICT (id) DO NOTHING RETURNING {EVENT_LIST}
"""
KNOWN = f"SELECT {EVENT_LIST} FROM {{schema}}.events WHERE id = ANY(%(ids)s::text[])"
WAITING = """
SELECT emitted.id, waits.job_id
FROM unnest(%(ids)s::text[], %(names)s::text[], %(keys)s::text[], %(jobs)s::uuid[])
    AS emitted (id, name, key, job)
JOIN {schema}.waits ON waits.name = emitted.name
    AND (waits.key IS NULL OR waits.key = emitted.key)
    AND (emitted.job IS NULL OR emitted.job = waits.job_id)
"""
EVENTS = f"""
SELECT {EVENT_LIST} FROM {{schema}}.events
WHERE (%(name)s::text IS NULL OR name = %(name)s) AND (%(key)s::text IS NULL OR key = %(key)s)
AND (%(before)s::text IS NULL
    OR number < (SELECT number FROM {{schema}}.events WHERE id = %(before)s))
ORDER BY number DESC LIMIT %(limit)s
"""
SUBSCRIBE = f"""
WITH {CLOCK}
INSERT INTO {{schema}}.subscriptions AS known (name, definition, last_seen)
SELECT name, definition, {NOW}
FROM unnest(%(names)s::text[], %(definitions)s::text[]) AS declared (name, definition)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, last_seen = excluded.last_seen
WHERE known.definition <> excluded.definition
OR known.last_seen < excluded.last_seen - %(unless_seen)s::interval
"""
SUBSCRIPTIONS = 'SELECT definition FROM {schema}.subscriptions ORDER BY name COLLATE "C"'
UNSUBSCRIBE = (
    "DELETE FROM {schema}.subscriptions WHERE name = ANY(%(names)s::text[]) RETURNING name"
)
FORGET = "DELETE FROM {schema}.subscriptions WHERE last_seen < %(before)s RETURNING name"
PURGE = """
DELETE FROM {schema}.events WHERE id = ANY(ARRAY(
    SELECT id FROM {schema}.events WHERE at < %(before)s LIMIT %(limit)s
)) RETURNING 1
"""


class Events(Settling):
    """The verbs about events."""

    def emit(
        self, events: Sequence[EventRecord], now: datetime | None = None
    ) -> Operation[list[Emitted]]:
        return Operation(
            lambda: self._emit(events, now),
            again=lambda: self._emit(events, now),
            wakes=frozenset({Wake.WORKERS}),
        )

    def events(
        self,
        limit: int,
        name: str | None = None,
        key: str | None = None,
        before: str | None = None,
    ) -> Operation[list[EventRecord]]:
        values = {"limit": limit, "name": name, "key": key, "before": before}
        return Operation(lambda: self._events(values), writes=False, atomic=False)

    def subscribe(
        self,
        subscriptions: Sequence[Subscription],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        return Operation(
            lambda: self._subscribe(subscriptions, unless_seen, now),
            again=lambda: self._subscribe(subscriptions, unless_seen, now),
            atomic=False,
        )

    def subscriptions(self) -> Operation[list[Subscription]]:
        return Operation(self._subscriptions, writes=False, atomic=False)

    def unsubscribe(self, names: Sequence[str]) -> Operation[int]:
        return Operation(lambda: self._number(UNSUBSCRIBE, {"names": list(names)}), atomic=False)

    def forget_subscriptions(self, before: datetime) -> Operation[int]:
        return Operation(lambda: self._number(FORGET, {"before": before}), atomic=False)

    def purge_events(self, before: datetime, limit: int) -> Operation[int]:
        values = {"before": before, "limit": limit}
        return Operation(lambda: self._number(PURGE, values), atomic=False)

    def _emit(self, events: Sequence[EventRecord], now: datetime | None) -> Steps[list[Emitted]]:
        unique = list({event.id: event for event in reversed(events)}.values())[::-1]
        if not unique:
            return []
        names = sorted({event.name for event in unique})
        locks = yield Statement(LOCK, {"names": names, "schema": self.schema})
        _refuse_old_snapshot(locks[0][1])
        rows = yield Statement(self.text(INSERT), {"now": now, **_columns(unique)})
        fresh = {event.id: event for event in map(event_record, rows)}
        subscriptions = yield from self._subscriptions()
        drafts = {event.id: drafts_for(event, subscriptions) for event in fresh.values()}
        started = [draft for each in drafts.values() for draft in each]
        if started:
            yield from self._enqueue(started, now)
        woken = yield from self._wake_waiting(list(fresh.values()), now)
        known = dict(fresh)
        missing = [event.id for event in unique if event.id not in fresh]
        if missing:
            rows = yield Statement(self.text(KNOWN), {"ids": missing})
            known |= {event.id: event for event in map(event_record, rows)}
        answers = []
        for event in events:
            new = event.id in fresh
            jobs = tuple(draft.id for draft in drafts.pop(event.id, ()))
            answers.append(Emitted(known[event.id], new, jobs, woken.pop(event.id, 0)))
            fresh.pop(event.id, None)
        return answers

    def _wake_waiting(
        self, events: Sequence[EventRecord], now: datetime | None
    ) -> Steps[dict[str, int]]:
        """Wake the jobs that wait for these events; answers how many each event has woken."""
        if not events:
            return {}
        values = _columns(events)
        del values["payloads"]
        rows = yield Statement(self.text(WAITING), values)
        woken: dict[str, int] = {}
        asleep: dict[UUID, str] = {}
        for event_id, job_id in rows:
            asleep.setdefault(job_id, event_id)
        yield from self._wake(sorted(asleep), now)
        for event_id in asleep.values():
            woken[event_id] = woken.get(event_id, 0) + 1
        return woken

    def _events(self, values: Mapping[str, object]) -> Steps[list[EventRecord]]:
        rows = yield Statement(self.text(EVENTS), values)
        return [event_record(row) for row in rows]

    def _subscribe(
        self, subscriptions: Sequence[Subscription], unless_seen: timedelta, now: datetime | None
    ) -> Steps[None]:
        yield Statement(
            self.text(SUBSCRIBE),
            {
                "names": [each.name for each in subscriptions],
                "definitions": [msgspec.json.encode(each).decode() for each in subscriptions],
                "unless_seen": unless_seen,
                "now": now,
            },
        )

    def _subscriptions(self) -> Steps[list[Subscription]]:
        rows = yield Statement(self.text(SUBSCRIPTIONS))
        return [msgspec.json.decode(row[0], type=Subscription) for row in rows]

    def _number(self, text: str, values: Mapping[str, object]) -> Steps[int]:
        rows = yield Statement(self.text(text), values)
        return len(rows)


def _columns(events: Sequence[EventRecord]) -> dict[str, object]:
    return {
        "ids": [event.id for event in events],
        "names": [event.name for event in events],
        "payloads": [event.payload for event in events],
        "keys": [event.key for event in events],
        "jobs": [event.job_id for event in events],
    }


def _refuse_old_snapshot(isolation: str) -> None:
    """In a transaction that sees only what was there at its start, a job that has begun to wait
    since then would not be woken."""
    if isolation != "read committed":
        raise StoreError(
            f"an event cannot be emitted in a transaction that is {isolation}: it does not see "
            "which jobs wait by now. Emit after it, in one that is READ COMMITTED, or enqueue in "
            "it a task that emits"
        )
