"""Events and subscriptions on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from duly.model.event import Emitted, EventRecord, Subscription
from duly.policy.subscribing import drafts_for
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.sqlite.rows import clock, duration, micros, moment
from duly.store.sqlite.step_rows import EVENT_LIST, event_record, event_row
from duly.store.sqlite.submission import enqueue
from duly.store.sqlite.suspension import wake

INSERT_EVENT = (
    f"INSERT INTO events ({EVENT_LIST}) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
EVENT = f"SELECT {EVENT_LIST} FROM events WHERE id = ?"
WAITING = (
    "SELECT DISTINCT job_id FROM waits WHERE name = ?1 AND (key IS NULL OR key = ?2)"
    " AND (?3 IS NULL OR job_id = ?3)"
)
EVENTS = (
    f"SELECT {EVENT_LIST} FROM events WHERE (?1 IS NULL OR name = ?1) AND (?2 IS NULL OR key = ?2)"
    " AND (?3 IS NULL OR number < (SELECT number FROM events WHERE id = ?3))"
    " ORDER BY number DESC LIMIT ?4"
)
SUBSCRIBE = (
    "INSERT INTO subscriptions (name, definition, last_seen) VALUES (?1, ?2, ?3)"
    " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition,"
    " last_seen = excluded.last_seen"
    " WHERE definition <> excluded.definition OR last_seen < excluded.last_seen - ?4"
)
SUBSCRIPTIONS = "SELECT definition FROM subscriptions ORDER BY name"
UNSUBSCRIBE = "DELETE FROM subscriptions WHERE name = ? RETURNING name"
FORGET = "DELETE FROM subscriptions WHERE last_seen < ? RETURNING name"
PURGE = (
    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE at < ? LIMIT ?)"
    " RETURNING number"
)


def _emit(events: Sequence[EventRecord], now: datetime | None) -> Steps[list[Emitted]]:
    instant = clock(now)
    subscriptions = yield from _subscriptions()
    answers = []
    for event in events:
        created = yield Statement(INSERT_EVENT, event_row(event, instant))
        if not created:
            (row,) = yield Statement(EVENT, (event.id,))
            answers.append(Emitted(event_record(row), created=False))
            continue
        stored = msgspec.structs.replace(event, at=moment(instant))
        drafts = drafts_for(stored, subscriptions)
        yield from enqueue(drafts, now)
        target = None if event.job_id is None else event.job_id.bytes
        rows = yield Statement(WAITING, (event.name, event.key, target))
        woken = yield from wake([row[0] for row in rows], instant)
        answers.append(Emitted(stored, True, tuple(draft.id for draft in drafts), woken))
    return answers


def _events(
    limit: int, name: str | None, key: str | None, before: str | None
) -> Steps[list[EventRecord]]:
    rows = yield Statement(EVENTS, (name, key, before, limit))
    return [event_record(row) for row in rows]


def _subscribe(
    subscriptions: Sequence[Subscription], unless_seen: timedelta, now: datetime | None
) -> Steps[None]:
    instant = clock(now)
    yield Statement(
        SUBSCRIBE,
        [
            (each.name, msgspec.json.encode(each).decode(), instant, duration(unless_seen))
            for each in subscriptions
        ],
        many=True,
    )


def _subscriptions() -> Steps[list[Subscription]]:
    rows = yield Statement(SUBSCRIPTIONS)
    return [msgspec.json.decode(row[0], type=Subscription) for row in rows]


def _unsubscribe(names: Sequence[str]) -> Steps[int]:
    rows = yield Statement(UNSUBSCRIBE, [(name,) for name in names], many=True)
    return len(rows)


def _forget_subscriptions(before: datetime) -> Steps[int]:
    rows = yield Statement(FORGET, (micros(before),))
    return len(rows)


def _purge_events(before: datetime, limit: int) -> Steps[int]:
    rows = yield Statement(PURGE, (micros(before), limit))
    return len(rows)


class Events:
    """The verbs about events."""

    def emit(
        self, events: Sequence[EventRecord], now: datetime | None = None
    ) -> Operation[list[Emitted]]:
        return Operation(lambda: _emit(events, now), wakes=frozenset({Wake.WORKERS}))

    def events(
        self,
        limit: int,
        name: str | None = None,
        key: str | None = None,
        before: str | None = None,
    ) -> Operation[list[EventRecord]]:
        return Operation(lambda: _events(limit, name, key, before), writes=False)

    def subscribe(
        self,
        subscriptions: Sequence[Subscription],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        return Operation(lambda: _subscribe(subscriptions, unless_seen, now))

    def subscriptions(self) -> Operation[list[Subscription]]:
        return Operation(_subscriptions, writes=False)

    def unsubscribe(self, names: Sequence[str]) -> Operation[int]:
        return Operation(lambda: _unsubscribe(names))

    def forget_subscriptions(self, before: datetime) -> Operation[int]:
        return Operation(lambda: _forget_subscriptions(before))

    def purge_events(self, before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: _purge_events(before, limit))
