"""Tasks as application code uses them: typed functions that can be enqueued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from duly.client.client import Client, Prepared
from duly.client.drafting import draft
from duly.client.job import Job
from duly.client.options import Options
from duly.errors import UnknownTask
from duly.model.catalogue import CatalogueEntry
from duly.model.job import KeyPolicy
from duly.registry import schema, strict_json
from duly.registry.task import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")

Duration = timedelta | float | str


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now; `enqueue` hands it to a worker."""

    def __init__(
        self, definition: TaskDefinition, client: Client, options: Options | None = None
    ) -> None:
        self.definition = definition
        self._client = client
        self._options = options or Options()
        self._entry = definition.catalogued()
        update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        """The name that its jobs carry."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.definition.function(*args, **kwargs)

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
    ) -> Task[P, R]:
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
        return Task(self.definition, self._client, options)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Prepared[R]:
        """A checked job for `app.enqueue_many`; nothing is stored yet."""
        arguments = self.definition.arguments.encode(args, kwargs)
        made = draft(self._entry, arguments, self._options, self._client.config.payload_limit)
        return Prepared(made, self.definition.result.decode)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job. It is durable when this returns."""
        return self._client.submit([self.job(*args, **kwargs)], self._options.connection)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job. It is durable when this returns."""
        prepared = [self.job(*args, **kwargs)]
        return (await self._client.asubmit(prepared, self._options.connection))[0]

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class NamedTask:
    """A task known by its name only, for a service that does not have its code.

    Arguments are given by keyword and checked against the catalogue that workers publish.
    """

    def __init__(
        self, name: str, client: Client, unchecked: bool = False, options: Options | None = None
    ) -> None:
        self.name = name
        self._client = client
        self._unchecked = unchecked
        self._options = options or Options()

    def using(self, **options: Any) -> NamedTask:
        """The same task with other options; they are those of Task.using."""
        merged = self._options.merged(**options)
        return NamedTask(self.name, self._client, self._unchecked, merged)

    def job(self, **arguments: Any) -> Prepared[Any]:
        """A checked job for `app.enqueue_many`; nothing is stored yet."""
        return self._prepare(arguments, self._catalogued(self._client.store.run))

    def enqueue(self, **arguments: Any) -> Job[Any]:
        """Submit a job. It is durable when this returns."""
        return self._client.submit([self.job(**arguments)], self._options.connection)[0]

    async def aenqueue(self, **arguments: Any) -> Job[Any]:
        """Submit a job. It is durable when this returns."""
        store = self._client.store
        entries = [] if self._local() else await store.arun(store.catalogue())
        prepared = self._prepare(arguments, self._catalogued(lambda _: entries))
        return (await self._client.asubmit([prepared], self._options.connection))[0]

    def _local(self) -> TaskDefinition | None:
        return self._client.registry.get(self.name)

    def _catalogued(self, ask: Callable[[Any], list[CatalogueEntry]]) -> CatalogueEntry:
        local = self._local()
        if local is not None:
            return local.catalogued()
        entries = {entry.name: entry for entry in ask(self._client.store.catalogue())}
        if self.name in entries:
            return entries[self.name]
        if self._unchecked:
            return CatalogueEntry(name=self.name, schema={}, max_attempts=4)
        known = ", ".join(sorted(entries)) or "none yet; a worker publishes its tasks at its start"
        raise UnknownTask(
            self.name,
            f"no worker has published it (known: {known}); to submit it all the same, use "
            f"app.named({self.name!r}, unchecked=True)",
        )

    def _prepare(self, arguments: Mapping[str, Any], entry: CatalogueEntry) -> Prepared[Any]:
        local = self._local()
        decode: Callable[[str], Any] = msgspec.json.decode
        if local is not None:
            encoded = local.arguments.encode_object(arguments)
            decode = local.result.decode
        else:
            encoded = strict_json.encode(dict(arguments))
            if entry.schema:
                schema.validate(msgspec.json.decode(encoded), entry.schema, self.name)
        made = draft(entry, encoded, self._options, self._client.config.payload_limit)
        return Prepared(made, decode)
