"""Workers, queues and the catalogue on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.model.catalogue import CatalogueEntry
from duly.model.identifiers import id_of
from duly.model.query import QueueState
from duly.model.worker import Worker
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.sqlite.rows import array, clock, duration, worker_record

REGISTER = (
    "INSERT INTO workers (id, name, machine, pid, process_started, queues, tasks, version,"
    " started_at, lease_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
)
RENEW = "UPDATE workers SET lease_until = ? WHERE id = ? RETURNING id"
WORKERS = (
    "SELECT id, name, machine, pid, process_started, queues, tasks, version, started_at,"
    " lease_until - ? FROM workers ORDER BY started_at, id"
)
HELD = "SELECT id, token FROM jobs WHERE worker = ? AND state = 'running'"
PAUSE = (
    "INSERT INTO paused_queues (queue, note) VALUES (?, ?)"
    " ON CONFLICT (queue) DO UPDATE SET note = excluded.note"
)
RESUME = "DELETE FROM paused_queues WHERE queue = ? RETURNING queue"
QUEUES = (
    "SELECT name, paused.queue IS NOT NULL, paused.note"
    " FROM (SELECT queue AS name FROM lanes UNION SELECT queue FROM paused_queues)"
    " LEFT JOIN paused_queues paused ON paused.queue = name ORDER BY name"
)
PUBLISH = (
    "INSERT INTO catalogue (name, entry) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET entry = excluded.entry WHERE entry <> excluded.entry"
)
CATALOGUE = "SELECT entry FROM catalogue ORDER BY name"


def _register(worker: Worker, lease: timedelta, now: datetime | None) -> Steps[None]:
    instant = clock(now)
    yield Statement(
        REGISTER,
        (
            worker.id.bytes,
            worker.name,
            worker.machine,
            worker.pid,
            worker.process_started,
            array(worker.queues),
            array(worker.tasks),
            worker.version,
            instant,
            instant + duration(lease),
        ),
    )


def _renew(
    workers: Sequence[UUID], lease: timedelta, now: datetime | None
) -> Steps[frozenset[UUID]]:
    until = clock(now) + duration(lease)
    rows = yield Statement(RENEW, [(until, worker.bytes) for worker in workers], many=True)
    return frozenset(id_of(row[0]) for row in rows)


def _workers(now: datetime | None) -> Steps[list[Worker]]:
    rows = yield Statement(WORKERS, (clock(now),))
    return [worker_record(row) for row in rows]


def _held(worker: UUID) -> Steps[list[tuple[UUID, int]]]:
    rows = yield Statement(HELD, (worker.bytes,))
    return [(id_of(job_id), token) for job_id, token in rows]


def _pause(queue: str, note: str | None) -> Steps[None]:
    yield Statement(PAUSE, (queue, note))


def _resume(queue: str) -> Steps[bool]:
    rows = yield Statement(RESUME, (queue,))
    return bool(rows)


def _queues() -> Steps[list[QueueState]]:
    rows = yield Statement(QUEUES)
    return [QueueState(name, bool(paused), note) for name, paused, note in rows]


def _publish(entries: Sequence[CatalogueEntry]) -> Steps[None]:
    yield Statement(
        PUBLISH,
        [(entry.name, msgspec.json.encode(entry).decode()) for entry in entries],
        many=True,
    )


def _catalogue() -> Steps[list[CatalogueEntry]]:
    rows = yield Statement(CATALOGUE)
    return [msgspec.json.decode(entry, type=CatalogueEntry) for (entry,) in rows]


class Fleet:
    """The verbs about workers, queues and tasks."""

    def register_worker(
        self, worker: Worker, lease: timedelta, now: datetime | None = None
    ) -> Operation[None]:
        return Operation(lambda: _register(worker, lease, now))

    def renew(
        self, workers: Sequence[UUID], lease: timedelta, now: datetime | None = None
    ) -> Operation[frozenset[UUID]]:
        return Operation(lambda: _renew(workers, lease, now))

    def workers(self, now: datetime | None = None) -> Operation[list[Worker]]:
        return Operation(lambda: _workers(now), writes=False)

    def held(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        return Operation(lambda: _held(worker), writes=False)

    def pause_queue(self, queue: str, note: str | None = None) -> Operation[None]:
        return Operation(lambda: _pause(queue, note))

    def resume_queue(self, queue: str) -> Operation[bool]:
        return Operation(lambda: _resume(queue), wakes=frozenset({Wake.WORKERS}))

    def queues(self) -> Operation[list[QueueState]]:
        return Operation(_queues, writes=False)

    def publish_tasks(self, entries: Sequence[CatalogueEntry]) -> Operation[None]:
        return Operation(lambda: _publish(entries))

    def catalogue(self) -> Operation[list[CatalogueEntry]]:
        return Operation(_catalogue, writes=False)
