"""Which jobs were submitted, and a clear word when one was not."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from duly.app import App
from duly.client.job import Job
from duly.client.task import Task
from duly.errors import InvalidArguments, InvalidOption
from duly.registry import strict_json

PAGE = 1_000
MOST_SHOWN = 20

Args = Sequence[Any]
Kwargs = Mapping[str, Any]


def find(app: App, task: Task[..., Any] | str, args: Args, kwargs: Kwargs) -> list[Job[Any]]:
    """The jobs of the task that have these arguments, in the order of submission."""
    wanted = _given(app, task, args, kwargs)
    defaults = _defaults(app, task)
    return [job for job in _all(app, task) if _fits(job, wanted, defaults)]


def require(app: App, task: Task[..., Any] | str, args: Args, kwargs: Kwargs) -> Job[Any]:
    """The last of them; AssertionError when there is none."""
    __tracebackhide__ = True
    found = find(app, task, args, kwargs)
    if not found:
        raise AssertionError(_missing(app, task, _given(app, task, args, kwargs)))
    return found[-1]


def forbid(app: App, task: Task[..., Any] | str, args: Args, kwargs: Kwargs) -> None:
    """AssertionError when there is one."""
    __tracebackhide__ = True
    found = find(app, task, args, kwargs)
    if found:
        lines = [f"{_call(_name(task), _given(app, task, args, kwargs))} was enqueued:"]
        raise AssertionError("\n".join(lines + _lines(found)))


def _given(app: App, task: Task[..., Any] | str, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The arguments by name, as they are stored; some may be left out."""
    definition = app.registry.require(_name(task))
    try:
        given = inspect.signature(definition.function).bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise InvalidArguments(definition.name, str(error)) from None
    try:
        stored = msgspec.json.decode(definition.arguments.encode(tuple(args), dict(kwargs)))
    except InvalidArguments:
        stored = msgspec.json.decode(strict_json.encode(dict(given)))
    return {name: value for name, value in stored.items() if name in given}


def _all(app: App, task: Task[..., Any] | str) -> list[Job[Any]]:
    jobs: list[Job[Any]] = []
    while page := app.list(task=_name(task), limit=PAGE, before=jobs[-1].id if jobs else None):
        jobs += page
    return jobs[::-1]


def _defaults(app: App, task: Task[..., Any] | str) -> dict[str, Any]:
    """What holds for arguments that were left out: they are not stored."""
    parameters = inspect.signature(app.registry.require(_name(task)).function).parameters.values()
    return {
        each.name: msgspec.to_builtins(each.default, enc_hook=repr)
        for each in parameters
        if each.default is not inspect.Parameter.empty
    }


def _fits(job: Job[Any], wanted: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    had = {**defaults, **msgspec.json.decode(job.record.arguments)}
    return all(name in had and had[name] == value for name, value in wanted.items())


def _missing(app: App, task: Task[..., Any] | str, wanted: Mapping[str, Any]) -> str:
    name = _name(task)
    lines = [f"{_call(name, wanted)} was not enqueued."]
    alike = _all(app, task)
    if alike:
        lines += [f"What was enqueued of {name}:", *_lines(alike)]
    others = Counter(each.task for each in app.list(limit=PAGE) if each.task != name)
    if others:
        told = ", ".join(f"{other} ({count})" for other, count in sorted(others.items()))
        lines.append(f"Other tasks that were enqueued: {told}")
    elif not alike:
        lines.append("Nothing at all was enqueued.")
    return "\n".join(lines)


def _lines(jobs: Sequence[Job[Any]]) -> list[str]:
    lines = [
        f"  {_call(job.task, msgspec.json.decode(job.record.arguments))}"
        f"  {job.status.value}, queue {job.queue}, due {job.record.run_at:%Y-%m-%d %H:%M:%S}"
        for job in jobs[:MOST_SHOWN]
    ]
    if len(jobs) > MOST_SHOWN:
        lines.append(f"  and {len(jobs) - MOST_SHOWN} more")
    return lines


def _call(task: str, arguments: Mapping[str, Any]) -> str:
    return f"{task}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _name(task: Task[..., Any] | str) -> str:
    if isinstance(task, str):
        return task
    if not isinstance(task, Task):
        raise InvalidOption("task", f"expected a task, or the name of one; got {task!r}")
    return task.name
