"""Steps that start jobs: those whose result is needed, and those that undo what was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from duly.errors import JobCancelled, JobFailed
from duly.model.job import Draft, JobRecord, State
from duly.model.step import Step, StepKind, StepState, StepWrite, Wait
from duly.policy.states import FINAL
from duly.policy.stepping import fingerprint
from duly.runtime.steps.commands import Talk
from duly.runtime.steps.durable import Durable
from duly.runtime.steps.port import LookAt


def spawn(
    durable: Durable, draft: Draft, decode: Callable[[str], Any], key: str | None
) -> Talk[Any]:
    """Start a job, and its result when it has ended."""
    name = f"job:{draft.task}"
    mark = fingerprint((draft.arguments,), {})
    place, step = yield from durable.find(name, StepKind.JOB, mark, key)
    if step is None or (step.state is StepState.FAILED and not durable.holds(step)):
        child = msgspec.structs.replace(draft, parent_id=durable.job.id)
        blank = durable.blank(name, place, StepKind.JOB, mark)
        write = durable.changed(blank, StepState.WAITING, child_id=child.id)
        step = yield from durable.record(msgspec.structs.replace(write, draft=child))
        yield from durable.suspend(Wait(write=durable.unchanged(step), child_id=child.id))
    if step.state is StepState.WAITING:
        step = yield from _end_of_child(durable, step)
    if step.state is StepState.DONE:
        return decode(step.result or "null")
    _raise_for_child(step)


def on_failure(durable: Durable, draft: Draft) -> Talk[None]:
    """Remember a job that undoes something, should this one fail or be cancelled."""
    name = f"undo:{draft.task}"
    mark = fingerprint((draft.arguments,), {})
    key, step = durable.book.reach(name, StepKind.UNDO, mark, None)
    if step is None:
        text = msgspec.json.encode(draft).decode()
        blank = durable.blank(name, key, StepKind.UNDO, mark)
        yield from durable.record(
            durable.changed(blank, StepState.READY, result=text, child_id=draft.id)
        )


def undo(durable: Durable) -> Talk[list[str]]:
    """Run the compensations, the last first; answers which have failed."""
    failed = []
    for step in reversed(durable.book.of_kind(StepKind.UNDO)):
        if step.state is StepState.READY:
            child = msgspec.structs.replace(
                msgspec.json.decode(step.result or "", type=Draft), parent_id=durable.job.id
            )
            write = durable.changed(step, StepState.WAITING)
            waiting = yield from durable.record(msgspec.structs.replace(write, draft=child))
            yield from durable.suspend(Wait(write=durable.unchanged(waiting), child_id=child.id))
        if step.state is StepState.WAITING:
            step = yield from _end_of_child(durable, step)
        if step.state is StepState.FAILED:
            failed.append(step.name.removeprefix("undo:"))
    return failed


def _end_of_child(durable: Durable, step: Step) -> Talk[Step]:
    """The step with its child's end recorded; suspends while the child goes on."""
    assert step.child_id is not None
    (child,) = yield LookAt(step.child_id)
    if child is not None and child.state not in FINAL:
        write = durable.unchanged(step)
        yield from durable.suspend(Wait(write=write, child_id=step.child_id))
    return (yield from durable.record(_ended(durable, step, child)))


def _ended(durable: Durable, step: Step, child: JobRecord | None) -> StepWrite:
    if child is None:
        return durable.changed(
            step, StepState.FAILED, error_type="UnknownJob", error_message="it was forgotten"
        )
    if child.state is State.SUCCEEDED:
        return durable.changed(step, StepState.DONE, result=child.result)
    if child.state is State.CANCELLED:
        return durable.changed(
            step, StepState.FAILED, error_type="JobCancelled", error_message=child.reason
        )
    error = child.error
    return durable.changed(
        step,
        StepState.FAILED,
        error_type=error.type if error else "JobFailed",
        error_message=error.message if error else child.reason,
    )


def _raise_for_child(step: Step) -> NoReturn:
    child = step.child_id or UUID(int=0)
    if step.error_type == "JobCancelled":
        raise JobCancelled(child, step.error_message)
    raise JobFailed(child, "a job that this one started", step.error_type, step.error_message, None)
