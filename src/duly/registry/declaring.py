"""The options of `@app.task`, checked, and the definition they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from duly.errors import ConfigurationError, InvalidOption
from duly.model.job import Delivery
from duly.policy import options
from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration
from duly.policy.retry import DEFAULT_BACKOFF, Backoff, RetryPolicy, fixed, listed
from duly.registry.task import Execution, Hooks, TaskDefaults, TaskDefinition

Exceptions = type[BaseException] | tuple[type[BaseException], ...]
Hook = Callable[[Any], Any]


LEAST_MEMORY = 64_000_000
"""Below this the interpreter itself does not live."""


class TaskOptions(TypedDict, total=False):
    """What `@app.task` takes.

    name: the task's name; the function's by default.
    queue, priority, tags: where its jobs stand, unless a submission says otherwise.
    retries: how many attempts follow a failed one (default 3).
    backoff: the delays between them: a duration, a list of durations, or a function of the failed
        attempt's number; by default 2 s, doubled each time up to an hour.
    jitter: whether delays are multiplied by a factor of 0.5 to 1.5 (default True).
    retry_on, give_up_on: which exceptions are worth another attempt, and which end the job.
    timeout: the hard time limit of an attempt.
    soft_timeout: when TimeLimitExceeded (CancelledError in async tasks) is raised in the task.
    expires: a job that has not started this long after its submission is cancelled.
    delivery: "at_least_once" (default), "at_most_once" or "transactional".
    transactional: the same as delivery="transactional".
    isolate, cpu: run each job in a process of its own.
    memory_limit: the most bytes of address space that an isolated process may take.
    max_crashes: how often a job may take its process down before it is dead (default 3).
    on_success, on_failure, on_dead: called with the job's record after that outcome is stored.
    """

    name: str
    queue: str
    priority: int
    retries: int
    backoff: Backoff | Duration | Sequence[Duration]
    jitter: bool
    retry_on: Exceptions
    give_up_on: Exceptions
    timeout: Duration
    soft_timeout: Duration
    expires: Duration
    delivery: Delivery | str
    transactional: bool
    isolate: bool
    cpu: bool
    memory_limit: int
    tags: Iterable[str]
    max_crashes: int
    on_success: Hook
    on_failure: Hook
    on_dead: Hook


def define(function: Callable[..., Any], **given: Unpack[TaskOptions]) -> TaskDefinition:
    """The task that the function and the options make."""
    unknown = set(given) - set(TaskOptions.__annotations__)
    if unknown:
        known = ", ".join(sorted(TaskOptions.__annotations__))
        raise InvalidOption(sorted(unknown)[0], f"no such option of a task; known are {known}")
    if not callable(function):
        raise ConfigurationError(f"@app.task takes a function and keywords; got {function!r}")
    name = options.task(given.get("name", function.__name__), "name")
    timeout = given.get("timeout")
    soft_timeout = given.get("soft_timeout")
    expires = given.get("expires")
    defaults = TaskDefaults(
        queue=options.queue(given.get("queue", "default")),
        priority=options.priority(given.get("priority", 5)),
        retries=options.retries(given.get("retries", 3)),
        timeout=None if timeout is None else options.timeout(timeout),
        expires=None if expires is None else parse_duration(expires, "expires"),
        delivery=_delivery(given),
        tags=options.tags(given.get("tags", ())),
        max_crashes=max(1, options.retries(given.get("max_crashes", 3), "max_crashes")),
    )
    retry = RetryPolicy(
        backoff=backoff_of(given.get("backoff")),
        jitter=given.get("jitter", True),
        retry_on=_exceptions("retry_on", given.get("retry_on", Exception)),
        give_up_on=_exceptions("give_up_on", given.get("give_up_on", ())),
    )
    execution = Execution(
        isolate=given.get("isolate", False) or given.get("cpu", False),
        soft_timeout=None if soft_timeout is None else options.timeout(soft_timeout),
        memory_limit=_memory_limit(given),
    )
    if execution.isolate and defaults.delivery is Delivery.TRANSACTIONAL:
        raise InvalidOption(
            "isolate", "a transactional task uses the worker's connection: it cannot be isolated"
        )
    for hook in ("on_success", "on_failure", "on_dead"):
        if given.get(hook) is not None and not callable(given.get(hook)):
            raise InvalidOption(hook, f"must be a function of the job; got {given.get(hook)!r}")
    hooks = Hooks(given.get("on_success"), given.get("on_failure"), given.get("on_dead"))
    return TaskDefinition(name, function, defaults, retry, execution, hooks)


def _memory_limit(given: TaskOptions) -> int | None:
    value: Any = given.get("memory_limit")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < LEAST_MEMORY:
        raise InvalidOption(
            "memory_limit",
            f"must be a number of bytes, at least {LEAST_MEMORY:_}, such as 1_000_000_000; got "
            f"{value!r}",
        )
    if not given.get("isolate", False) and not given.get("cpu", False):
        raise InvalidOption(
            "memory_limit", "holds for a process of the task's own: add isolate=True or cpu=True"
        )
    return value


def _delivery(given: TaskOptions) -> Delivery:
    value = given.get("delivery")
    if given.get("transactional", False):
        if value not in (None, Delivery.TRANSACTIONAL):
            raise InvalidOption("transactional", f"contradicts delivery={value!r}")
        return Delivery.TRANSACTIONAL
    if value is None:
        return Delivery.AT_LEAST_ONCE
    try:
        return Delivery(value)
    except ValueError:
        known = "', '".join(each.value for each in Delivery)
        raise InvalidOption("delivery", f"must be one of '{known}'; got {value!r}") from None


def backoff_of(value: Backoff | Duration | Sequence[Duration] | None) -> Backoff:
    """A backoff as people write it."""
    if value is None:
        return DEFAULT_BACKOFF
    if isinstance(value, timedelta | float | int | str):
        return fixed(parse_duration(value, "backoff"))
    if callable(value):
        computed = value
        return lambda attempt: parse_duration(computed(attempt), "backoff")
    return listed([parse_duration(each, "backoff") for each in value])


def _exceptions(option: str, value: Exceptions) -> tuple[type[BaseException], ...]:
    kinds: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidOption(
                option, f"must be exception classes such as (OSError,); got {kind!r}"
            )
    return kinds
