"""Submission and questions, blocking and asynchronous, over one store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from duly.client.catalogue import CachedCatalogue
from duly.client.drafting import encode_by_schema
from duly.client.job import Job
from duly.client.jobs import Jobs
from duly.client.prepared import Prepared, drafts_of, drafts_of_one
from duly.client.waiting import WaitingRoom
from duly.clock import Clock, SystemClock
from duly.config import Config
from duly.errors import InvalidOption, StoreError, UnknownJob
from duly.model.catalogue import CatalogueEntry
from duly.model.job import JobRecord
from duly.model.query import Cancellation, Enqueued, JobFilter, Replay
from duly.policy import options
from duly.registry import strict_json
from duly.registry.task import Registry
from duly.store.operation import Operation

if TYPE_CHECKING:
    from duly.store.protocol import Store, Transaction

T = TypeVar("T")
R = TypeVar("R")

BATCH = 5000


class _Joined(msgspec.Struct):
    """The transaction of an open `transaction()` block.

    A task or thread started inside the block may outlive it, and is on its own from then on.
    """

    connection: Any
    carrier: Transaction
    process: int
    is_open: bool = True


class Client:
    """Hands work to a store and asks about it.

    Inside a `transaction()` block everything is done and seen in its transaction.
    """

    def __init__(
        self, store: Store, config: Config, registry: Registry, clock: Clock | None = None
    ) -> None:
        self.registry = registry
        self._innermost: ContextVar[_Joined | None] = ContextVar("duly_joined", default=None)
        self.redirect(store, config, clock)

    def redirect(self, store: Store, config: Config, clock: Clock | None = None) -> None:
        """Work on this store from now on; `clock` is the store's, where that is not a real one."""
        self.store = store
        self.config = config
        self.clock = clock or SystemClock()
        self.waiting = WaitingRoom(store)
        self.catalogue = CachedCatalogue()

    @property
    def in_transaction(self) -> bool:
        """Whether this code is inside a `transaction()` block."""
        return self._joined() is not None

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, in the open transaction block if there is one."""
        joined = self._joined()
        return self.store.run(operation) if joined is None else joined.carrier.run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        """The same without blocking the event loop."""
        joined = self._joined()
        if joined is None:
            return await self.store.arun(operation)
        import asyncio

        return await asyncio.to_thread(joined.carrier.run, operation)

    def submit_one(self, prepared: Prepared[R], connection: object | None = None) -> Job[R]:
        """Store a job that is in nobody else's hands; in the caller's transaction when there is
        one."""
        run = self.run if connection is None else self.store.carry(connection).run
        return Job(run(self.store.enqueue(drafts_of_one(prepared))), self, prepared.decode)

    async def asubmit_one(self, prepared: Prepared[R], connection: object | None = None) -> Job[R]:
        """The same without blocking the event loop."""
        arun = self.arun if connection is None else (await self.store.acarry(connection)).arun
        answer = await arun(self.store.enqueue(drafts_of_one(prepared)))
        return Job(answer, self, prepared.decode)

    def submit(self, prepared: Sequence[Prepared[Any]], connection: object | None = None) -> Jobs:
        """Store jobs, BATCH at a time, each batch all or none; in the caller's transaction when
        there is one."""
        if connection is None and not self.in_transaction and len(prepared) > BATCH:
            return self._submit_in_turn(prepared)
        run = self.run if connection is None else self.store.carry(connection).run
        answers = [run(self._submission(batch)) for batch in _batches(prepared)]
        return Jobs(self, prepared, answers, BATCH)

    def _submit_in_turn(self, prepared: Sequence[Prepared[Any]]) -> Jobs:
        """Store batch after batch; while the store is at one, another thread makes the next
        ready."""
        from duly.store.awaiting import in_a_thread

        batches = list(_batches(prepared))
        operation = self._submission(batches[0])
        answers = []
        for following in [*batches[1:], None]:
            ready = None if following is None else in_a_thread(self._ready, following)
            answers.append(self.store.run(operation))
            if ready is not None:
                operation = ready.wait()
        return Jobs(self, prepared, answers, BATCH)

    async def asubmit(
        self, prepared: Sequence[Prepared[Any]], connection: object | None = None
    ) -> Jobs:
        """The same without blocking the event loop."""
        arun = self.arun if connection is None else (await self.store.acarry(connection)).arun
        answers = [await arun(self._submission(batch)) for batch in _batches(prepared)]
        return Jobs(self, prepared, answers, BATCH)

    def _ready(self, batch: Sequence[Prepared[Any]]) -> Operation[Sequence[Enqueued]]:
        operation = self._submission(batch)
        if operation.make_ready is not None:
            operation.make_ready()
        return operation

    def _submission(self, batch: Sequence[Prepared[Any]]) -> Operation[Sequence[Enqueued]]:
        for each in batch:
            if not isinstance(each, Prepared):
                raise InvalidOption(
                    "jobs", f"expected what task.job(...) returns; got {type(each).__name__}"
                )
            if each.template.flow_id is not None:
                raise InvalidOption(
                    "jobs",
                    f"the job of task {each.template.task!r} is a node of a flow: submit the flow",
                )
        drafts, known = drafts_of(batch)
        return self.store.enqueue(drafts, repeated=known)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection to the store's database; jobs enqueued inside the block commit with what
        is written on it, or not at all. A block inside a block is a savepoint of the outer."""
        outer = self._joined()
        if outer is not None:
            with outer.carrier.nested():
                yield outer.connection
            return
        with self.store.transaction() as connection:
            joined = _Joined(connection, self.store.carry(connection), os.getpid())
            token = self._innermost.set(joined)
            try:
                yield connection
            finally:
                joined.is_open = False
                self._innermost.reset(token)

    def encode(self, task: str, arguments: Mapping[str, Any]) -> str:
        """Arguments by name for a task, checked by its code, or else by the catalogue."""
        local = self.registry.get(task) is not None
        return self._encoded(task, arguments, [] if local else self.run(self.store.catalogue()))

    async def aencode(self, task: str, arguments: Mapping[str, Any]) -> str:
        """The same without blocking the event loop."""
        local = self.registry.get(task) is not None
        entries = [] if local else await self.arun(self.store.catalogue())
        return self._encoded(task, arguments, entries)

    def publish(self) -> None:
        """Write the tasks that are registered here to the catalogue."""
        self.run(self._publication())
        self.catalogue.forget()

    async def apublish(self) -> None:
        """The same without blocking the event loop."""
        await self.arun(self._publication())
        self.catalogue.forget()

    def get(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        known = as_id(job_id)
        return self._found(known, self.run(self.store.get([known]))[0])

    async def aget(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        known = as_id(job_id)
        return self._found(known, (await self.arun(self.store.get([known])))[0])

    def find(
        self, criteria: JobFilter, limit: int, before: UUID | str | None = None
    ) -> list[Job[Any]]:
        """Jobs that match, newest first, below the cursor `before`."""
        cursor = None if before is None else as_id(before)
        records = self.run(self.store.find(criteria, limit, cursor))
        return [self.job(record) for record in records]

    async def afind(
        self, criteria: JobFilter, limit: int, before: UUID | str | None = None
    ) -> list[Job[Any]]:
        """Jobs that match, newest first, below the cursor `before`."""
        cursor = None if before is None else as_id(before)
        records = await self.arun(self.store.find(criteria, limit, cursor))
        return [self.job(record) for record in records]

    def cancel(self, job_ids: Sequence[UUID | str], reason: str | None) -> list[Cancellation]:
        """Cancel jobs: at once where they have not started, by request where they run."""
        return self.run(self._cancellation(job_ids, reason))

    async def acancel(
        self, job_ids: Sequence[UUID | str], reason: str | None
    ) -> list[Cancellation]:
        """Cancel jobs: at once where they have not started, by request where they run."""
        return await self.arun(self._cancellation(job_ids, reason))

    def replay(
        self, job_ids: Sequence[UUID | str], arguments: str | None, keep_steps: bool = True
    ) -> list[Replay]:
        """Run dead jobs again, in a new generation."""
        return self.run(self._replaying(job_ids, arguments, keep_steps))

    async def areplay(
        self, job_ids: Sequence[UUID | str], arguments: str | None, keep_steps: bool = True
    ) -> list[Replay]:
        """Run dead jobs again, in a new generation."""
        return await self.arun(self._replaying(job_ids, arguments, keep_steps))

    def _replaying(
        self, job_ids: Sequence[UUID | str], arguments: str | None, keep_steps: bool
    ) -> Operation[list[Replay]]:
        known = [as_id(each) for each in job_ids]
        return self.store.replay(known, arguments, keep_steps=keep_steps)

    def job(self, record: JobRecord) -> Job[Any]:
        """A handle on a stored job, its result typed when its task is registered here."""
        definition = self.registry.get(record.task)
        decode = msgspec.json.decode if definition is None else definition.result.decode
        return Job(record, self, decode)

    def _joined(self) -> _Joined | None:
        joined = self._innermost.get()
        if joined is None or not joined.is_open:
            return None
        if joined.process != os.getpid():
            raise StoreError(
                "this process was forked inside a transaction() block, whose connection belongs "
                "to its parent: fork before the block, or start a new program"
            )
        return joined

    def _publication(self) -> Operation[None]:
        return self.store.publish_tasks([definition.catalogued() for definition in self.registry])

    def _cancellation(
        self, job_ids: Sequence[UUID | str], reason: str | None
    ) -> Operation[list[Cancellation]]:
        why = None if reason is None else options.reason(reason)
        return self.store.cancel([as_id(each) for each in job_ids], why)

    def _encoded(
        self, task: str, arguments: Mapping[str, Any], entries: Sequence[CatalogueEntry]
    ) -> str:
        definition = self.registry.get(task)
        if definition is not None:
            encoded = definition.arguments.encode_object(arguments)
        else:
            unknown = CatalogueEntry(name=task, schema={})
            entry = next((each for each in entries if each.name == task), unknown)
            encoded = encode_by_schema(entry, arguments)
        limit = self.config.payload_limit
        strict_json.check_size(encoded, f"the arguments of task {task!r}", limit)
        return encoded.decode()

    def _found(self, job_id: UUID, record: JobRecord | None) -> Job[Any]:
        if record is None:
            raise UnknownJob(job_id)
        return self.job(record)


def _batches(prepared: Sequence[Prepared[Any]]) -> Iterator[Sequence[Prepared[Any]]]:
    for start in range(0, len(prepared), BATCH):
        yield prepared[start : start + BATCH]


def as_id(value: UUID | str) -> UUID:
    """The id, also from text."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(
            "job id",
            f"{value!r} is not one: expected such as '0197c1e0-7d2c-7000-8000-0123456789ab'",
        ) from None
