"""The points at which a simulated worker can die, and what its code did before."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from duly.model.job import Delivery, JobRecord
from duly.model.settlement import Settlement
from duly.model.step import Step, StepKind
from duly.runtime.steps.commands import Call, Talk
from duly.runtime.steps.port import Record

T = TypeVar("T")

LONGEST_TEXT = 40


class SimulatedCrash(BaseException):
    """Raised in the code of a worker that dies in a simulation. Not for user code to catch."""


class Witness:
    """Sees the points that a run comes by, lets the worker die at one of them, and counts the
    calls of steps, and of tasks that have none.

    A point is before or after something becomes durable. It is known by its number, since runs of
    the same tasks come by the same points.
    """

    def __init__(self, crash_at: int | None = None) -> None:
        self.points: list[str] = []
        self.died: Callable[[], None] = lambda: None
        """Called before a crash is raised."""
        self._crash_at = crash_at
        self._steps: Counter[str] = Counter()
        self._jobs: dict[UUID, JobRecord] = {}
        self._stepped: set[UUID] = set()
        self._whole: Counter[UUID] = Counter()

    def point(self, what: str) -> None:
        """The run comes by here; it may be its end."""
        self.points.append(what)
        if len(self.points) - 1 == self._crash_at:
            self.died()
            raise SimulatedCrash(what)

    def begins(self, job: JobRecord) -> None:
        """A job was claimed, and its code is about to run."""
        self._jobs[job.id] = job
        self.point(f"before the code of {job.task} ran")

    def settles(self, settlements: Sequence[Settlement]) -> str:
        """Outcomes are about to be stored; answers which, in words."""
        known = [(each, self._jobs[each.job_id]) for each in settlements]
        for each, job in known:
            if not each.waits and job.delivery is not Delivery.TRANSACTIONAL:
                self._whole[job.id] += 1
        told = ", ".join(f"{job.task} ({each.outcome.value})" for each, job in known)
        self.point(f"before the outcome of {told} was stored")
        return told

    def committed(self, job: JobRecord) -> None:
        """A transactional task has committed its own outcome."""
        self._whole[job.id] += 1
        self.point(f"after {job.task} was committed")

    def tally(self) -> Counter[str]:
        """How often each step ran, and each job's code that has no steps."""
        whole = Counter(
            {
                f"the code of {self._jobs[job_id].task} ran": times
                for job_id, times in self._whole.items()
                if job_id not in self._stepped
            }
        )
        return self._steps + whole

    def watch(self, job: JobRecord, talk: Talk[T]) -> Talk[T]:
        """The conversation of a step, with an eye on it."""
        answer: Any = None
        error: Exception | None = None
        told: str | None = None
        while True:
            try:
                command = talk.send(answer) if error is None else talk.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if isinstance(command, Call):
                self._stepped.add(job.id)
                told = f"step {_label(job, command)}"
                self.point(f"before {told} ran")
                command = replace(command, function=self._counted(command, told))
            elif isinstance(command, Record):
                told = told or _recorded(job, command.writes[0].step)
                self.point(f"before {told} was recorded")
            answer, error = None, None
            try:
                answer = yield command
            except Exception as problem:
                error = problem
            if isinstance(command, Call) and command.commit is not None and error is None:
                if answer is not None:
                    self._steps[f"{told} ran"] += 1
                self.point(f"after {told} was committed")
            elif isinstance(command, Record):
                self.point(f"after {told} was recorded")

    def _counted(self, call: Call, told: str) -> Callable[..., Any]:
        """The function, its calls counted; those of a transactional step when it commits."""
        function = call.function
        if call.commit is not None:

            @wraps(function)
            def inside(*args: Any, **kwargs: Any) -> Any:
                value = function(*args, **kwargs)
                self.point(f"after {told} ran, before it was committed")
                return value

            return inside

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                self._steps[f"{told} ran"] += 1
                return await function(*args, **kwargs)

            return awaited

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            self._steps[f"{told} ran"] += 1
            return function(*args, **kwargs)

        return called


def _label(job: JobRecord, call: Call) -> str:
    """A step as its code calls it."""
    name = call.idempotency_key.removeprefix(f"{job.id}:").rpartition(":")[0]
    given = [repr(value) for value in call.args]
    given += [f"{key}={value!r}" for key, value in call.kwargs.items()]
    text = ", ".join(given)
    return f"{name}({text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + '...'})"


def _recorded(job: JobRecord, step: Step) -> str:
    """What is about to be recorded, in words."""
    name = step.name.partition(":")[2] or step.name
    match step.kind:
        case StepKind.JOB:
            return f"the start of {name} by {job.task}"
        case StepKind.UNDO:
            return f"the compensation {name} of {job.task}"
        case _:
            return f"the {step.kind.value} {name!r} of {job.task}"
