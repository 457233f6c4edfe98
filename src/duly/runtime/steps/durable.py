"""What one attempt knows of its job's steps: those that are recorded, and what it waits for."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec

from duly.clock import runtime_clock as clock
from duly.errors import StepChanged, StepRefused
from duly.model.job import JobRecord
from duly.model.step import Recorded, Step, StepKind, StepState, StepWrite, Wait
from duly.policy.stepping import StepBook
from duly.runtime.steps.commands import Quiet, Suspended, Talk, Turn
from duly.runtime.steps.port import Load, Record

logger = logging.getLogger("duly.steps")


class Durable:
    """The ground that all kinds of steps stand on: find a step, record it, suspend the attempt."""

    def __init__(
        self, job: JobRecord, payload_limit: int, recorded: Recorded | None = None
    ) -> None:
        self.job = job
        self.payload_limit = payload_limit
        self.book = StepBook()
        """The recorded steps, and which of them this run has reached."""
        self.suspended = False
        """Whether the attempt is to end because it waits."""
        self._given = recorded
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
        # What was read with a claim ahead is older; but no code starts before its time.
        now = max(recorded.now, self.job.started_at or recorded.now)
        self._loaded_at = (now, clock.monotonic())
        self.book = StepBook(recorded.steps)

    def find(
        self, name: str, kind: StepKind, mark: str, key: str | None
    ) -> Talk[tuple[str, Step | None]]:
        """As StepBook.reach; refused when it is recorded with other arguments."""
        place, step = self.book.reach(name, kind, mark, key)
        if step is None and key is None and self.book.unlike(name):
            yield Turn()
            if self.book.unlike(name):
                raise StepChanged(
                    name,
                    "it is recorded with other arguments than it is called with now, and was not "
                    "run again. Where repeats come in another order, tell them apart: "
                    "ctx.using(key=...)",
                )
        if step is None and len(self.book) and not self._noted_new:
            yield Turn()
            missed = self.book.passed_over()
            if missed:
                self._noted_new = True
                logger.warning(
                    "step %s is new, and recorded ones were not reached before it: %s. That is "
                    "right if it was added before them; if one was renamed, it runs again",
                    name,
                    ", ".join(each.name for each in missed),
                )
        return place, step

    def suspend(self, wait: Wait) -> Talk[NoReturn]:
        """End the attempt until that has come, when nothing else of it is under way."""
        self._waits[wait.write.step.name, wait.write.step.key] = wait
        yield Quiet()
        self.suspended = True
        raise Suspended

    def record(self, write: StepWrite) -> Talk[Step]:
        """Record it now; answers it as it is recorded. StepRefused when the token is stale."""
        (stored,) = yield Record([write])
        if stored is None:
            raise StepRefused(write.step.name)
        self.book.write(stored)
        result: Step = stored
        return result

    def blank(self, name: str, key: str, kind: StepKind, mark: str | None) -> Step:
        """A step that is not recorded yet."""
        return Step(
            job_id=self.job.id,
            name=name,
            key=key,
            kind=kind,
            state=StepState.READY,
            number=len(self.book) + 1,
            attempt=self.job.attempt,
            fingerprint=mark,
        )

    def changed(
        self, step: Step, state: StepState, delay: timedelta | None = None, **fields: Any
    ) -> StepWrite:
        """The step as this attempt has changed it, to be recorded."""
        step = msgspec.structs.replace(step, state=state, attempt=self.job.attempt, **fields)
        return self.unchanged(step, delay)

    def unchanged(self, step: Step, delay: timedelta | None = None) -> StepWrite:
        """The step as it is, to be recorded; `delay` counts from then."""
        return StepWrite(token=self.job.token, step=step, delay=delay)

    def holds(self, step: Step) -> bool:
        """Whether a failure still counts: it is forgotten when the job itself is tried again."""
        return step.attempt >= self.job.attempt

    def passed(self, until: datetime | None) -> bool:
        """Whether that is past, by the store's clock."""
        if until is None or self._loaded_at is None:
            return False
        now, read_at = self._loaded_at
        return until <= now + timedelta(seconds=clock.monotonic() - read_at)

    def report_passed_over(self) -> None:
        """Tell which recorded steps this run has not reached."""
        missed = self.book.passed_over()
        if missed:
            logger.warning(
                "recorded steps were not reached by this run: %s; they were removed from the code "
                "or renamed, or it took another way. What they did is not undone",
                ", ".join(step.name for step in missed),
            )
