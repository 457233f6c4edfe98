"""What a worker does, by hand: jobs are claimed and settled when a test says so."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from duly import App, Failure, Job
from duly.model.identifiers import new_id
from duly.model.job import JobRecord
from duly.model.query import Demand
from duly.model.settlement import Settlement, bury, succeed
from duly.model.worker import Worker


class Hand:
    """A registered worker that does only what it is told."""

    def __init__(self, app: App) -> None:
        self._store = app.store
        self.id = new_id()
        worker = Worker(
            id=self.id,
            name="hand",
            machine="test",
            pid=1,
            process_started=0,
            queues=(),
            tasks=(),
            version="test",
        )
        self._store.run(self._store.register_worker(worker, timedelta(minutes=5)))

    def claim(self, *tasks: str, queue: str = "default", limit: int = 1) -> list[JobRecord]:
        """Claim due jobs of these tasks."""
        demand = Demand(worker=self.id, queues=(queue,), tasks=tasks, limit=limit)
        return self._store.run(self._store.claim(demand))

    def settle(self, settlement: Settlement) -> None:
        """Write an outcome, which must land."""
        assert self._store.run(self._store.settle([settlement])) == [True]

    def succeed(self, job: Job[object], result: object = None) -> None:
        """Run the job's task to its end, with this result."""
        claimed = self._only(job)
        self.settle(succeed(claimed.id, claimed.token, _text(result)))

    def succeed_all(self, task: str, result: Callable[[dict[str, Any]], object]) -> None:
        """Finish every due job of a task, with a result made of its arguments."""
        claimed = self.claim(task, limit=1000)
        outcomes = [
            succeed(each.id, each.token, _text(result(msgspec.json.decode(each.arguments))))
            for each in claimed
        ]
        assert all(self._store.run(self._store.settle(outcomes)))

    def bury(self, job: Job[object], error: Failure | None = None) -> None:
        """Let the job die."""
        claimed = self._only(job)
        self.settle(bury(claimed.id, claimed.token, "out of attempts", error))

    def _only(self, job: Job[object]) -> JobRecord:
        (claimed,) = self.claim(job.task, queue=job.queue)
        assert claimed.id == job.id
        return claimed


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
