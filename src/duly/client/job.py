"""A job in the hands of application code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from duly.client.options import Duration
from duly.client.waiting import Answer, answers, next_of
from duly.errors import JobCancelled, JobFailed, ResultTimeout, UnknownJob
from duly.model.attempt import Attempt
from duly.model.job import JobRecord, State, Status
from duly.model.query import Cancellation, Enqueued
from duly.policy.duration import parse as parse_duration
from duly.policy.states import FINAL

if TYPE_CHECKING:
    from duly.client.client import Client
    from duly.service.explain import Explanation

R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """One job: its record as of the last look, and what can be done with it."""

    __slots__ = ("_answer", "_client", "_decode", "_record")

    def __init__(
        self, seen: JobRecord | Sequence[Enqueued], client: Client, decode: Callable[[str], Any]
    ) -> None:
        self._answer = seen
        self._record = seen if isinstance(seen, JobRecord) else None
        self._client = client
        self._decode = decode

    @property
    def created(self) -> bool:
        """Whether the submission that returned this made the job; it did not if it found its key
        held by this one."""
        return not isinstance(self._answer, JobRecord) and self._answer[0].created

    @property
    def record(self) -> JobRecord:
        """The job as of the last look."""
        record = self._record
        if record is None:
            answer = self._answer
            assert not isinstance(answer, JobRecord)
            record = self._record = answer[0].job
        return record

    @property
    def id(self) -> UUID:
        """The job's id; ids sort by creation."""
        return self.record.id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.record.task

    @property
    def queue(self) -> str:
        """The queue it is in."""
        return self.record.queue

    @property
    def state(self) -> State:
        """Its stored state, as of the last look."""
        return self.record.state

    @property
    def status(self) -> Status:
        """Its state as a person is shown it: a pending job is scheduled, ready or retrying."""
        return self.record.status(self._client.clock.now())

    def refresh(self) -> Job[R_co]:
        """Look again."""
        self._record = self._found(self._client.run(self._client.store.get([self.id]))[0])
        return self

    async def arefresh(self) -> Job[R_co]:
        """Look again."""
        operation = self._client.store.get([self.id])
        self._record = self._found((await self._client.arun(operation))[0])
        return self

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job and return its result.

        Raises JobFailed when it is dead, JobCancelled when it was cancelled, and ResultTimeout
        when it has not finished after `timeout`; the job goes on then.
        """
        seconds = _seconds(timeout)
        if seconds == 0:
            self.refresh()
            return self._outcome_by(seconds)
        told = answers()
        try:
            self._client.waiting.enter(self.id, told.put)
            self._heard(next_of(told, seconds))
        finally:
            self._client.waiting.leave(self.id, told.put)
        return self._outcome_by(seconds)

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job and return its result; see `result`."""
        import asyncio

        from duly.store.awaiting import Awaited

        seconds = _seconds(timeout)
        if seconds == 0:
            await self.arefresh()
            return self._outcome_by(seconds)
        awaited: Awaited[Answer] = Awaited()
        try:
            self._client.waiting.enter(self.id, awaited.set_result)
            done, _ = await asyncio.wait([awaited.future], timeout=seconds)
            self._heard(awaited.future.result() if done else None)
        finally:
            self._client.waiting.leave(self.id, awaited.set_result)
        return self._outcome_by(seconds)

    def cancel(self, reason: str | None = None) -> Cancellation:
        """Cancel the job: at once if it has not started, by request if it runs."""
        return self._client.cancel([self.id], reason)[0]

    async def acancel(self, reason: str | None = None) -> Cancellation:
        """Cancel the job: at once if it has not started, by request if it runs."""
        return (await self._client.acancel([self.id], reason))[0]

    def explain(self) -> Explanation:
        """What it is waiting for, or what became of it, in a sentence."""
        from duly.service.jobs import Jobs

        return Jobs(self._client.store).explain(self.id)

    async def aexplain(self) -> Explanation:
        """What it is waiting for, or what became of it, in a sentence."""
        import asyncio

        return await asyncio.to_thread(self.explain)

    def attempts(self) -> list[Attempt]:
        """Its finished attempts, in the order they were made."""
        return self._client.run(self._client.store.attempts(self.id))

    async def aattempts(self) -> list[Attempt]:
        """Its finished attempts, in the order they were made."""
        return await self._client.arun(self._client.store.attempts(self.id))

    def _found(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise UnknownJob(self.id)
        return record

    def _heard(self, answer: Answer | None) -> None:
        """What a wait came to; without an answer it is as it was when somebody last looked."""
        if answer is None:
            self._record = self._client.waiting.last_seen(self.id) or self._record
            return
        _, found = answer
        if isinstance(found, Exception):
            raise found
        self._record = self._found(found)

    def _outcome_by(self, seconds: float | None) -> R_co:
        record = self.record
        if record.state not in FINAL:
            raise ResultTimeout(record.id, seconds or 0.0, self.status.value)
        if record.state is State.CANCELLED:
            raise JobCancelled(record.id, record.reason)
        if record.state is State.DEAD:
            error = record.error
            raise JobFailed(
                record.id,
                record.reason,
                error.type if error else None,
                error.message if error else None,
                error.traceback if error else None,
            )
        value: R_co = self._decode("null" if record.result is None else record.result)
        return value

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.state.value}>"


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
