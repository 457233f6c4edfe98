"""Steps that call a function, and try it again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from duly.control import Cancel, Retry, Snooze, TimeLimitExceeded
from duly.errors import DulyError, InvalidPayload, StepChanged, StepFailed, StepRefused
from duly.model.step import Step, StepKind, StepState, StepWrite, Wait
from duly.policy.retry import RetryPolicy
from duly.policy.stepping import GIVEN, fingerprint, step_name
from duly.registry import strict_json
from duly.registry.arguments import ResultCodec
from duly.runtime.chance import chance
from duly.runtime.failure import failure_of
from duly.runtime.steps.commands import Call, Pause, StepTimeLimit, Talk, Unstorable
from duly.runtime.steps.durable import Durable

SHORT_PAUSE = timedelta(seconds=5)
"""A step that is to be tried again within this time is waited for; else the job is suspended."""

logger = logging.getLogger("duly.steps")
_DEFAULT_RETRIES = RetryPolicy()


class StepOptions(msgspec.Struct, frozen=True):
    """How one step is run."""

    key: str | None = None
    retries: int = 0
    policy: RetryPolicy = _DEFAULT_RETRIES
    timeout: float | None = None
    transactional: bool = False


def call(
    durable: Durable,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: StepOptions,
) -> Talk[Any]:
    """Run the function, or remember what it gave."""
    codec = _codec(function, step_name(name))
    mark = fingerprint(args, kwargs)
    key, step = yield from durable.find(name, StepKind.CALL, mark, options.key)
    if step is not None and step.state is StepState.DONE:
        return _remembered(codec, step)
    if step is not None and step.state is StepState.FAILED and durable.holds(step):
        raise StepFailed(name, step.error_type or "", step.error_message or "")
    tries = step.tries if step is not None and step.state is StepState.RETRYING else 0
    if step is not None and tries and not durable.passed(step.until):
        yield from durable.suspend(Wait(write=durable.unchanged(step)))
    blank = durable.blank(name, key, StepKind.CALL, mark)

    def done(value: Any, tries: int) -> StepWrite:
        try:
            data = codec.encode(value)
            strict_json.check_size(data, f"the result of step {name!r}", durable.payload_limit)
        except DulyError as error:
            raise Unstorable from error
        return durable.changed(blank, StepState.DONE, tries=tries, result=data.decode())

    def commit_of(tries: int) -> Callable[[Any], StepWrite] | None:
        return (lambda value: done(value, tries)) if options.transactional else None

    identity = f"{durable.job.id}:{name}" + (f":{key.removeprefix(GIVEN)}" if key else "")
    while True:
        tries += 1
        try:
            answer = yield Call(function, args, kwargs, identity, options.timeout, commit_of(tries))
            stored = yield from _kept(durable, name, answer, options, done, tries)
        except (Retry, Snooze, Cancel, StepRefused):
            raise
        except Exception as error:
            if isinstance(error, TimeLimitExceeded) and not isinstance(error, StepTimeLimit):
                raise
            known = yield from _failed(durable, name, blank, error, options, tries)
            if known is None:
                continue
            stored = known
        return codec.decode(stored.result or "null")


def _kept(
    durable: Durable,
    name: str,
    answer: Any,
    options: StepOptions,
    done: Callable[[Any, int], StepWrite],
    tries: int,
) -> Talk[Step]:
    """The step as it is recorded: by its own transaction, or now."""
    if not options.transactional:
        return (yield from durable.record(done(answer, tries)))
    if answer is None:
        raise StepRefused(name)
    durable.book.write(answer)
    stored: Step = answer
    return stored


def _failed(
    durable: Durable, name: str, blank: Step, error: Exception, options: StepOptions, tries: int
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
        write = durable.changed(blank, StepState.RETRYING, delay=delay, **told)
        if delay > SHORT_PAUSE:
            yield from durable.suspend(Wait(write=write))
        stored = yield from durable.record(write)
        if stored.state is StepState.DONE:
            return stored
        yield Pause(delay.total_seconds())
        return None
    stored = yield from durable.record(durable.changed(blank, StepState.FAILED, **told))
    if stored.state is StepState.DONE:
        return stored
    raise StepFailed(name, failure.type, failure.message) from error


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
