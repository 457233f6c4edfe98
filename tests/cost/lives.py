"""The life of plain jobs, phase by phase, through the client and the store's own verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import duly
from duly.client.task import Task
from duly.model.identifiers import new_id
from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.model.settlement import succeed
from duly.model.worker import Worker

JOBS = 1_000
BATCH = 200
SINGLES = 50

PHASES = ("submit in bulk", "submit one by one", "claim", "settle")


async def noop() -> None:
    """Do nothing."""


class Lives:
    """Jobs that are submitted, claimed and settled when a test says so."""

    def __init__(self, app: duly.App) -> None:
        self.app = app
        self.task: Task[[], None] = app.task(noop)
        self._claimed: list[list[JobRecord]] = []
        self.demand = self._registered()

    def phases(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """Each phase in turn: its name, how many jobs pass through it, and what to call."""
        yield "submit in bulk", JOBS, self.submit_in_bulk
        yield "submit one by one", SINGLES, self.submit_one_by_one
        yield "claim", JOBS, self.claim
        yield "settle", JOBS, self.settle

    def whole(self) -> None:
        """All phases, so that what is prepared or planned once is out of the way."""
        for _, _, act in self.phases():
            act()

    def submit_in_bulk(self) -> None:
        """One call for all."""
        self.app.enqueue_many(self.task.job() for _ in range(JOBS))

    def submit_one_by_one(self) -> None:
        """A call a job, by one client."""
        for _ in range(SINGLES):
            self.task.enqueue()

    def claim(self) -> None:
        """Claim JOBS jobs in batches."""
        store = self.app.store
        for _ in range(JOBS // BATCH):
            jobs = store.run(store.claim(self.demand))
            assert len(jobs) == BATCH
            self._claimed.append(jobs)

    def settle(self) -> None:
        """Settle what was claimed, in batches."""
        store = self.app.store
        while self._claimed:
            jobs = self._claimed.pop()
            landed = store.run(store.settle([succeed(job.id, job.token, "1") for job in jobs]))
            assert all(landed)

    def _registered(self) -> Demand:
        store = self.app.store
        worker = Worker(
            id=new_id(),
            name="cost",
            machine="cost",
            pid=os.getpid(),
            process_started=0,
            queues=(),
            tasks=(self.task.name,),
            version="0",
        )
        store.run(store.register_worker(worker, timedelta(hours=1)))
        return Demand(worker=worker.id, queues=(), tasks=worker.tasks, limit=BATCH)


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[Lives]:
    """Lives on a new database, closed afterwards."""
    app = duly.App(url, **settings)
    app.migrate()
    try:
        yield Lives(app)
    finally:
        app.close()
