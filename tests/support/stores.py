"""Stores for the tests, and a scene to act on one with a hand-wound clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from duly.clock import ManualClock
from duly.model.attempt import Attempt, Failure
from duly.model.identifiers import new_id
from duly.model.job import Draft, JobRecord, State
from duly.model.journal import Journal
from duly.model.query import Cancellation, Demand, Enqueued, Reaped, Replay
from duly.model.settlement import Settlement, bury, retry, succeed
from duly.model.worker import Worker
from duly.store.operation import Operation
from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.writer import Writer

ENGINES = ("sqlite", "memory", "postgres")
FILES = ("sqlite", "postgres")
"""The engines that several processes can share."""

TASK = "work"
QUEUE = "default"
LEASE = timedelta(seconds=60)
T = TypeVar("T")


@contextmanager
def opened(
    engine: str,
    directory: Path,
    postgres_url: Callable[[], str],
    journal: Journal | None = None,
) -> Iterator[Store]:
    """An empty store of the engine, closed afterwards."""
    store: Store
    if engine == "postgres":
        store = PostgresStore(postgres_url(), journal=journal)
        store.migrate()
        empty(postgres_url())
    else:
        store = SqliteStore(str(directory / "duly.db") if engine == "sqlite" else "", journal)
    try:
        yield store
    finally:
        store.close()


def empty(url: str, schema: str = "duly") -> None:
    """Delete every row of a PostgreSQL store, which costs less than a new database."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT format('DELETE FROM %%I.%%I', nspname, relname) FROM pg_class"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
            " AND relname NOT IN ('migrations', 'installation')",
            (schema,),
        ).fetchall()
        connection.execute(";".join(row[0] for row in rows).encode())


def draft(**fields: Any) -> Draft:
    """A draft of an ordinary job, some of its fields given."""
    return Draft(**{"id": new_id(), "task": TASK, "arguments": "{}", **fields})


def worker(**fields: Any) -> Worker:
    """A worker process, some of its fields given."""
    return Worker(
        **{
            "id": new_id(),
            "name": "worker",
            "machine": "machine",
            "pid": 1,
            "process_started": 1,
            "queues": (QUEUE,),
            "tasks": (TASK,),
            "version": "1",
            **fields,
        }
    )


def failure(message: str = "boom") -> Failure:
    """What an attempt died of."""
    return Failure("ValueError", message, "Traceback ...", "ValueError:work")


def until(condition: Callable[[], T], timeout: float = 20.0) -> T:
    """Ask again and again until the answer is true; fail when it is not in time."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout:g} s")
        time.sleep(0.005)


def queued(writer: Writer, operation: Operation[T]) -> Future[T]:
    """An operation in the queue of SQLite's writer."""
    future: Future[T] = Future()
    writer.hand_in(operation, future)
    return future


class Scene:
    """A store, a clock that stands still, and the verbs in few words."""

    def __init__(self, store: Store, clock: ManualClock | None = None) -> None:
        self.store = store
        self.clock = clock or ManualClock()

    @property
    def now(self) -> datetime:
        """The scene's instant."""
        return self.clock.now()

    def advance(self, seconds: float) -> datetime:
        """Let time pass."""
        return self.clock.advance(timedelta(seconds=seconds))

    def enqueue(self, *drafts: Draft) -> Sequence[Enqueued]:
        """Submit the drafts in one batch."""
        return self.store.run(self.store.enqueue(drafts, self.now))

    def submit(self, **fields: Any) -> JobRecord:
        """Submit one draft and answer with its job."""
        return self.enqueue(draft(**fields))[0].job

    def submit_many(self, count: int, **fields: Any) -> list[JobRecord]:
        """Submit alike drafts in one batch."""
        return [each.job for each in self.enqueue(*(draft(**fields) for _ in range(count)))]

    def hire(self, lease: timedelta = LEASE, **fields: Any) -> UUID:
        """Register a worker and answer with its id."""
        hired = worker(**fields)
        self.store.run(self.store.register_worker(hired, lease, self.now))
        return hired.id

    def forget(self, holder: UUID) -> None:
        """Remove a worker's row behind the store's back, as a restored backup may."""
        with self.store.transaction() as connection:
            if self.store.url.startswith("sqlite"):
                connection.execute("DELETE FROM workers WHERE id = ?", (holder.bytes,))
            else:
                connection.execute("DELETE FROM duly.workers WHERE id = %s", (holder,))

    def claim(
        self,
        holder: UUID,
        limit: int = 10,
        queues: Sequence[str] = (QUEUE,),
        tasks: Sequence[str] = (TASK,),
        longest_waiting: int = 0,
        expiring: bool = True,
        due_by: datetime | None = None,
    ) -> list[JobRecord]:
        """Claim for a worker."""
        demand = Demand(
            worker=holder,
            queues=tuple(queues),
            tasks=tuple(tasks),
            limit=limit,
            longest_waiting=longest_waiting,
            expiring=expiring,
            due_by=due_by,
        )
        return self.store.run(self.store.claim(demand, self.now))

    def take(self, holder: UUID | None = None, **demand: Any) -> JobRecord:
        """Claim one job, which must be there; for a new worker unless one is given."""
        (job,) = self.claim(self.hire() if holder is None else holder, 1, **demand)
        return job

    def begin(self, job: JobRecord) -> bool:
        """Record that a claimed job starts."""
        return self.store.run(self.store.begin(job.id, job.token, self.now))

    def settle(self, *settlements: Settlement) -> list[bool]:
        """Settle in one batch."""
        return self.store.run(self.store.settle(settlements, self.now))

    def succeed(self, job: JobRecord, result: str | None = None) -> JobRecord:
        """End the claimed job's attempt well."""
        assert self.settle(succeed(job.id, job.token, result, job.flow_id)) == [True]
        return self.get(job.id)

    def fail(self, job: JobRecord, delay: float = 0.0, message: str = "boom") -> JobRecord:
        """End the claimed job's attempt badly; another follows."""
        settlement = retry(job.id, job.token, timedelta(seconds=delay), failure(message))
        assert self.settle(settlement) == [True]
        return self.get(job.id)

    def kill(self, job: JobRecord, reason: str = "exhausted") -> JobRecord:
        """End the claimed job's attempt badly; none follows."""
        assert self.settle(bury(job.id, job.token, reason, failure())) == [True]
        return self.get(job.id)

    def dead(self, **fields: Any) -> JobRecord:
        """Submit a job, claim it and let it die."""
        job = self.submit(**fields)
        holder = self.hire()
        claimed = self.claim(holder, 1000, (job.queue,), (job.task,))
        (mine,) = [each for each in claimed if each.id == job.id]
        assert len(claimed) == 1, "other jobs of this lane are due"
        return self.kill(mine)

    def finished(self, **fields: Any) -> JobRecord:
        """Submit a job, claim it and let it succeed."""
        job = self.submit(**fields)
        (mine,) = self.claim(self.hire(), 1000, (job.queue,), (job.task,))
        assert mine.id == job.id
        return self.succeed(mine)

    def get(self, job_id: UUID) -> JobRecord:
        """The job, which must be there."""
        (job,) = self.store.run(self.store.get([job_id]))
        assert job is not None
        return job

    def state(self, job_id: UUID) -> State:
        """The job's state."""
        return self.get(job_id).state

    def attempts(self, job_id: UUID) -> list[Attempt]:
        """The job's finished attempts."""
        return self.store.run(self.store.attempts(job_id))

    def cancel(self, *job_ids: UUID, reason: str | None = None) -> list[Cancellation]:
        """Ask for cancellation in one batch."""
        return self.store.run(self.store.cancel(job_ids, reason, self.now))

    def replay(self, *job_ids: UUID, arguments: str | None = None) -> list[Replay]:
        """Replay in one batch."""
        return self.store.run(self.store.replay(job_ids, arguments, self.now))

    def run_now(self, *job_ids: UUID) -> list[bool]:
        """Make due in one batch."""
        return self.store.run(self.store.run_now(job_ids, self.now))

    def reap(
        self, *workers: UUID, cause: str = "killed", expired_only: bool = True
    ) -> list[Reaped]:
        """Reap in one transaction."""
        return self.store.run(self.store.reap(workers, cause, expired_only, self.now))

    def crash(self, job: JobRecord) -> JobRecord:
        """Let the claimed job's worker die."""
        assert job.worker is not None
        self.reap(job.worker, expired_only=False)
        return self.get(job.id)

    def expire(self, limit: int = 1000) -> int:
        """Cancel what has expired."""
        return self.store.run(self.store.expire(limit, self.now))

    def next_due(
        self, queues: Sequence[str] = (QUEUE,), tasks: Sequence[str] = (TASK,)
    ) -> float | None:
        """Seconds until the next job is due."""
        due = self.store.run(self.store.next_due(queues, tasks, self.now))
        return None if due is None else due.seconds

    def counts(self) -> dict[tuple[str, State], int]:
        """Jobs by queue and state."""
        return {
            (count.queue, count.state): count.jobs for count in self.store.run(self.store.counts())
        }
