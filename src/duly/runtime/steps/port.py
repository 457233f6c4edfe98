"""The way from a running task's steps to the store: small questions that can also be sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from duly.errors import InvalidOption, StoreFull, StoreUnavailable
from duly.model.job import JobRecord
from duly.model.step import EventWait, Recorded, Step, StepWrite
from duly.store.operation import Operation

if TYPE_CHECKING:
    from duly.store.protocol import Store

PAUSE = 0.2

logger = logging.getLogger("duly.steps")

Keep = Callable[[StepWrite], Step | None]
"""Records a step in the transaction that is open."""


class Load(msgspec.Struct, frozen=True, tag=True):
    """All recorded steps of a job."""

    job_id: UUID


class Record(msgspec.Struct, frozen=True, tag=True):
    """Steps to be recorded."""

    writes: list[StepWrite]


class TakeEvent(msgspec.Struct, frozen=True, tag=True):
    """The first event that fits, to be recorded with its step."""

    token: int
    step: Step
    wait: EventWait


class LookAt(msgspec.Struct, frozen=True, tag=True):
    """A job as it is now."""

    job_id: UUID


Request = Load | Record | TakeEvent | LookAt
ANSWERS: dict[type[Any], Any] = {
    Load: Recorded,
    Record: list[Step | None],
    TakeEvent: tuple[bool, Step | None],
    LookAt: list[JobRecord | None],
}


class Port(Protocol):
    """Whoever can bring a request to the store."""

    def ask(self, request: Request) -> Any:
        """The answer, of the type in ANSWERS."""
        ...

    async def aask(self, request: Request) -> Any:
        """The same without blocking the event loop."""
        ...

    def transaction(self) -> AbstractContextManager[tuple[Any, Keep]]:
        """A connection to the store's database, and a way to record a step in its transaction."""
        ...


class StorePort:
    """A port in a process that has the store itself.

    A store that cannot be reached, or takes no writes for now, is no fault of the job, and all
    requests may be repeated: it is waited for while there is `patience`, in seconds.
    """

    def __init__(
        self,
        store: Store,
        transaction: Callable[[], AbstractContextManager[Any]],
        patience: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._patience = patience

    def ask(self, request: Request) -> Any:
        """See Port.ask."""
        told = False
        while True:
            try:
                return self._store.run(_operation(self._store, request))
            except (StoreUnavailable, StoreFull) as error:
                told = self._wait_for(error, told)
            time.sleep(PAUSE)

    async def aask(self, request: Request) -> Any:
        """See Port.aask."""
        import asyncio

        told = False
        while True:
            try:
                return await self._store.arun(_operation(self._store, request))
            except (StoreUnavailable, StoreFull) as error:
                told = self._wait_for(error, told)
            await asyncio.sleep(PAUSE)

    def _wait_for(self, error: StoreUnavailable | StoreFull, told: bool) -> bool:
        """Raise the error when there is no patience left; else tell of it, once."""
        if self._patience() <= 0:
            raise error
        if not told:
            logger.warning("a step waits: %s; trying again", error)
        return True

    @contextmanager
    def transaction(self) -> Iterator[tuple[Any, Keep]]:
        """See Port.transaction."""
        store = self._store
        with self._transaction() as connection:
            yield (
                connection,
                lambda write: store.carry(connection).run(store.record([write]))[0],
            )


def no_transaction() -> AbstractContextManager[tuple[Any, Keep]]:
    """For a port without a way to the database."""
    raise InvalidOption(
        "transactional",
        "this step runs in a process that does not know the app's database: run the task without "
        "isolate, or by `duly worker MODULE:app`",
    )


def _operation(store: Store, request: Request) -> Operation[Any]:
    match request:
        case Load(job_id=job_id):
            return store.steps(job_id)
        case Record(writes=writes):
            return store.record(writes)
        case TakeEvent(token=token, step=step, wait=wait):
            return store.take_event(token, step, wait)
        case LookAt(job_id=job_id):
            return store.get([job_id])
