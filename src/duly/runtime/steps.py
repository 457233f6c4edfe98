"""Durable steps of one attempt, written once as conversations; see duly.runtime.driving.

A conversation yields what is to be done and is sent the answer, so that blocking and async tasks
share every rule.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import msgspec

from duly.clock import runtime_clock as clock
from duly.control import Cancel, Retry, Snooze, TimeLimitExceeded
from duly.errors import (
    DulyError,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    StepChanged,
    StepFailed,
    StepRefused,
    WaitTimeout,
)
from duly.model.event import Event
from duly.model.job import Draft, JobRecord, State
from duly.model.step import EventWait, Recorded, Step, StepKind, StepState, StepWrite, Wait
from duly.policy.retry import RetryPolicy
from duly.policy.states import FINAL
from duly.policy.stepping import GIVEN, StepBook, fingerprint, step_name
from duly.registry import strict_json
from duly.registry.arguments import ResultCodec
from duly.runtime.chance import chance
from duly.runtime.failure import failure_of
from duly.runtime.step_port import Load, LookAt, Record, Request, TakeEvent

T = TypeVar("T")

SHORT_PAUSE = timedelta(seconds=5)
"""A step that is to be tried again within this time is waited for; else the job is suspended."""

logger = logging.getLogger("duly.steps")
_DEFAULT_RETRIES = RetryPolicy()


class Suspended(BaseException):
    """Raised in a task to end its attempt while it waits. Not for user code to catch."""


class StepTimeLimit(TimeLimitExceeded):
    """A step ran for longer than its own time limit."""


class Unstorable(Exception):
    """What a step's function returned cannot be recorded. Another try would have its effect again
    and end the same way."""


class StepOptions(msgspec.Struct, frozen=True):
    """How one step is run."""

    key: str | None = None
    retries: int = 0
    policy: RetryPolicy = _DEFAULT_RETRIES
    timeout: float | None = None
    transactional: bool = False


class Call(msgspec.Struct, frozen=True):
    """Call the step's function. With `commit` its writes and its record go into one transaction,
    and the answer is the recorded step."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    idempotency_key: str
    timeout: float | None = None
    commit: Callable[[Any], StepWrite] | None = None


class Pause(msgspec.Struct, frozen=True):
    """Wait for some seconds, here."""

    seconds: float


class Turn:
    """Let what runs beside this step announce itself."""


class Quiet:
    """Wait until nothing else of this attempt is under way."""


Talk = Generator[Request | Call | Pause | Turn | Quiet, Any, T]


class Durable:
    """What one attempt knows of its job's steps."""

    def __init__(
        self, job: JobRecord, payload_limit: int, recorded: Recorded | None = None
    ) -> None:
        self.job = job
        self._given = recorded
        self.suspended = False
        """Whether the attempt is to end because it waits."""
        self._limit = payload_limit
        self._book = StepBook()
        self._waits: dict[tuple[str, str], Wait] = {}
        self._loaded_at: tuple[datetime, float] | None = None
        self._noted_new = False

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What the suspended attempt waits for."""
        return tuple(self._waits.values())

    def load(self) -> Talk[None]:
        """Read what earlier attempts have recorded, unless it was read with the claim."""
        recorded = self._given
        if recorded is None:
            recorded = yield Load(self.job.id)
        self._loaded_at = (recorded.now, clock.monotonic())
        self._book = StepBook(recorded.steps)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: StepOptions,
    ) -> Talk[Any]:
        """Run the function, or remember what it gave."""
        codec = _codec(function, step_name(name))
        mark = fingerprint(args, kwargs)
        key, step = yield from self._reach(name, StepKind.CALL, mark, options.key)
        if step is not None and step.state is StepState.DONE:
            return _remembered(codec, step)
        if step is not None and step.state is StepState.FAILED and self._holds(step):
            raise StepFailed(name, step.error_type or "", step.error_message or "")
        tries = step.tries if step is not None and step.state is StepState.RETRYING else 0
        if step is not None and tries and not self._passed(step.until):
            yield from self._suspend(Wait(write=StepWrite(token=self.job.token, step=step)))
        blank = self._step(name, key, StepKind.CALL, mark)

        def done(value: Any, tries: int) -> StepWrite:
            try:
                data = codec.encode(value)
                strict_json.check_size(data, f"the result of step {name!r}", self._limit)
            except DulyError as error:
                raise Unstorable from error
            return self._write(blank, StepState.DONE, tries=tries, result=data.decode())

        def commit_of(tries: int) -> Callable[[Any], StepWrite] | None:
            return (lambda value: done(value, tries)) if options.transactional else None

        identity = f"{self.job.id}:{name}" + (f":{key.removeprefix(GIVEN)}" if key else "")
        while True:
            tries += 1
            try:
                answer = yield Call(
                    function, args, kwargs, identity, options.timeout, commit_of(tries)
                )
                stored = yield from self._kept(name, answer, options, done, tries)
            except (Retry, Snooze, Cancel, StepRefused):
                raise
            except Exception as error:
                if isinstance(error, TimeLimitExceeded) and not isinstance(error, StepTimeLimit):
                    raise
                known = yield from self._failed(name, blank, error, options, tries)
                if known is None:
                    continue
                stored = known
            return codec.decode(stored.result or "null")

    def _kept(
        self,
        name: str,
        answer: Any,
        options: StepOptions,
        done: Callable[[Any, int], StepWrite],
        tries: int,
    ) -> Talk[Step]:
        """The step as it is recorded: by its own transaction, or now."""
        if not options.transactional:
            return (yield from self._record(done(answer, tries)))
        if answer is None:
            raise StepRefused(name)
        self._book.write(answer)
        stored: Step = answer
        return stored

    def _failed(
        self, name: str, blank: Step, error: Exception, options: StepOptions, tries: int
    ) -> Talk[Step | None]:
        """Return when the step is to be tried again; raise when not, or not now.

        Where the answer to a commit was lost, the step may be recorded as done: it is returned.
        """
        failure = failure_of(error.__cause__ or error if isinstance(error, Unstorable) else error)
        told: dict[str, Any] = {
            "tries": tries,
            "error_type": failure.type,
            "error_message": failure.message,
        }
        retries = 0 if isinstance(error, Unstorable) else options.retries
        if tries <= retries and not options.policy.gives_up_on(error):
            delay = options.policy.delay_after(tries, chance)
            logger.warning(
                "step %s failed, try %d of %d: %s: %s",
                name,
                tries,
                options.retries + 1,
                failure.type,
                failure.message,
            )
            write = self._write(blank, StepState.RETRYING, delay=delay, **told)
            if delay > SHORT_PAUSE:
                yield from self._suspend(Wait(write=write))
            stored = yield from self._record(write)
            if stored.state is StepState.DONE:
                return stored
            yield Pause(delay.total_seconds())
            return None
        stored = yield from self._record(self._write(blank, StepState.FAILED, **told))
        if stored.state is StepState.DONE:
            return stored
        raise StepFailed(name, failure.type, failure.message) from error

    def sleep(self, delay: timedelta | None, until: datetime | None, key: str | None) -> Talk[None]:
        """Wait for a time, as a row."""
        mark = fingerprint((str(delay or until),), {})
        key, step = self._book.reach("sleep", StepKind.SLEEP, mark, key)
        if step is not None and self._passed(step.until):
            return
        if step is None and self._book.sleeps_for_ever():
            yield Turn()
            if self._book.sleeps_for_ever():
                raise StepChanged(
                    "sleep",
                    "the job has slept here twice, each time until another moment, and would sleep "
                    "for ever. Where the moment is computed, take ctx.now() and ctx.random(), "
                    "which are recorded, or give the sleep a key=",
                )
        if step is None:
            blank = self._step("sleep", key, StepKind.SLEEP, mark)
            step = msgspec.structs.replace(blank, state=StepState.WAITING, until=until)
            write = StepWrite(token=self.job.token, step=step, delay=delay)
        else:
            write = StepWrite(token=self.job.token, step=step)
        yield from self._suspend(Wait(write=write))

    def wait_for(
        self, event: str, key: str | None, timeout: timedelta | None, since: datetime | None
    ) -> Talk[Event]:
        """The first event that fits, when it has come; WaitTimeout when it has not in time."""
        name = f"event:{event}"
        mark = fingerprint((key,), {})
        place, step = self._book.reach(name, StepKind.EVENT, mark, None)
        if step is None or step.state is not StepState.DONE:
            blank = self._step(name, place, StepKind.EVENT, mark)
            wait = EventWait(name=event, key=key, since=since)
            holds, found = yield TakeEvent(self.job.token, step or blank, wait)
            if not holds:
                raise StepRefused(name)
            if found is None and step is not None and self._passed(step.until):
                found = yield from self._record(self._write(step, StepState.DONE))
            if found is None:
                waiting = msgspec.structs.replace(step or blank, state=StepState.WAITING)
                delay = timeout if step is None else None
                write = StepWrite(token=self.job.token, step=waiting, delay=delay)
                yield from self._suspend(Wait(write=write, event=wait))
            step = found
            self._book.write(step)
        if step.event_id is None or step.result is None:
            raise WaitTimeout(event, key)
        return msgspec.json.decode(step.result, type=Event)

    def spawn(self, draft: Draft, decode: Callable[[str], Any], key: str | None) -> Talk[Any]:
        """Start a job, and its result when it has ended."""
        name = f"job:{draft.task}"
        mark = fingerprint((draft.arguments,), {})
        place, step = yield from self._reach(name, StepKind.JOB, mark, key)
        if step is None or (step.state is StepState.FAILED and not self._holds(step)):
            child = msgspec.structs.replace(draft, parent_id=self.job.id)
            blank = self._step(name, place, StepKind.JOB, mark)
            write = self._write(blank, StepState.WAITING, child_id=child.id)
            step = yield from self._record(msgspec.structs.replace(write, draft=child))
            yield from self._suspend(
                Wait(write=StepWrite(token=self.job.token, step=step), child_id=child.id)
            )
        if step.state is StepState.WAITING:
            step = yield from self._end_of_child(step)
        if step.state is StepState.DONE:
            return decode(step.result or "null")
        _raise_for_child(step)

    def value(self, name: str, kind: Any, produce: Callable[[], Any]) -> Talk[Any]:
        """Something that would be different the next time, remembered."""
        name = f"value:{name}"
        key, step = self._book.reach(name, StepKind.VALUE, "", None)
        if step is None:
            text = msgspec.json.encode(produce()).decode()
            blank = self._step(name, key, StepKind.VALUE, None)
            step = yield from self._record(self._write(blank, StepState.DONE, result=text))
        return msgspec.json.decode(step.result or "null", type=kind)

    def now(self) -> Talk[datetime]:
        """The store's time when the job first came here."""
        key, step = self._book.reach("value:now", StepKind.VALUE, "", None)
        if step is None:
            blank = self._step("value:now", key, StepKind.VALUE, None)
            step = yield from self._record(self._write(blank, StepState.DONE))
        assert step.at is not None
        return step.at

    def on_failure(self, draft: Draft) -> Talk[None]:
        """Remember a job that undoes something, should this one fail or be cancelled."""
        name = f"undo:{draft.task}"
        mark = fingerprint((draft.arguments,), {})
        key, step = self._book.reach(name, StepKind.UNDO, mark, None)
        if step is None:
            text = msgspec.json.encode(draft).decode()
            blank = self._step(name, key, StepKind.UNDO, mark)
            yield from self._record(
                self._write(blank, StepState.READY, result=text, child_id=draft.id)
            )

    def undo(self) -> Talk[list[str]]:
        """Run the compensations, the last first; answers which have failed."""
        failed = []
        for step in reversed(self._book.of_kind(StepKind.UNDO)):
            if step.state is StepState.READY:
                child = msgspec.structs.replace(
                    msgspec.json.decode(step.result or "", type=Draft), parent_id=self.job.id
                )
                write = self._write(step, StepState.WAITING)
                waiting = yield from self._record(msgspec.structs.replace(write, draft=child))
                yield from self._suspend(
                    Wait(write=StepWrite(token=self.job.token, step=waiting), child_id=child.id)
                )
            if step.state is StepState.WAITING:
                step = yield from self._end_of_child(step)
            if step.state is StepState.FAILED:
                failed.append(step.name.removeprefix("undo:"))
        return failed

    def report_passed_over(self) -> None:
        """Tell which recorded steps this run has not reached."""
        missed = self._book.passed_over()
        if missed:
            logger.warning(
                "recorded steps were not reached by this run: %s; they were removed from the code "
                "or renamed, or it took another way. What they did is not undone",
                ", ".join(step.name for step in missed),
            )

    def _reach(
        self, name: str, kind: StepKind, mark: str, key: str | None
    ) -> Talk[tuple[str, Step | None]]:
        """As StepBook.reach; refused when it is recorded with other arguments."""
        place, step = self._book.reach(name, kind, mark, key)
        if step is None and key is None and self._book.unlike(name):
            yield Turn()
            if self._book.unlike(name):
                raise StepChanged(
                    name,
                    "it is recorded with other arguments than it is called with now, and was not "
                    "run again. Where repeats come in another order, tell them apart: "
                    "ctx.using(key=...)",
                )
        if step is None and len(self._book) and not self._noted_new:
            yield Turn()
            missed = self._book.passed_over()
            if missed:
                self._noted_new = True
                logger.warning(
                    "step %s is new, and recorded ones were not reached before it: %s. That is "
                    "right if it was added before them; if one was renamed, it runs again",
                    name,
                    ", ".join(each.name for each in missed),
                )
        return place, step

    def _end_of_child(self, step: Step) -> Talk[Step]:
        """The step with its child's end recorded; suspends while the child goes on."""
        assert step.child_id is not None
        (child,) = yield LookAt(step.child_id)
        if child is not None and child.state not in FINAL:
            write = StepWrite(token=self.job.token, step=step)
            yield from self._suspend(Wait(write=write, child_id=step.child_id))
        return (yield from self._record(self._ended(step, child)))

    def _ended(self, step: Step, child: JobRecord | None) -> StepWrite:
        if child is None:
            return self._write(
                step, StepState.FAILED, error_type="UnknownJob", error_message="it was forgotten"
            )
        if child.state is State.SUCCEEDED:
            return self._write(step, StepState.DONE, result=child.result)
        if child.state is State.CANCELLED:
            return self._write(
                step, StepState.FAILED, error_type="JobCancelled", error_message=child.reason
            )
        error = child.error
        return self._write(
            step,
            StepState.FAILED,
            error_type=error.type if error else "JobFailed",
            error_message=error.message if error else child.reason,
        )

    def _suspend(self, wait: Wait) -> Talk[NoReturn]:
        self._waits[wait.write.step.name, wait.write.step.key] = wait
        yield Quiet()
        self.suspended = True
        raise Suspended

    def _record(self, write: StepWrite) -> Talk[Step]:
        (stored,) = yield Record([write])
        if stored is None:
            raise StepRefused(write.step.name)
        self._book.write(stored)
        result: Step = stored
        return result

    def _step(self, name: str, key: str, kind: StepKind, mark: str | None) -> Step:
        return Step(
            job_id=self.job.id,
            name=name,
            key=key,
            kind=kind,
            state=StepState.READY,
            number=len(self._book) + 1,
            attempt=self.job.attempt,
            fingerprint=mark,
        )

    def _write(
        self, step: Step, state: StepState, delay: timedelta | None = None, **fields: Any
    ) -> StepWrite:
        changed = msgspec.structs.replace(step, state=state, attempt=self.job.attempt, **fields)
        return StepWrite(token=self.job.token, step=changed, delay=delay)

    def _holds(self, step: Step) -> bool:
        """Whether a failure still counts: it is forgotten when the job itself is tried again."""
        return step.attempt >= self.job.attempt

    def _passed(self, until: datetime | None) -> bool:
        """Whether that is past, by the store's clock."""
        if until is None or self._loaded_at is None:
            return False
        now, read_at = self._loaded_at
        return until <= now + timedelta(seconds=clock.monotonic() - read_at)


def _raise_for_child(step: Step) -> NoReturn:
    child = step.child_id or UUID(int=0)
    if step.error_type == "JobCancelled":
        raise JobCancelled(child, step.error_message)
    raise JobFailed(child, "a job that this one started", step.error_type, step.error_message, None)


def _remembered(codec: ResultCodec, step: Step) -> Any:
    """What is recorded, in the type that the function declares now."""
    try:
        return codec.decode(step.result or "null")
    except InvalidPayload as error:
        raise StepChanged(
            step.name,
            f"what is recorded of it cannot be what its function returns now: {error}. Let it "
            "return what it did before, or give the new one another name",
        ) from error


def _codec(function: Callable[..., Any], name: str) -> ResultCodec:
    try:
        return _kept_codec(function, name)
    except TypeError:  # it cannot be hashed
        return _new_codec(function, name)


def _new_codec(function: Callable[..., Any], name: str) -> ResultCodec:
    definition = getattr(function, "definition", None)
    return ResultCodec(function if definition is None else definition.function, f"step {name}")


_kept_codec = lru_cache(maxsize=1024)(_new_codec)
