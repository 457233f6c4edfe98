"""The durable steps of a job, as its code calls them."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload
from uuid import UUID, uuid4

from duly.errors import InvalidOption, NotInTask
from duly.model.event import Event
from duly.model.job import Delivery, JobRecord
from duly.model.step import Recorded
from duly.policy import options as option_checks
from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration
from duly.policy.retry import RetryPolicy
from duly.policy.stepping import given_key
from duly.policy.subscribing import event_name
from duly.registry.declaring import backoff_of
from duly.runtime.steps import children, values, waits
from duly.runtime.steps.calls import StepOptions, call
from duly.runtime.steps.commands import Talk
from duly.runtime.steps.driving import drive, scope
from duly.runtime.steps.durable import Durable
from duly.runtime.steps.port import Port
from duly.runtime.steps.startable import Startable

if TYPE_CHECKING:
    from duly.runtime.steps.async_driving import AsyncDriver

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Steps:
    """Durable steps with options; what `ctx.using(...)` gives."""

    def __init__(self, methods: StepMethods, options: StepOptions) -> None:
        self._methods = methods
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
        """See StepMethods.step."""
        if self._options.transactional and inspect.iscoroutinefunction(function):
            raise InvalidOption(
                "transactional",
                f"step {name!r} is async: its function must be a blocking one",
            )
        durable = self._methods.durable
        return self._methods.carry_out(call(durable, name, function, args, kwargs, self._options))

    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """See StepMethods.spawn."""
        _require_task(task, "ctx.spawn(charge, 7)")
        prepared = task.job(*args, **kwargs)
        durable = self._methods.durable
        return self._methods.carry_out(
            children.spawn(durable, prepared.draft, prepared.decode, self._options.key)
        )


class StepMethods:
    """What a job's context offers for durable steps.

    In an async task these methods are awaited; in a blocking one they are not, and return the
    values themselves: there, current_blocking() has the right types.
    """

    # Few jobs have steps: what only those need is not set for each.
    recorded: Recorded | None = None
    """The steps that earlier attempts have recorded, where they were read with the claim."""
    _durable: Durable | None = None
    _driver: AsyncDriver | None = None

    def __init__(
        self, job: JobRecord, port: Port | None, payload_limit: int, is_async: bool
    ) -> None:
        self.job = job
        self.is_async = is_async
        self.port = port
        self._payload_limit = payload_limit

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
        return self.carry_out(waits.sleep(self.durable, delay, None, given))

    def sleep_until(self, moment: datetime, *, key: object = None) -> Awaitable[None]:
        """Go on at that time; see `sleep`."""
        until = option_checks.instant(moment, "moment")
        given = None if key is None else given_key(key)
        return self.carry_out(waits.sleep(self.durable, None, until, given))

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
        return self.carry_out(waits.wait_for(self.durable, event_name(event), chosen, limit, start))

    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Start a job of another task and return its result; see `sleep`.

        Raises JobFailed or JobCancelled when it ends so.
        """
        return Steps(self, StepOptions()).spawn(task, *args, **kwargs)

    def now(self) -> Awaitable[datetime]:
        """What time it was, by the store's clock, when the job first came here."""
        return self.carry_out(values.now(self.durable))

    def random(self) -> Awaitable[float]:
        """A random number from 0 to 1, the same in every attempt."""
        return self.carry_out(values.value(self.durable, "random", float, random.random))

    def uuid(self) -> Awaitable[UUID]:
        """A random UUID, the same in every attempt."""
        return self.carry_out(values.value(self.durable, "uuid", UUID, uuid4))

    def on_failure(
        self, task: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[None]:
        """Have a job of this task undo what was done, should this job end dead or cancelled.

        Such jobs run one after another, the last one registered first; this job ends after them.
        """
        _require_task(task, "ctx.on_failure(refund, 7)")
        return self.carry_out(children.on_failure(self.durable, task.job(*args, **kwargs).draft))

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
            from duly.runtime.steps.async_driving import AsyncDriver

            self._driver = AsyncDriver(self.durable, self.port)
        return self._driver.drive(talk)


def _require_task(task: object, example: str) -> None:
    if not callable(getattr(task, "job", None)):
        raise InvalidOption(
            "task",
            f"expected a task, with its arguments after it, as in {example}; got "
            f"{type(task).__name__}",
        )
