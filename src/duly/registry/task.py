"""Task definitions: a function, its codecs and its defaults, under a name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from duly.errors import ConfigurationError, UnknownTask
from duly.model.catalogue import CatalogueEntry
from duly.model.job import Delivery, Priority
from duly.policy.retry import RetryPolicy
from duly.registry.arguments import ArgumentCodec, ResultCodec
from duly.registry.schedules import DeclaredSchedules
from duly.registry.subscribing import DeclaredSubscriptions


class TaskDefaults(msgspec.Struct, frozen=True):
    """What a task's jobs get unless a submission says otherwise."""

    queue: str = "default"
    priority: int = Priority.NORMAL
    retries: int = 3
    timeout: timedelta | None = None
    expires: timedelta | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    tags: tuple[str, ...] = ()
    max_crashes: int = 3


class Execution(msgspec.Struct, frozen=True):
    """How a task's code is run."""

    isolate: bool = False
    soft_timeout: timedelta | None = None
    memory_limit: int | None = None


class Hooks(msgspec.Struct, frozen=True):
    """Functions called with the job's record after an outcome is stored.

    They are called at most once, by the worker that stored the outcome, and not at all when that
    dies first: work that must happen belongs in a job.
    """

    on_success: Callable[[Any], Any] | None = None
    on_failure: Callable[[Any], Any] | None = None
    on_dead: Callable[[Any], Any] | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return not (self.on_success is self.on_failure is self.on_dead is None)


class TaskDefinition:
    """A registered function. Built once; everything a submission needs is prepared here."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        defaults: TaskDefaults,
        retry: RetryPolicy,
        execution: Execution,
        hooks: Hooks,
    ) -> None:
        self.name = name
        self.function = function
        self.defaults = defaults
        self.retry = retry
        self.execution = execution
        self.hooks = hooks
        self.is_async = inspect.iscoroutinefunction(function)
        self.arguments = ArgumentCodec(function, name)
        self.result = ResultCodec(function, name)

    def catalogued(self) -> CatalogueEntry:
        """What the catalogue says of this task."""
        return CatalogueEntry(
            name=self.name,
            schema=self.arguments.schema(),
            queue=self.defaults.queue,
            priority=self.defaults.priority,
            max_attempts=self.defaults.retries + 1,
            max_crashes=self.defaults.max_crashes,
            timeout=_seconds(self.defaults.timeout),
            expires_after=_seconds(self.defaults.expires),
            delivery=self.defaults.delivery,
            tags=self.defaults.tags,
        )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


class Registry:
    """The tasks of one app, by name, and the schedules and subscriptions that its code
    declares."""

    def __init__(self, application: str) -> None:
        self.schedules = DeclaredSchedules(application)
        self.subscriptions = DeclaredSubscriptions()
        self._tasks: dict[str, TaskDefinition] = {}

    def add(self, definition: TaskDefinition) -> None:
        """Register a task; a name stands for one function only."""
        earlier = self._tasks.get(definition.name)
        if earlier is not None and not _same_source(earlier.function, definition.function):
            raise ConfigurationError(
                f"two functions are registered as task {definition.name!r}: "
                f"{_where(earlier.function)} and {_where(definition.function)}; give one of them "
                "another name with @app.task(name=...)"
            )
        self._tasks[definition.name] = definition

    def get(self, name: str) -> TaskDefinition | None:
        """The task of this name, if it is registered here."""
        return self._tasks.get(name)

    def require(self, name: str) -> TaskDefinition:
        """The task of this name; UnknownTask when there is none here."""
        definition = self._tasks.get(name)
        if definition is None:
            raise UnknownTask(name, "it is not registered with this app")
        return definition

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tasks, sorted."""
        return tuple(sorted(self._tasks))

    def __iter__(self) -> Iterator[TaskDefinition]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)


def _same_source(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Whether both are one function, perhaps of a module that was reloaded."""
    return _where(first) == _where(second)


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
