"""The types of a job's context in a blocking task, where steps return the values themselves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from duly.model.event import Event
from duly.model.job import JobRecord
from duly.policy.duration import Duration
from duly.runtime.steps.startable import Startable

P = ParamSpec("P")
R = TypeVar("R")


class BlockingSteps(Protocol):
    """Durable steps with options; see JobContext.using."""

    def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class BlockingContext(Protocol):
    """What `duly.current_blocking()` gives; see JobContext for what each does."""

    job: JobRecord

    @property
    def id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def connection(self) -> Any: ...
    @property
    def cancelled(self) -> bool: ...
    def wait_cancelled(self, timeout: float) -> bool: ...
    def progress(self, fraction: float, message: str = "") -> None: ...
    def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def using(
        self,
        *,
        key: object = None,
        retries: int = 0,
        backoff: Any = None,
        timeout: Duration | None = None,
        transactional: bool = False,
    ) -> BlockingSteps: ...
    def sleep(self, duration: Duration, *, key: object = None) -> None: ...
    def sleep_until(self, moment: datetime, *, key: object = None) -> None: ...
    def wait_for(
        self,
        event: str,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
        since: datetime | None = None,
    ) -> Event: ...
    def spawn(self, task: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def now(self) -> datetime: ...
    def random(self) -> float: ...
    def uuid(self) -> UUID: ...
    def on_failure(self, task: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
