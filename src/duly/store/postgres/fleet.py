"""Workers, queues and the catalogue on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.model.catalogue import CatalogueEntry
from duly.model.query import QueueState
from duly.model.worker import Worker
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.rows import CLOCK, NOW, InSchema, worker_record

REGISTER = f"""
WITH {CLOCK}
INSERT INTO {{schema}}.workers (id, name, machine, pid, process_started, queues, tasks, version,
    started_at, lease_until)
VALUES (%(id)s, %(name)s, %(machine)s, %(pid)s, %(process_started)s, %(queues)s, %(tasks)s,
    %(version)s, {NOW}, {NOW} + %(lease)s)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""
RENEW = f"""
WITH {CLOCK}
UPDATE {{schema}}.workers SET lease_until = {NOW} + %(lease)s
WHERE id = ANY(%(workers)s::uuid[]) RETURNING id
"""
WORKERS = f"""
WITH {CLOCK}
SELECT id, name, machine, pid, process_started, queues, tasks, version, started_at,
    extract(epoch FROM lease_until - {NOW})::float8
FROM {{schema}}.workers ORDER BY started_at, id
"""
HELD = """
SELECT id, token FROM {schema}.jobs WHERE state = 'running' AND worker = %(worker)s::uuid
"""
PAUSE = """
INSERT INTO {schema}.paused_queues (queue, note) VALUES (%(queue)s, %(note)s)
ON CONFLICT (queue) DO UPDATE SET note = excluded.note
"""
RESUME = "DELETE FROM {schema}.paused_queues WHERE queue = %(queue)s RETURNING queue"
QUEUES = """
SELECT name, paused.queue IS NOT NULL, paused.note
FROM (SELECT queue AS name FROM {schema}.lanes UNION SELECT queue FROM {schema}.paused_queues) named
LEFT JOIN {schema}.paused_queues paused ON paused.queue = name ORDER BY name
"""
PUBLISH = """
INSERT INTO {schema}.catalogue (name, entry)
SELECT * FROM unnest(%(names)s::text[], %(entries)s::text[]) AS published (name, entry)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET entry = excluded.entry WHERE catalogue.entry <> excluded.entry
"""
CATALOGUE = "SELECT entry FROM {schema}.catalogue ORDER BY name"


class Fleet(InSchema):
    """The verbs about workers, queues and tasks."""

    def register_worker(
        self, worker: Worker, lease: timedelta, now: datetime | None = None
    ) -> Operation[None]:
        return Operation(
            lambda: self._register(worker, lease, now),
            again=lambda: self._register(worker, lease, now),
            atomic=False,
        )

    def renew(
        self, workers: Sequence[UUID], lease: timedelta, now: datetime | None = None
    ) -> Operation[frozenset[UUID]]:
        return Operation(
            lambda: self._renew(workers, lease, now),
            again=lambda: self._renew(workers, lease, now),
            atomic=False,
        )

    def workers(self, now: datetime | None = None) -> Operation[list[Worker]]:
        return Operation(lambda: self._workers(now), writes=False, atomic=False)

    def held(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        return Operation(lambda: self._held(worker), writes=False, atomic=False)

    def pause_queue(self, queue: str, note: str | None = None) -> Operation[None]:
        return Operation(
            lambda: self._pause(queue, note),
            again=lambda: self._pause(queue, note),
            atomic=False,
        )

    def resume_queue(self, queue: str) -> Operation[bool]:
        return Operation(lambda: self._resume(queue), atomic=False, wakes=frozenset({Wake.WORKERS}))

    def queues(self) -> Operation[list[QueueState]]:
        return Operation(self._queues, writes=False, atomic=False)

    def publish_tasks(self, entries: Sequence[CatalogueEntry]) -> Operation[None]:
        return Operation(
            lambda: self._publish(entries), again=lambda: self._publish(entries), atomic=False
        )

    def catalogue(self) -> Operation[list[CatalogueEntry]]:
        return Operation(self._catalogue, writes=False, atomic=False)

    def _register(self, worker: Worker, lease: timedelta, now: datetime | None) -> Steps[None]:
        yield Statement(
            self.text(REGISTER),
            {
                "id": worker.id,
                "name": worker.name,
                "machine": worker.machine,
                "pid": worker.pid,
                "process_started": worker.process_started,
                "queues": list(worker.queues),
                "tasks": list(worker.tasks),
                "version": worker.version,
                "lease": lease,
                "now": now,
            },
        )

    def _renew(
        self, workers: Sequence[UUID], lease: timedelta, now: datetime | None
    ) -> Steps[frozenset[UUID]]:
        rows = yield Statement(
            self.text(RENEW), {"workers": list(workers), "lease": lease, "now": now}
        )
        return frozenset(row[0] for row in rows)

    def _workers(self, now: datetime | None) -> Steps[list[Worker]]:
        rows = yield Statement(self.text(WORKERS), {"now": now})
        return [worker_record(row) for row in rows]

    def _held(self, worker: UUID) -> Steps[list[tuple[UUID, int]]]:
        rows = yield Statement(self.text(HELD), {"worker": worker})
        return [(job_id, token) for job_id, token in rows]

    def _pause(self, queue: str, note: str | None) -> Steps[None]:
        yield Statement(self.text(PAUSE), {"queue": queue, "note": note})

    def _resume(self, queue: str) -> Steps[bool]:
        rows = yield Statement(self.text(RESUME), {"queue": queue})
        return bool(rows)

    def _queues(self) -> Steps[list[QueueState]]:
        rows = yield Statement(self.text(QUEUES))
        return [QueueState(name, paused, note) for name, paused, note in rows]

    def _publish(self, entries: Sequence[CatalogueEntry]) -> Steps[None]:
        latest = {entry.name: msgspec.json.encode(entry).decode() for entry in entries}
        yield Statement(
            self.text(PUBLISH), {"names": list(latest), "entries": list(latest.values())}
        )

    def _catalogue(self) -> Steps[list[CatalogueEntry]]:
        rows = yield Statement(self.text(CATALOGUE))
        return [msgspec.json.decode(entry, type=CatalogueEntry) for (entry,) in rows]
