"""What a task can learn and say about its own job while it runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from typing import Any, cast
from uuid import UUID

from duly.errors import InvalidOption, NotInTask
from duly.model.job import JobRecord
from duly.model.schedule import LastSuccess, last_success_in
from duly.runtime.blocking import BlockingContext
from duly.runtime.steps.driving import scope
from duly.runtime.steps.methods import StepMethods
from duly.runtime.steps.port import Port

Report = Callable[[JobRecord, float, str], None]

_making = threading.Lock()


class JobContext(StepMethods):
    """The running job. One object an attempt; safe to use from any thread of it."""

    # Made when first asked for, which few jobs do: see StepMethods.
    noticed = False
    """Whether the task was told to stop: what it returns after that is not its result."""
    _cancelled = False
    _connection: Any = None
    _waking: threading.Condition | None = None
    _flows: Counter[str] | None = None

    def __init__(
        self,
        job: JobRecord,
        report: Report | None = None,
        port: Port | None = None,
        payload_limit: int = 1_048_576,
        is_async: bool = False,
    ) -> None:
        super().__init__(job, port, payload_limit, is_async)
        self._report = report

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
