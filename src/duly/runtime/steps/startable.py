"""Tasks and jobs as steps start them, told by their types alone: the client's are such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from duly.model.job import Draft
from duly.policy.duration import Duration

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


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
