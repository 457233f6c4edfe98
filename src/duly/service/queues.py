"""Queues: how full they are, who serves them, pause and resume."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.model.job import State
from duly.policy import options
from duly.service.explain import is_live, serves
from duly.store.protocol import Store


class QueueOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment; `jobs` has a count for every state.

    `oldest_due_at` is since when the job that waits for longest is due, None when none is.
    """

    name: str
    paused: bool
    note: str | None
    workers: int
    oldest_due_at: datetime | None
    jobs: dict[State, int]


class Queues:
    """The use cases about the queues of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def overview(self) -> list[QueueOverview]:
        """Every queue that has jobs, had some, is paused or is served by a live worker."""
        switches = {queue.name: queue for queue in self._store.run(self._store.queues())}
        live = [each for each in self._store.run(self._store.workers()) if is_live(each)]
        oldest = {each.queue: each.since for each in self._store.run(self._store.longest_waiting())}
        jobs: dict[str, dict[State, int]] = {}
        for count in self._store.run(self._store.counts()):
            jobs.setdefault(count.queue, {})[count.state] = count.jobs
        served = {queue for worker in live for queue in worker.queues}
        return [
            QueueOverview(
                name=name,
                paused=name in switches and switches[name].paused,
                note=switches[name].note if name in switches else None,
                workers=sum(1 for worker in live if serves(worker, name)),
                oldest_due_at=oldest.get(name),
                jobs={state: jobs.get(name, {}).get(state, 0) for state in State},
            )
            for name in sorted({*switches, *jobs, *served})
        ]

    def pause(self, queue: str, note: str | None = None) -> None:
        """Stop claims from the queue, also from one that has had no job yet."""
        self._store.run(self._store.pause_queue(options.queue(queue), note))

    def resume(self, queue: str) -> bool:
        """Allow claims again; answers whether the queue was paused."""
        return self._store.run(self._store.resume_queue(options.queue(queue)))
