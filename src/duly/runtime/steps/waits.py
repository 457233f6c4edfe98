"""Steps that wait: for a time, or for an event."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.errors import StepChanged, StepRefused, WaitTimeout
from duly.model.event import Event
from duly.model.step import EventWait, StepKind, StepState, Wait
from duly.policy.stepping import fingerprint
from duly.runtime.steps.commands import Talk, Turn
from duly.runtime.steps.durable import Durable
from duly.runtime.steps.port import TakeEvent


def sleep(
    durable: Durable, delay: timedelta | None, until: datetime | None, key: str | None
) -> Talk[None]:
    """Wait for a time, as a row."""
    mark = fingerprint((str(delay or until),), {})
    key, step = durable.book.reach("sleep", StepKind.SLEEP, mark, key)
    if step is not None and durable.passed(step.until):
        return
    if step is None and durable.book.sleeps_for_ever():
        yield Turn()
        if durable.book.sleeps_for_ever():
            raise StepChanged(
                "sleep",
                "the job has slept here twice, each time until another moment, and would sleep "
                "for ever. Where the moment is computed, take ctx.now() and ctx.random(), "
                "which are recorded, or give the sleep a key=",
            )
    if step is None:
        blank = durable.blank("sleep", key, StepKind.SLEEP, mark)
        step = msgspec.structs.replace(blank, state=StepState.WAITING, until=until)
        write = durable.unchanged(step, delay)
    else:
        write = durable.unchanged(step)
    yield from durable.suspend(Wait(write=write))


def wait_for(
    durable: Durable, event: str, key: str | None, timeout: timedelta | None, since: datetime | None
) -> Talk[Event]:
    """The first event that fits, when it has come; WaitTimeout when it has not in time."""
    name = f"event:{event}"
    mark = fingerprint((key,), {})
    place, step = durable.book.reach(name, StepKind.EVENT, mark, None)
    if step is None or step.state is not StepState.DONE:
        blank = durable.blank(name, place, StepKind.EVENT, mark)
        wait = EventWait(name=event, key=key, since=since)
        holds, found = yield TakeEvent(durable.job.token, step or blank, wait)
        if not holds:
            raise StepRefused(name)
        if found is None and step is not None and durable.passed(step.until):
            found = yield from durable.record(durable.changed(step, StepState.DONE))
        if found is None:
            waiting = msgspec.structs.replace(step or blank, state=StepState.WAITING)
            delay = timeout if step is None else None
            write = durable.unchanged(waiting, delay)
            yield from durable.suspend(Wait(write=write, event=wait))
        step = found
        durable.book.write(step)
    if step.event_id is None or step.result is None:
        raise WaitTimeout(event, key)
    return msgspec.json.decode(step.result, type=Event)
