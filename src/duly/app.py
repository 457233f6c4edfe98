"""The composition root: from a URL to a store, a registry and a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload
from uuid import UUID

from duly import config as configuration
from duly.client.client import Client, as_id
from duly.client.events import Events
from duly.client.filtering import Conditions, criteria, page
from duly.client.job import Job
from duly.client.jobs import Jobs
from duly.client.prepared import Prepared
from duly.client.task import AsyncTask, NamedTask, Task
from duly.clock import Clock
from duly.config import Config
from duly.hosting import Hosting
from duly.model.event import Emitted, Event, Subscription
from duly.model.query import Cancellation, Count, Replay
from duly.policy import options as option_checks
from duly.policy.duration import Duration
from duly.registry.application import calling_package
from duly.registry.declaring import TaskOptions, define
from duly.registry.subscribing import define_subscription
from duly.registry.task import Registry
from duly.store.clocked import ClockedStore
from duly.store.open import open_store

if TYPE_CHECKING:
    from duly.client.flow import Flow
    from duly.client.flow_run import FlowRuns
    from duly.client.schedules import Schedules
    from duly.model.flow import FailurePolicy
    from duly.model.step import Step
    from duly.policy.recurrence import Rule
    from duly.policy.recurrence.wall_clock import Fold, Gap
    from duly.registry.scheduling import Rules, ScheduleOptions
    from duly.store.protocol import Store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])


class TaskDecorator(Protocol):
    """What `@app.task(...)` gives: it keeps the function's types."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ScheduleDecorator:
    """What `@app.cron(...)` and `@app.every(...)` give: it keeps the function's types."""

    def __init__(self, app: App, name: str | None, rule: Rule, options: ScheduleOptions) -> None:
        self._app = app
        self._name = name
        self._rule = rule
        self._options = options

    @overload
    def __call__(self, target: T, /) -> T: ...
    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, target: Any, /) -> Any:
        task = target if isinstance(target, Task) else self._app.task(target)
        self._app.schedule(self._name or task.name, task, self._rule, **self._options)
        return task


class SubscriptionDecorator:
    """What `@app.on(...)` gives: it keeps the function's types."""

    def __init__(
        self, app: App, pattern: str, where: Mapping[str, Any] | None, name: str | None
    ) -> None:
        self._app = app
        self._pattern = pattern
        self._where = where
        self._name = name

    @overload
    def __call__(self, target: T, /) -> T: ...
    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, target: Any, /) -> Any:
        task = target if isinstance(target, Task) else self._app.task(target)
        definition = self._app.registry.require(task.name)
        self._app.registry.subscriptions.add(
            define_subscription(definition, self._pattern, self._where, self._name)
        )
        return task


class App:
    """Tasks and the store their jobs go to.

    `url` falls back on DULY_URL, then on duly.toml or [tool.duly], then on sqlite:///duly.db.
    Nothing is opened before it is needed. `clock` replaces the time, for tests and simulations: see
    duly.ManualClock.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        application: str | None = None,
        schema: str | None = None,
        listen_url: str | None = None,
        pool_size: int | None = None,
        payload_limit: int | str | None = None,
        journal: str | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        fair_share: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = configuration.load(
            {
                "url": url,
                "application": application,
                "schema": schema,
                "listen_url": listen_url,
                "pool_size": pool_size,
                "payload_limit": payload_limit,
                "journal": journal,
                "lease": lease,
                "grace": grace,
                "fair_share": fair_share,
            }
        )
        self.registry = Registry(self.config.application or calling_package(self))
        self.store = open_store(self.config)
        if clock is not None:
            self.store = cast("Store", ClockedStore(self.store, clock))
        self.client = Client(self.store, self.config, self.registry, clock)
        self._compose()

    def redirect(self, url: str) -> None:
        """Use the database at this URL instead of the one the code names, as `--url` does.

        For a fresh app: what has been opened is closed, and jobs handed out before are not moved.
        """
        self.close()
        config = configuration.redirected(self.config, url)
        self.attach(open_store(config), config)

    def attach(self, store: Store, config: Config, clock: Clock | None = None) -> None:
        """Use this store from now on; `clock` is the store's, where that is not a real one.

        For simulations: what was open before stays open.
        """
        self.config = config
        self.store = store
        self.client.redirect(store, config, clock)
        self._compose()

    def _compose(self) -> None:
        """Make what belongs to the store that is in use."""
        self._events = Events(self.client)
        self._hosting = Hosting(self.config, self.store, self.registry, self.client.transaction)

    @property
    def schedules(self) -> Schedules:
        """Schedules at run time."""
        from duly.client.schedules import Schedules

        return Schedules(self.client)

    @property
    def flows(self) -> FlowRuns:
        """Flows that have been submitted."""
        from duly.client.flow_run import FlowRuns

        return FlowRuns(self.client)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
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
            kind = AsyncTask if definition.is_async else Task
            return kind(definition, self.client)

        return register if function is None else register(function)

    def cron(
        self,
        expression: str,
        /,
        *,
        name: str | None = None,
        gap: Gap | None = None,
        fold: Fold | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Run the task below at these times: `@app.cron("0 9 * * mon-fri", tz="Europe/Berlin")`.

        On a plain function, which becomes a task, or on a task. The schedule has the task's name
        unless it gets its own. `gap` and `fold` choose another treatment of DST than the default;
        for the other options see duly.registry.scheduling.ScheduleOptions.
        """
        from duly.policy.recurrence import Cron

        rule = Cron(expression, options.get("tz", "UTC"), gap, fold)
        return ScheduleDecorator(self, name, rule, options)

    def every(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Run the task below at a fixed rate, `@app.every(minutes=5)`; with `after_finish=True`
        at a fixed delay after the end of the job before. See `cron`."""
        from duly.policy.recurrence import every

        rule = every(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return ScheduleDecorator(self, name, rule, options)

    def on(
        self, pattern: str, /, *, where: Mapping[str, Any] | None = None, name: str | None = None
    ) -> SubscriptionDecorator:
        """Start a job of the task below for each event whose name fits: `@app.on("order.*")`.

        On a plain function, which becomes a task, or on a task; it takes one argument, a
        duly.Event. `where` has conditions on the payload, such as {"currency": "EUR"} or
        {"customer.country": ["DE", "AT"]}. Workers store the subscription when they start; from
        then on each event starts one job, also while none of them runs.
        """
        return SubscriptionDecorator(self, pattern, where, name)

    def emit(
        self,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        id: str | None = None,
        job: UUID | str | None = None,
        connection: object | None = None,
    ) -> Emitted:
        """Say that something has happened. It starts the jobs that are subscribed to it and wakes
        those that wait for it, all in one transaction.

        `key` says what it is about, such as an order's id. Of several with one `id` the first
        counts. With `job` it is a signal, for that job only. `connection` is the caller's own: the
        event is committed with the caller's transaction.
        """
        return self._events.emit(self._events.record(name, payload, key, id, job), connection)

    async def aemit(
        self,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        id: str | None = None,
        job: UUID | str | None = None,
        connection: object | None = None,
    ) -> Emitted:
        """Say that something has happened, without blocking the event loop; see `emit`."""
        event = self._events.record(name, payload, key, id, job)
        return await self._events.aemit(event, connection)

    def events(
        self,
        *,
        limit: int = 100,
        name: str | None = None,
        key: str | None = None,
        before: str | None = None,
    ) -> Sequence[Event]:
        """Stored events, the latest first; for the next page pass the last one's id as `before`."""
        return self._events.list(page(limit), name, key, before)

    def subscriptions(self) -> Sequence[Subscription]:
        """What is stored of who is started for which events, by name."""
        return self.client.run(self.store.subscriptions())

    def unsubscribe(self, name: str) -> bool:
        """Remove a stored subscription whose code is gone; answers whether there was one."""
        return self.client.run(self.store.unsubscribe([name])) > 0

    def steps(self, job_id: UUID | str) -> Sequence[Step]:
        """The recorded steps of a job, in the order they were recorded."""
        return self.client.run(self.store.steps(as_id(job_id))).steps

    def schedule(
        self, name: str, task: Task[..., Any] | str, rule: Rules, **options: Unpack[ScheduleOptions]
    ) -> None:
        """Declare a schedule: a name, a task that is registered here, and when it is to run.

        `rule` is cron text (in the zone `tz`), a timedelta (fixed rate), a rule, several of these,
        or a whole Recurrence. Workers put it in force when they start. For schedules that are not
        part of the code there is `app.schedules`.
        """
        from duly.registry.scheduling import define_schedule

        definition = self.registry.require(task if isinstance(task, str) else task.name)
        arguments = definition.arguments.encode_object(options.get("arguments", {}))
        made = define_schedule(definition.catalogued(), arguments.decode(), rule, options)
        self.registry.schedules.add(option_checks.schedule(name), made)

    def named(self, name: str, *, unchecked: bool = False) -> NamedTask:
        """A task known by name only; `unchecked` allows one that no worker has published."""
        return NamedTask(option_checks.task(name), self.client, unchecked)

    def enqueue(self, name: str, /, **arguments: Any) -> Job[Any]:
        """Submit by name, for a service that does not import the task."""
        return self.named(name).enqueue(**arguments)

    async def aenqueue(self, name: str, /, **arguments: Any) -> Job[Any]:
        """Submit by name, for a service that does not import the task."""
        return await self.named(name).aenqueue(**arguments)

    def enqueue_many(
        self, jobs: Iterable[Prepared[Any]], *, connection: object | None = None
    ) -> Jobs:
        """Submit many at once: thousands a round trip, each batch of 5,000 all or none."""
        return self.client.submit(list(jobs), connection)

    async def aenqueue_many(
        self, jobs: Iterable[Prepared[Any]], *, connection: object | None = None
    ) -> Jobs:
        """Submit many at once: thousands a round trip, each batch of 5,000 all or none."""
        return await self.client.asubmit(list(jobs), connection)

    def flow(
        self,
        name: str,
        *,
        on_failure: FailurePolicy | str = "cancel",
        max_active: int | None = None,
    ) -> Flow:
        """A flow to be built in a `with` block: jobs that wait for each other.

        When a node fails, the rest is cancelled (`on_failure="cancel"`), goes on where it can
        ("continue"), or waits for an operator ("pause"). With `max_active`, at most that many
        flows of this name run at once; others are queued.
        """
        from duly.client.flow import Flow

        return Flow(self.client, name, on_failure, max_active)

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
        limit: int = 100,
        before: UUID | str | None = None,
        **conditions: Unpack[Conditions],
    ) -> list[Job[Any]]:
        """Jobs that match every condition, newest first; for the next page pass the last job's
        id as `before`.

        Conditions: state (one or several), queue, task, key, owner, tenant, schedule (its name),
        tags (all of them), created_from, created_before, finished_from, finished_before.
        """
        return self.client.find(criteria(conditions), page(limit), before)

    async def alist(
        self,
        *,
        limit: int = 100,
        before: UUID | str | None = None,
        **conditions: Unpack[Conditions],
    ) -> Sequence[Job[Any]]:
        """Jobs that match every condition, newest first; see `list`."""
        return await self.client.afind(criteria(conditions), page(limit), before)

    def cancel(self, job_id: UUID | str, reason: str | None = None) -> Cancellation:
        """Cancel a job: at once if it has not started, by request if it runs."""
        return self.client.cancel([job_id], reason)[0]

    async def acancel(self, job_id: UUID | str, reason: str | None = None) -> Cancellation:
        """Cancel a job: at once if it has not started, by request if it runs."""
        return (await self.client.acancel([job_id], reason))[0]

    def replay(
        self,
        job_id: UUID | str,
        arguments: dict[str, Any] | None = None,
        *,
        keep_steps: bool = True,
    ) -> Replay:
        """Run a dead job again, in a new generation, with other arguments if they are given.

        Recorded steps are not run again, unless their compensations have run, or `keep_steps` is
        false.
        """
        encoded = None
        if arguments is not None:
            encoded = self.client.encode(self.get(job_id).task, arguments)
        return self.client.replay([job_id], encoded, keep_steps)[0]

    async def areplay(
        self,
        job_id: UUID | str,
        arguments: dict[str, Any] | None = None,
        *,
        keep_steps: bool = True,
    ) -> Replay:
        """Run a dead job again, in a new generation; see `replay`."""
        encoded = None
        if arguments is not None:
            encoded = await self.client.aencode((await self.aget(job_id)).task, arguments)
        return (await self.client.areplay([job_id], encoded, keep_steps))[0]

    def start(
        self, *, workers: int = 10, queues: Iterable[str] = (), scheduler: bool = True
    ) -> None:
        """Run jobs inside this program, `workers` at a time, from these queues or all, and take
        part in scheduling recurring work.

        No signal handler is set and the main script is not imported again: it works in scripts,
        notebooks and servers. A small process beside this one keeps the lease.
        """
        self._hosting.start(workers, queues, scheduler)

    def stop(self, *, wait: bool = True) -> None:
        """End what `start` began: jobs may finish within the grace period, the rest is released.

        Without `wait`, running jobs are released at once.
        """
        self._hosting.stop(wait)

    def running(
        self, *, workers: int = 10, queues: Iterable[str] = (), scheduler: bool = True
    ) -> AbstractContextManager[App]:
        """`start` and `stop` around a block."""
        return self._hosting.running(self, workers, queues, scheduler)

    def arunning(
        self, *, workers: int = 10, queues: Iterable[str] = (), scheduler: bool = True
    ) -> AbstractAsyncContextManager[App]:
        """`start` and `stop` around an asynchronous block."""
        return self._hosting.arunning(self, workers, queues, scheduler)

    def run_until_idle(
        self, *, workers: int = 10, queues: Iterable[str] = (), timeout: Duration | None = None
    ) -> int:
        """Run what is due, and what that makes due at once, then return how many attempts ended.

        Jobs of a later time are left, retries that wait for their backoff too. For scripts and
        tests; raises TimeoutError when `timeout` passes first.
        """
        return self._hosting.run_until_idle(workers, queues, timeout)

    def counts(self) -> Sequence[Count]:
        """How many jobs each queue has in each state."""
        return self.client.run(self.store.counts())

    async def acounts(self) -> Sequence[Count]:
        """How many jobs each queue has in each state."""
        return await self.client.arun(self.store.counts())

    def publish(self) -> None:
        """Write this app's tasks to the catalogue, for those who submit by name."""
        self.client.publish()

    async def apublish(self) -> None:
        """Write this app's tasks to the catalogue, for those who submit by name."""
        await self.client.apublish()

    def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date; answers the names of the migrations applied.

        SQLite does so by itself whenever it is opened.
        """
        return self.store.migrate()

    async def amigrate(self) -> Sequence[str]:
        """Bring the database's schema up to date; see `migrate`."""
        import asyncio

        return await asyncio.to_thread(self.store.migrate)

    def close(self) -> None:
        """Let go of connections and threads. The app can be used again; it reopens."""
        self._hosting.stop(wait=False)
        self.client.waiting.close()
        self.store.close()
