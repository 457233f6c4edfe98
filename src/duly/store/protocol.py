"""The verbs every engine offers. The docstrings here are the contract.

Each verb returns an Operation: nothing happens until it is run. Where a verb takes `now`, the
database's clock is used when it is absent; tests and simulations pass their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from duly.model.attempt import Attempt
from duly.model.catalogue import CatalogueEntry
from duly.model.job import Draft, JobRecord, State
from duly.model.query import (
    Cancellation,
    Count,
    Demand,
    Due,
    Enqueued,
    JobFilter,
    QueueState,
    Reaped,
    Replay,
    Waiting,
)
from duly.model.report import LogLine, Progress
from duly.model.settlement import Settlement
from duly.model.worker import Worker
from duly.store.flow_verbs import FlowVerbs
from duly.store.journal_verbs import JournalVerbs
from duly.store.operation import Operation, Wake
from duly.store.schedule_verbs import ScheduleVerbs
from duly.store.step_verbs import StepVerbs

T = TypeVar("T")


class Verbs(ScheduleVerbs, FlowVerbs, StepVerbs, JournalVerbs, Protocol):
    """What can be done to jobs, and asked about them."""

    def enqueue(
        self, drafts: Sequence[Draft], now: datetime | None = None, repeated: bool = False
    ) -> Operation[Sequence[Enqueued]]:
        """Store the drafts, all or none, and answer for each in order.

        A draft whose key is held by a live job, or by one that finished within its window, is
        not stored: by its policy the answer is the holder (`return`), the holder with the
        draft's contents if it has not started (`replace`; else as `return`), or KeyConflict for
        the whole batch (`reject`). Submitting an id again while its job is live changes
        nothing and answers with that job; whoever may have submitted it before says `repeated`,
        and a finished job is found and answered with, too.
        """
        ...

    def claim(self, demand: Demand, now: datetime | None = None) -> Operation[list[JobRecord]]:
        """Make due jobs running under the demanding worker, each with its next token.

        Only pending and waiting jobs with run_at <= now, in the given queues and of the given
        tasks, not in a paused queue: highest priority first, then earliest run_at, then id. A job
        is given to one claimer at most. The attempt is charged now; an uncharged outcome gives it
        back. A job whose expires_at has passed is not given to anybody, but cancelled as expired if
        that is asked for. Raises LeaseLost when the worker is not registered or its lease has
        ended. Fewer than `limit` does not mean that no more are due: another claimer may have held
        them for a moment. A worker may claim what is due a little later, each as of its own
        run_at, and starts it then; its lease is judged by now.
        """
        ...

    def allow_silence(self, longest: timedelta) -> Operation[None]:
        """In a caller's transaction: let it be without a statement for so long, whatever the
        server's own setting; after that the server may end it."""
        ...

    def begin(self, job_id: UUID, token: int, now: datetime | None = None) -> Operation[bool]:
        """Record that a claimed at-most-once job starts. False: the token is stale."""
        ...

    def settle(
        self, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[list[bool]]:
        """End attempts: for each, write the attempt's row and move the job, in one transaction.

        Answers in order whether each landed. One with a stale token, or of a job that is not
        running, changes nothing and gets False. A job that would go back to pending although
        its cancellation was requested is cancelled. Final states release the job's key, and
        move the job's flow on. An attempt that is suspended leaves no row. See StepVerbs for
        waiting jobs and compensations.
        """
        ...

    def register_worker(
        self, worker: Worker, lease: timedelta, now: datetime | None = None
    ) -> Operation[None]:
        """Make the worker known, its lease starting now."""
        ...

    def renew(
        self, workers: Sequence[UUID], lease: timedelta, now: datetime | None = None
    ) -> Operation[frozenset[UUID]]:
        """Extend leases; answers whose were. A worker not among them has been reaped.

        A lease that has ended but that nobody has reaped is extended all the same: nobody else
        can hold its jobs.
        """
        ...

    def workers(self, now: datetime | None = None) -> Operation[list[Worker]]:
        """Every registered worker, also those whose lease has ended."""
        ...

    def held(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        """Job and token of everything that runs under the worker."""
        ...

    def reap(
        self,
        workers: Sequence[UUID],
        cause: str,
        expired_only: bool = True,
        now: datetime | None = None,
    ) -> Operation[list[Reaped]]:
        """Remove workers and take back their running jobs, in one transaction.

        With `expired_only`, a worker whose lease holds at that moment is left alone. What
        becomes of each job is decided by duly.policy.reaping. No claim of a reaped worker can
        commit afterwards.
        """
        ...

    def reap_orphans(self, cause: str, now: datetime | None = None) -> Operation[list[Reaped]]:
        """Take back running jobs whose worker is not registered."""
        ...

    def cancel(
        self, job_ids: Sequence[UUID], reason: str | None = None, now: datetime | None = None
    ) -> Operation[list[Cancellation]]:
        """Cancel what has not started, ask for it where it runs, or where compensations have to
        run first; answers in order."""
        ...

    def cancel_requests(self, worker: UUID) -> Operation[list[tuple[UUID, int]]]:
        """Job and token of the worker's running jobs whose cancellation was requested."""
        ...

    def replay(
        self,
        job_ids: Sequence[UUID],
        arguments: str | None = None,
        now: datetime | None = None,
        keep_steps: bool = True,
    ) -> Operation[list[Replay]]:
        """Make dead jobs pending and due, in a new generation with fresh attempts.

        Id, key, token and the rows of earlier attempts stay; recorded steps too, unless they have
        been compensated or `keep_steps` is false. `arguments` replaces theirs. A job whose key
        another holds by now stays dead (`key_held`). A flow goes on from the job that is replayed,
        unless it is still on its way out (`flow_ending`). Answers in order.
        """
        ...

    def run_now(
        self, job_ids: Sequence[UUID], now: datetime | None = None
    ) -> Operation[list[bool]]:
        """Make pending jobs due now; answers in order whether each was pending."""
        ...

    def expire(self, limit: int, now: datetime | None = None) -> Operation[int]:
        """Cancel up to `limit` pending jobs whose expires_at has passed; answers how many."""
        ...

    def next_due(
        self,
        queues: Sequence[str],
        tasks: Sequence[str],
        now: datetime | None = None,
        exact: bool = True,
    ) -> Operation[Due | None]:
        """When the earliest claimable job is due, None without any.

        An answer that need not be `exact` may leave out, for some seconds, what became claimable
        with a due time of the past, as claims may while that makes them much faster.
        """
        ...

    def longest_waiting(self, now: datetime | None = None) -> Operation[list[Waiting]]:
        """Every queue with a due job, by name; paused ones and tasks that nobody knows too."""
        ...

    def get(self, job_ids: Sequence[UUID]) -> Operation[list[JobRecord | None]]:
        """The jobs in order, live or finished; None where there is none."""
        ...

    def attempts(self, job_id: UUID) -> Operation[list[Attempt]]:
        """The job's finished attempts, in the order they were made."""
        ...

    def find(
        self, criteria: JobFilter, limit: int, before: UUID | None = None
    ) -> Operation[list[JobRecord]]:
        """Jobs that match, newest id first, with ids below `before` (the cursor)."""
        ...

    def counts(self) -> Operation[list[Count]]:
        """How many jobs each queue has in each state, finished ones within retention too."""
        ...

    def purge(
        self, state: State, finished_before: datetime, limit: int, queue: str | None = None
    ) -> Operation[int]:
        """Delete up to `limit` jobs of a final state, with their attempts; answers how many."""
        ...

    def discard(self, job_ids: Sequence[UUID]) -> Operation[int]:
        """Delete those of the jobs that are dead, with their attempts; answers how many."""
        ...

    def report(self, progress: Sequence[Progress], lines: Sequence[LogLine]) -> Operation[None]:
        """Keep what running jobs say; progress of an earlier claim does not undo a later one's."""
        ...

    def progress(self, job_id: UUID) -> Operation[Progress | None]:
        """The job's latest progress."""
        ...

    def log_lines(self, job_id: UUID) -> Operation[list[LogLine]]:
        """The job's log lines, in the order they were written."""
        ...

    def purge_surplus(
        self, state: State, keep: int, limit: int, queue: str | None = None
    ) -> Operation[int]:
        """Delete up to `limit` jobs of a final state beyond the `keep` that finished last."""
        ...

    def free_keys(self, limit: int, now: datetime | None = None) -> Operation[int]:
        """Forget up to `limit` keys whose window has passed; answers how many."""
        ...

    def pause_queue(self, queue: str, note: str | None = None) -> Operation[None]:
        """Stop claims from the queue. Submission goes on."""
        ...

    def resume_queue(self, queue: str) -> Operation[bool]:
        """Allow claims again; answers whether the queue was paused."""
        ...

    def queues(self) -> Operation[list[QueueState]]:
        """Every queue that ever had a job or was paused, by name."""
        ...

    def publish_tasks(self, entries: Sequence[CatalogueEntry]) -> Operation[None]:
        """Write tasks to the catalogue; the latest word on a name holds."""
        ...

    def catalogue(self) -> Operation[list[CatalogueEntry]]:
        """Every catalogued task, by name."""
        ...


class Transaction(Protocol):
    """The caller's transaction, on a connection that can carry operations."""

    def run(self, operation: Operation[T]) -> T:
        """Run the operation in this transaction; it commits or not with the rest of it."""
        ...

    def nested(self) -> AbstractContextManager[None]:
        """A block within this transaction: if it raises, what it did is undone, no more."""
        ...


class AsyncTransaction(Protocol):
    """The caller's transaction, on an asynchronous connection."""

    async def arun(self, operation: Operation[T]) -> T:
        """Run the operation in this transaction; it commits or not with the rest of it."""
        ...


class Change(Protocol):
    """A way to wait for somebody's commit without asking the database again and again."""

    @property
    def hears(self) -> bool:
        """Whether it works here; if not, `wait` only sleeps, and one has to ask."""
        ...

    @property
    def descriptor(self) -> int | None:
        """Becomes readable when something may have changed; then `wait` with no time tells, without
        blocking, and this may be another descriptor. None where one has to block."""
        ...

    def wait(self, timeout: float) -> bool:
        """Block until something may have changed, at most `timeout` seconds; was it so?"""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class Store(Verbs, Protocol):
    """An engine at one URL. Safe to use from any thread, any event loop, and after a fork."""

    @property
    def drops_whole_days(self) -> bool:
        """Whether `tend` forgets archived jobs a day at a time."""
        ...

    def tend(self, oldest: datetime) -> list[str]:
        """Make room for the days to come, and drop the archive's days that end before `oldest`;
        answers what was done. Blocking, and safe on several nodes at once."""
        ...

    @property
    def url(self) -> str:
        """Where the store is, without a password."""
        ...

    def run(self, operation: Operation[T]) -> T:
        """Run the operation in a transaction of its own; it is durable when this returns."""
        ...

    async def arun(self, operation: Operation[T]) -> T:
        """The same without blocking the event loop."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection whose transaction commits at the end of the block, or not at all."""
        ...

    def carry(self, connection: object) -> Transaction:
        """Wrap the caller's own blocking connection; WrongConnection when it does not fit."""
        ...

    async def acarry(self, connection: object) -> AsyncTransaction:
        """Wrap the caller's own asynchronous connection; WrongConnection if it does not fit."""
        ...

    def watch(self, wake: Wake) -> Change:
        """Start watching for commits, of any process, that may matter to those `wake` names."""
        ...

    def migrate(self) -> list[str]:
        """Bring the schema up to date; answers the names of the migrations applied."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. The store can be used again; it reopens."""
        ...
