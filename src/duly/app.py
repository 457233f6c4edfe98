"""The composition root: from a URL to a store, a registry and a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload
from uuid import UUID

from duly import config as configuration
from duly.client.client import Client, Prepared
from duly.client.job import Job
from duly.client.task import NamedTask, Task
from duly.errors import InvalidOption
from duly.model.job import State
from duly.model.query import Cancellation, Count, JobFilter, Replay
from duly.policy import options
from duly.registry import strict_json
from duly.registry.declaring import TaskOptions, define
from duly.registry.task import Registry
from duly.store.open import open_store

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What `@app.task(...)` gives: it keeps the function's types."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """Tasks and the store their jobs go to.

    `url` falls back on DULY_URL, then on duly.toml or [tool.duly], then on sqlite:///duly.db.
    Nothing is opened before it is needed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        listen_url: str | None = None,
        pool_size: int | None = None,
        payload_limit: int | str | None = None,
    ) -> None:
        self.config = configuration.load(
            {
                "url": url,
                "schema": schema,
                "listen_url": listen_url,
                "pool_size": pool_size,
                "payload_limit": payload_limit,
            }
        )
        self.registry = Registry()
        self.store = open_store(self.config)
        self.client = Client(self.store, self.config, self.registry)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Any:
        """Register a function as a task; see duly.registry.declaring.TaskOptions."""

        def register(target: Callable[..., Any]) -> Task[..., Any]:
            definition = define(target, **options)
            self.registry.add(definition)
            return Task(definition, self.client)

        return register if function is None else register(function)

    def named(self, name: str, *, unchecked: bool = False) -> NamedTask:
        """A task known by name only; `unchecked` allows one that no worker has published."""
        return NamedTask(options.task(name), self.client, unchecked)

    def enqueue(self, name: str, /, **arguments: Any) -> Job[Any]:
        """Submit by name, for a service that does not import the task."""
        return self.named(name).enqueue(**arguments)

    async def aenqueue(self, name: str, /, **arguments: Any) -> Job[Any]:
        """Submit by name, for a service that does not import the task."""
        return await self.named(name).aenqueue(**arguments)

    def enqueue_many(
        self, jobs: Iterable[Prepared[Any]], *, connection: object | None = None
    ) -> list[Job[Any]]:
        """Submit many at once: thousands a round trip, each batch of 5,000 all or none."""
        return self.client.submit(list(jobs), connection)

    async def aenqueue_many(
        self, jobs: Iterable[Prepared[Any]], *, connection: object | None = None
    ) -> list[Job[Any]]:
        """Submit many at once: thousands a round trip, each batch of 5,000 all or none."""
        return await self.client.asubmit(list(jobs), connection)

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection to the database that holds the jobs.

        What is written on it and the jobs enqueued inside the block are committed together when
        the block ends, or not at all when it raises. On SQLite it holds the only writer: keep it
        short.
        """
        return self.client.transaction()

    def get(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        return self.client.get(job_id)

    async def aget(self, job_id: UUID | str) -> Job[Any]:
        """The job of this id; UnknownJob when there is none."""
        return await self.client.aget(job_id)

    def list(
        self,
        *,
        state: State | str | Iterable[State | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        owner: str | None = None,
        tenant: str | None = None,
        tags: Iterable[str] = (),
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        before: UUID | str | None = None,
    ) -> list[Job[Any]]:
        """Jobs that match every condition, newest first.

        For the next page pass the last job's id as `before`.
        """
        return self.client.find(
            _filter(state, queue, task, key, owner, tenant, tags, created_from, created_before),
            _limit(limit),
            before,
        )

    async def alist(
        self,
        *,
        state: State | str | Iterable[State | str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        owner: str | None = None,
        tenant: str | None = None,
        tags: Iterable[str] = (),
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        before: UUID | str | None = None,
    ) -> Sequence[Job[Any]]:
        """Jobs that match every condition, newest first; see `list`."""
        return await self.client.afind(
            _filter(state, queue, task, key, owner, tenant, tags, created_from, created_before),
            _limit(limit),
            before,
        )

    def cancel(self, job_id: UUID | str, reason: str | None = None) -> Cancellation:
        """Cancel a job: at once if it has not started, by request if it runs."""
        return self.client.cancel([job_id], reason)[0]

    async def acancel(self, job_id: UUID | str, reason: str | None = None) -> Cancellation:
        """Cancel a job: at once if it has not started, by request if it runs."""
        return (await self.client.acancel([job_id], reason))[0]

    def replay(self, job_id: UUID | str, arguments: dict[str, Any] | None = None) -> Replay:
        """Run a dead job again, in a new generation, with other arguments if they are given."""
        return self.client.replay([job_id], self._encoded(job_id, arguments))[0]

    async def areplay(self, job_id: UUID | str, arguments: dict[str, Any] | None = None) -> Replay:
        """Run a dead job again, in a new generation, with other arguments if they are given."""
        encoded = None
        if arguments is not None:
            encoded = self._encoded_for((await self.aget(job_id)).task, arguments)
        return (await self.client.areplay([job_id], encoded))[0]

    def counts(self) -> Sequence[Count]:
        """How many jobs each queue has in each state."""
        return self.store.run(self.store.counts())

    def publish(self) -> None:
        """Write this app's tasks to the catalogue, for those who submit by name."""
        self.store.run(
            self.store.publish_tasks([definition.catalogued() for definition in self.registry])
        )

    def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date; answers the names of the migrations applied.

        SQLite does so by itself whenever it is opened.
        """
        return self.store.migrate()

    def close(self) -> None:
        """Let go of connections and threads. The app can be used again; it reopens."""
        self.store.close()

    def _encoded(self, job_id: UUID | str, arguments: dict[str, Any] | None) -> str | None:
        if arguments is None:
            return None
        return self._encoded_for(self.get(job_id).task, arguments)

    def _encoded_for(self, task: str, arguments: dict[str, Any]) -> str:
        definition = self.registry.get(task)
        encoded = (
            strict_json.encode(arguments)
            if definition is None
            else definition.arguments.encode_object(arguments)
        )
        return encoded.decode()


def _limit(value: int) -> int:
    if not 1 <= value <= 10_000:
        raise InvalidOption("limit", f"must be a whole number from 1 to 10,000; got {value!r}")
    return value


def _filter(
    state: State | str | Iterable[State | str] | None,
    queue: str | None,
    task: str | None,
    key: str | None,
    owner: str | None,
    tenant: str | None,
    tags: Iterable[str],
    created_from: datetime | None,
    created_before: datetime | None,
) -> JobFilter:
    return JobFilter(
        states=None if state is None else _states(state),
        queue=queue,
        task=task,
        key=key,
        owner=owner,
        tenant=tenant,
        tags=options.tags(tags),
        created_from=None if created_from is None else options.instant(created_from),
        created_before=None if created_before is None else options.instant(created_before),
    )


def _states(value: State | str | Iterable[State | str]) -> frozenset[State]:
    given = [value] if isinstance(value, str) else value
    try:
        return frozenset(State(each) for each in given)
    except ValueError as error:
        known = ", ".join(state.value for state in State)
        raise InvalidOption("state", f"{error}; known are {known}") from None
