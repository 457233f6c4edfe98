"""What a task can learn and say about its own job while it runs."""

from __future__ import annotations

import inspect
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload
from uuid import UUID, uuid4

from duly.errors import InvalidOption, NotInTask
from duly.model.event import Event
from duly.model.job import Delivery, Draft, JobRecord
from duly.model.schedule import LastSuccess, last_success_in
from duly.model.step import Recorded
from duly.policy import options as option_checks
from duly.policy.duration import parse as parse_duration
from duly.policy.retry import RetryPolicy
from duly.policy.stepping import given_key
from duly.policy.subscribing import event_name
from duly.registry.declaring import backoff_of
from duly.runtime.driving import AsyncDriver, drive, scope
from duly.runtime.step_port import Port
from duly.runtime.steps import Durable, StepOptions, Talk

if TYPE_CHECKING:
    from duly.runtime.blocking import BlockingContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

Duration = timedelta | float | str
Report = Callable[[JobRecord, float, str], None]

_making = threading.Lock()


class PreparedJob(Protocol):
    """A job that is checked and encoded, not stored: what `task.job(...)` gives."""

    @property
    def draft(self) -> Draft: ...
    @property
    def decode(self) -> Callable[[str], Any]: ...


class Handle(Protocol[R_co]):
    """A submitted job; its result tells the type of its task's."""

    def result(self, timeout: Duration | None = None) -> R_co: ...


class Startable(Protocol[P, R_co]):
    """A task, as steps start jobs of it."""

    def job(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob: ...
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...


class Steps:
    """Durable steps with options; what `ctx.using(...)` gives."""

    def __init__(self, context: JobContext, options: StepOptions) -> None:
        self._context = context
        self._options = options

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See JobContext.step."""
        if self._options.transactional and inspect.iscoroutinefunction(function):
            raise InvalidOption(
                "transactional",
                f"step {name!r} is async: its function must be a blocking one",
            )
        durable = self._context.durable
        return self._context.carry_out(durable.call(name, function, args, kwargs, self._options))

    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """See JobContext.spawn."""
        prepared = task.job(*args, **kwargs)
        durable = self._context.durable
        return self._context.carry_out(
            durable.spawn(prepared.draft, prepared.decode, self._options.key)
        )


class JobContext:
    """The running job. One object an attempt; safe to use from any thread of it."""

    def __init__(
        self,
        job: JobRecord,
        report: Report | None = None,
        port: Port | None = None,
        payload_limit: int = 1_048_576,
        is_async: bool = False,
    ) -> None:
        self.job = job
        self.is_async = is_async
        self.port = port
        self.noticed = False
        """Whether the task was told to stop: what it returns after that is not its result."""
        self.recorded: Recorded | None = None
        """The steps that earlier attempts have recorded, where they were read with the claim."""
        self._report = report
        self._payload_limit = payload_limit
        self._connection: Any = None
        self._durable: Durable | None = None
        self._driver: AsyncDriver | None = None
        self._cancelled = False
        self._waking: threading.Condition | None = None
        self._flows: Counter[str] | None = None

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of the job, and in a step the step's own: hand it to services
        that take such keys."""
        step = scope.get()
        return str(self.job.id) if step is None else step.idempotency_key

    @property
    def connection(self) -> Any:
        """In a transactional task, the connection whose writes commit with the job; in a
        transactional step, the one whose writes commit with the step's record."""
        step = scope.get()
        return self._connection if step is None else step.connection

    @connection.setter
    def connection(self, connection: Any) -> None:
        self._connection = connection

    @property
    def scheduled_for(self) -> datetime | None:
        """In a job of a schedule: the nominal time it was made for."""
        return self.job.scheduled_for

    @property
    def last_success(self) -> LastSuccess | None:
        """In a job of a schedule: its last successful tick, as it was known when this job was
        made; None before the first."""
        return last_success_in(self.job.metadata) if self.job.schedule_id is not None else None

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel the job, or the worker has to stop.

        A task that has been told so and then returns counts as cancelled, not as done.
        """
        return self._told(self._cancelled)

    def wait_cancelled(self, timeout: float) -> bool:
        """Sleep for up to `timeout` seconds; true at once when the job is cancelled."""
        with _making:
            if self._waking is None:
                self._waking = threading.Condition()
        with self._waking:
            return self._told(self._waking.wait_for(lambda: self._cancelled, timeout))

    def cancel(self) -> None:
        """Tell the task that it should stop."""
        self._cancelled = True
        if self._waking is not None:
            with self._waking:
                self._waking.notify_all()

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the job is, from 0 to 1; it can be read while the job runs."""
        if not 0 <= fraction <= 1:
            raise InvalidOption("progress", f"must be from 0 to 1, such as 0.4; got {fraction!r}")
        if self._report is not None:
            self._report(self.job, float(fraction), message)

    def next_flow_id(self, name: str) -> UUID:
        """The id of the next flow of this name that this job submits: the same in every attempt
        of a generation, and beside the job's own where ids are sorted."""
        if self._flows is None:
            self._flows = Counter()
        self._flows[name] += 1
        seed = f"{self.job.id} {self.job.generation} {name} {self._flows[name]}"
        digest = int.from_bytes(blake2b(seed.encode(), digest_size=10).digest(), "big")
        digest = digest & ~(0xF << 76) | 0x7 << 76
        digest = digest & ~(0b11 << 62) | 0b10 << 62
        return UUID(int=(self.job.id.int >> 80) << 80 | digest)

    # Durable steps. In an async task their methods are awaited; in a blocking one they are not, and
    # return the values themselves: there, current_blocking() has the right types.

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[R]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; once it is recorded, the function is not called again.

        A function that raises makes the step fail with StepFailed. In an async task a blocking
        function is called in a thread.
        """
        return Steps(self, StepOptions()).step(name, function, *args, **kwargs)

    def using(
        self,
        *,
        key: object = None,
        retries: int = 0,
        backoff: Any = None,
        timeout: Duration | None = None,
        transactional: bool = False,
    ) -> Steps:
        """Steps with options, as in `ctx.using(retries=3).step("charge", charge, order)`.

        key: tells repeats of a step apart, such as the id of what a loop is about.
        retries, backoff: how often a failed step is tried again, and when, as for a task.
        timeout: how long one try may take.
        transactional: what the function writes on `duly.current().connection` and the record of
            the step are committed together; it must be a blocking function.
        """
        limit = None if timeout is None else option_checks.timeout(timeout).total_seconds()
        return Steps(
            self,
            StepOptions(
                key=None if key is None else given_key(key),
                retries=option_checks.retries(retries),
                policy=RetryPolicy(backoff=backoff_of(backoff)),
                timeout=limit,
                transactional=transactional,
            ),
        )

    def sleep(self, duration: Duration, *, key: object = None) -> Awaitable[None]:
        """Go on after that time. Meanwhile the job is a row, and holds no worker."""
        delay = parse_duration(duration, "duration")
        given = None if key is None else given_key(key)
        return self.carry_out(self.durable.sleep(delay, None, given))

    def sleep_until(self, moment: datetime, *, key: object = None) -> Awaitable[None]:
        """Go on at that time; see `sleep`."""
        until = option_checks.instant(moment, "moment")
        given = None if key is None else given_key(key)
        return self.carry_out(self.durable.sleep(None, until, given))

    def wait_for(
        self,
        event: str,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
        since: datetime | None = None,
    ) -> Awaitable[Event]:
        """The next event of this name, of this key if one is given; WaitTimeout when none comes
        within `timeout`. See `sleep`.

        One that came before counts as well, unless this job had it already, it was before `since`,
        or its retention has passed.
        """
        limit = None if timeout is None else parse_duration(timeout, "timeout")
        start = None if since is None else option_checks.instant(since, "since")
        chosen = None if key is None else option_checks.key(str(key))
        return self.carry_out(self.durable.wait_for(event_name(event), chosen, limit, start))

    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Start a job of another task and return its result; see `sleep`.

        Raises JobFailed or JobCancelled when it ends so.
        """
        return Steps(self, StepOptions()).spawn(task, *args, **kwargs)

    def now(self) -> Awaitable[datetime]:
        """What time it was, by the store's clock, when the job first came here."""
        return self.carry_out(self.durable.now())

    def random(self) -> Awaitable[float]:
        """A random number from 0 to 1, the same in every attempt."""
        return self.carry_out(self.durable.value("random", float, random.random))

    def uuid(self) -> Awaitable[UUID]:
        """A random UUID, the same in every attempt."""
        return self.carry_out(self.durable.value("uuid", UUID, uuid4))

    def on_failure(
        self, task: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[None]:
        """Have a job of this task undo what was done, should this job end dead or cancelled.

        Such jobs run one after another, the last one registered first; this job ends after them.
        """
        return self.carry_out(self.durable.on_failure(task.job(*args, **kwargs).draft))

    @property
    def durable(self) -> Durable:
        """The steps of this attempt."""
        if self.port is None:
            raise NotInTask("durable steps need a worker; here the task was called directly")
        if self.job.delivery is Delivery.TRANSACTIONAL:
            raise InvalidOption(
                "transactional",
                "a task that is one transaction has no steps: make its steps transactional "
                "instead, with ctx.using(transactional=True)",
            )
        if self._durable is None:
            self._durable = Durable(self.job, self._payload_limit, self.recorded)
        return self._durable

    @property
    def suspended(self) -> bool:
        """Whether the attempt is to end because the job waits."""
        return self._durable is not None and self._durable.suspended

    def carry_out(self, talk: Talk[T]) -> Awaitable[T]:
        """Carry out a step's conversation: here and now, or as something to be awaited."""
        if self.port is None:
            raise NotInTask("durable steps need a worker; here the task was called directly")
        if scope.get() is not None:
            raise InvalidOption(
                "step",
                "a step has no steps, sleeps or waits of its own: call them one after another in "
                "the task itself, or let the step be a job: ctx.spawn(task, ...)",
            )
        if not self.is_async:
            return cast("Awaitable[T]", drive(talk, self.durable, self.port))
        if self._driver is None:
            self._driver = AsyncDriver(self.durable, self.port)
        return self._driver.drive(talk)

    def _told(self, cancelled: bool) -> bool:
        self.noticed = self.noticed or cancelled
        return cancelled


running: ContextVar[JobContext | None] = ContextVar("duly_running_job", default=None)


def current() -> JobContext:
    """The job that this code runs for; NotInTask outside of one."""
    context = running.get()
    if context is None:
        raise NotInTask(
            "duly.current() is for code that a worker runs as a task; here no job is running"
        )
    return context


def current_blocking() -> BlockingContext:
    """As `current`, for a blocking task: the steps have the types of what they return there."""
    context = current()
    if context.is_async:
        raise NotInTask("current_blocking() is for blocking tasks; in an async one use current()")
    return cast("BlockingContext", context)
