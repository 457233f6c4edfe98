"""Tasks as application code uses them: typed functions that can be enqueued."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast

import msgspec

from duly.client.client import Client
from duly.client.drafting import encode_by_schema, prepared, template, unknown_task
from duly.client.job import Job
from duly.client.options import Duration, Options, SubmissionOptions
from duly.client.prepared import Decode, Prepared, building
from duly.errors import InvalidArguments, InvalidOption, UnknownTask
from duly.model.catalogue import CatalogueEntry
from duly.model.job import Draft, KeyPolicy
from duly.registry.task import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now; `enqueue` hands it to a worker."""

    def __init__(
        self, definition: TaskDefinition, client: Client, options: Options | None = None
    ) -> None:
        self.definition = definition
        self._client = client
        self._options = options or Options()
        self._template: Draft | None = None
        self._decode = definition.result.decode
        update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        """The name that its jobs carry."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.definition.function(*args, **kwargs))

    def using(
        self,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        key: str | None = None,
        key_policy: KeyPolicy | str | None = None,
        key_window: Duration | None = None,
        retries: int | None = None,
        timeout: Duration | None = None,
        expires: datetime | Duration | None = None,
        tags: Iterable[str] | None = None,
        tenant: str | None = None,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        connection: object | None = None,
    ) -> Self:
        """The same task with other options for what is submitted through it.

        `key` makes a job unique while it is live (and for `key_window` after it finished): a
        second submission gets the job that has the key (`key_policy="return"`), replaces it if
        it has not started (`"replace"`), or raises KeyConflict (`"reject"`). `connection` is
        the caller's own: the job is committed with the caller's transaction.
        """
        options = self._options.merged(
            delay=delay,
            run_at=run_at,
            priority=priority,
            queue=queue,
            key=key,
            key_policy=key_policy,
            key_window=key_window,
            retries=retries,
            timeout=timeout,
            expires=expires,
            tags=tags,
            tenant=tenant,
            owner=owner,
            metadata=metadata,
            connection=connection,
        )
        return type(self)(self.definition, self._client, options)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Prepared[R]:
        """A checked job for `app.enqueue_many`, or inside a `with app.flow(...)` block a node of
        that flow; nothing is stored yet."""
        _refuse_connection(self._options)
        flow = building.get()
        if flow is not None:
            return flow.add(self.definition, self._filled, args, kwargs)
        return self._prepared(args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job. It is durable when this returns, or when the transaction that it is
        part of is committed."""
        return self._client.submit_one(self._prepared(args, kwargs), self._options.connection)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job without blocking the event loop; see `enqueue`."""
        made = self._prepared(args, kwargs)
        return await self._client.asubmit_one(made, self._options.connection)

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared[R]:
        return self._filled(self.definition.arguments.encode(args, kwargs))

    def _filled(self, arguments: bytes) -> Prepared[R]:
        limit = self._client.config.payload_limit
        if self._template is None:
            self._template = template(self.definition.catalogued(), self._options, limit)
        return prepared(self._template, arguments, limit, self._decode)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class AsyncTask(Task[P, R]):
    """A registered coroutine function: called directly, it is awaited."""

    def __call__(  # type: ignore[override]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        return cast(Coroutine[Any, Any, R], self.definition.function(*args, **kwargs))


class NamedTask:
    """A task known by its name only, for a service that does not have its code.

    Arguments are given by keyword and checked against the catalogue that workers publish.
    """

    def __init__(
        self, name: str, client: Client, unchecked: bool = False, options: Options | None = None
    ) -> None:
        self.name = name
        self._client = client
        self.unchecked = unchecked
        self._options = options or Options()

    def using(self, **options: Unpack[SubmissionOptions]) -> NamedTask:
        """The same task with other options; they are those of Task.using."""
        merged = self._options.merged(**options)
        return NamedTask(self.name, self._client, self.unchecked, merged)

    def job(self, /, **arguments: Any) -> Prepared[Any]:
        """A checked job for `app.enqueue_many`, or inside a `with app.flow(...)` block a node of
        that flow; nothing is stored yet."""
        _refuse_connection(self._options)
        made = self._prepared(arguments)
        flow = building.get()
        return made if flow is None else flow.add_encoded(made)

    def enqueue(self, /, **arguments: Any) -> Job[Any]:
        """Submit a job. It is durable when this returns, or when the transaction that it is
        part of is committed."""
        return self._client.submit_one(self._prepared(arguments), self._options.connection)

    async def aenqueue(self, /, **arguments: Any) -> Job[Any]:
        """Submit a job without blocking the event loop; see `enqueue`."""
        made = self._at_hand(arguments)
        if made is None:
            entries = await self._client.arun(self._client.store.catalogue())
            made = self._checked(arguments, self._entry(entries))
        return await self._client.asubmit_one(made, self._options.connection)

    def _prepared(self, arguments: Mapping[str, Any]) -> Prepared[Any]:
        made = self._at_hand(arguments)
        if made is None:
            entries = self._client.run(self._client.store.catalogue())
            made = self._checked(arguments, self._entry(entries))
        return made

    def _at_hand(self, arguments: Mapping[str, Any]) -> Prepared[Any] | None:
        """The job, if that can be told without asking the store."""
        local = self._client.registry.get(self.name)
        if local is not None:
            encoded = local.arguments.encode_object(arguments)
            return self._filled(local.catalogued(), encoded, local.result.decode)
        entry = self._client.catalogue.get(self.name)
        if entry is None and self.unchecked and self._client.catalogue.is_fresh():
            entry = unknown_task(self.name)
        if entry is None:
            return None
        try:
            return self._checked(arguments, entry)
        except InvalidArguments:
            # The task may have been published anew since.
            return None

    def _entry(self, entries: Sequence[CatalogueEntry]) -> CatalogueEntry:
        known = self._client.catalogue.keep(entries)
        if self.name in known:
            return known[self.name]
        if self.unchecked:
            return unknown_task(self.name)
        names = ", ".join(known) or "none yet; a worker publishes its tasks at its start"
        raise UnknownTask(
            self.name,
            f"no worker has published it (known: {names}); to submit it all the same, use "
            f"app.named({self.name!r}, unchecked=True)",
        )

    def _checked(self, arguments: Mapping[str, Any], entry: CatalogueEntry) -> Prepared[Any]:
        return self._filled(entry, encode_by_schema(entry, arguments), msgspec.json.decode)

    def _filled(self, entry: CatalogueEntry, arguments: bytes, decode: Decode) -> Prepared[Any]:
        limit = self._client.config.payload_limit
        return prepared(template(entry, self._options, limit), arguments, limit, decode)

    def __repr__(self) -> str:
        return f"<NamedTask {self.name}>"


def _refuse_connection(options: Options) -> None:
    if options.connection is not None:
        raise InvalidOption(
            "connection",
            "a job that is only prepared is not submitted on it: give it to "
            "app.enqueue_many(jobs, connection=...)",
        )
