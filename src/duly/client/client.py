"""Submission and questions, blocking and asynchronous, over one store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from duly.client.job import Job
from duly.client.waiting import WaitingRoom
from duly.config import Config
from duly.errors import InvalidOption, UnknownJob
from duly.model.job import Draft, JobRecord
from duly.model.query import Cancellation, Enqueued, JobFilter, Replay
from duly.registry.task import Registry
from duly.store.protocol import Store, Transaction

R = TypeVar("R")

BATCH = 5000

Decode = Callable[[str], Any]


class Prepared(msgspec.Struct, Generic[R], frozen=True):
    """A job that is ready to be submitted: checked, encoded, not stored."""

    draft: Draft
    decode: Decode


class Client:
    """Hands work to a store and asks about it."""

    def __init__(self, store: Store, config: Config, registry: Registry) -> None:
        self.store = store
        self.config = config
        self.registry = registry
        self.waiting = WaitingRoom(store)
        self._joined: ContextVar[Transaction | None] = ContextVar("duly_joined", default=None)

    def submit(
        self, prepared: Sequence[Prepared[Any]], connection: object | None = None
    ) -> list[Job[Any]]:
        """Store jobs, BATCH at a time, each batch all or none; in the caller's transaction when
        there is one."""
        carrier = self._joined.get() if connection is None else self.store.carry(connection)
        run = self.store.run if carrier is None else carrier.run
        answers: list[Enqueued] = []
        for batch in _batches(prepared):
            answers.extend(run(self.store.enqueue([each.draft for each in batch])))
        return self._jobs(prepared, answers)

    async def asubmit(
        self, prepared: Sequence[Prepared[Any]], connection: object | None = None
    ) -> list[Job[Any]]:
        """The same without blocking the event loop."""
        joined = self._joined.get() if connection is None else None
        carrier = None if connection is None else await self.store.acarry(connection)
        answers: list[Enqueued] = []
        for batch in _batches(prepared):
            operation = self.store.enqueue([each.draft for each in batch])
            if carrier is not None:
                answers.extend(await carrier.arun(operation))
            elif joined is not None:
                answers.extend(await asyncio.to_thread(joined.run, operation))
            else:
                answers.extend(await self.store.arun(operation))
        return self._jobs(prepared, answers)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection to the store's database; jobs enqueued inside the block commit with what
        is written on it, or not at all."""
        with self.store.transaction() as connection:
            token = self._joined.set(self.store.carry(connection))
            try:
                yield connection
            finally:
                self._joined.reset(token)

    def get(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        known = as_id(job_id)
        return self._found(known, self.store.run(self.store.get([known]))[0])

    async def aget(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        known = as_id(job_id)
        return self._found(known, (await self.store.arun(self.store.get([known])))[0])

    def find(
        self, criteria: JobFilter, limit: int, before: UUID | str | None = None
    ) -> list[Job[Any]]:
        """Jobs that match, newest first, below the cursor `before`."""
        cursor = None if before is None else as_id(before)
        records = self.store.run(self.store.find(criteria, limit, cursor))
        return [self.job(record) for record in records]

    async def afind(
        self, criteria: JobFilter, limit: int, before: UUID | str | None = None
    ) -> list[Job[Any]]:
        """Jobs that match, newest first, below the cursor `before`."""
        cursor = None if before is None else as_id(before)
        records = await self.store.arun(self.store.find(criteria, limit, cursor))
        return [self.job(record) for record in records]

    def cancel(self, job_ids: Sequence[UUID | str], reason: str | None) -> list[Cancellation]:
        """Cancel jobs: at once where they have not started, by request where they run."""
        return self.store.run(self.store.cancel([as_id(each) for each in job_ids], reason))

    async def acancel(
        self, job_ids: Sequence[UUID | str], reason: str | None
    ) -> list[Cancellation]:
        """Cancel jobs: at once where they have not started, by request where they run."""
        operation = self.store.cancel([as_id(each) for each in job_ids], reason)
        return await self.store.arun(operation)

    def replay(self, job_ids: Sequence[UUID | str], arguments: str | None) -> list[Replay]:
        """Run dead jobs again, in a new generation."""
        return self.store.run(self.store.replay([as_id(each) for each in job_ids], arguments))

    async def areplay(self, job_ids: Sequence[UUID | str], arguments: str | None) -> list[Replay]:
        """Run dead jobs again, in a new generation."""
        operation = self.store.replay([as_id(each) for each in job_ids], arguments)
        return await self.store.arun(operation)

    def job(self, record: JobRecord) -> Job[Any]:
        """A handle on a stored job, its result typed when its task is registered here."""
        definition = self.registry.get(record.task)
        decode = msgspec.json.decode if definition is None else definition.result.decode
        return Job(record, self, decode)

    def _found(self, job_id: UUID, record: JobRecord | None) -> Job[Any]:
        if record is None:
            raise UnknownJob(job_id)
        return self.job(record)

    def _jobs(
        self, prepared: Sequence[Prepared[Any]], answers: Sequence[Enqueued]
    ) -> list[Job[Any]]:
        return [
            Job(answer.job, self, each.decode, answer.created)
            for each, answer in zip(prepared, answers, strict=True)
        ]


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
