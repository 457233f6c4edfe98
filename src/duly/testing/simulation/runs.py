"""What ran in a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload
from uuid import UUID

import msgspec

from duly.model.attempt import Outcome
from duly.model.job import JobRecord
from duly.policy.verdict import Verdict

LONGEST_TEXT = 60


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a task's code: when, in virtual time, and how it ended.

    A job that sleeps or waits is taken up again, and has a run for each time.
    """

    at: datetime
    task: str
    job_id: UUID
    attempt: int
    outcome: Outcome
    arguments: dict[str, Any]
    error: str | None = None
    scheduled_for: datetime | None = None

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        text = f"{self.task}({given})"
        shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}...)"
        error = f": {self.error}" if self.error else ""
        again = f" attempt {self.attempt}" if self.attempt > 1 else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S}  {shown}{again}  {self.outcome.value}{error}"


class Ran(Sequence[Run]):
    """Runs in the order they ended; printed, one a line."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Run]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._runs[place]

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, task: Any) -> Ran:
        """Those of one task, given itself or by name."""
        name = task if isinstance(task, str) else task.name
        return Ran(run for run in self._runs if run.task == name)

    @property
    def failed(self) -> Ran:
        """Those that ended badly."""
        bad = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED, Outcome.LOST)
        return Ran(run for run in self._runs if run.outcome in bad)

    def __repr__(self) -> str:
        if not self._runs:
            return "nothing ran"
        count = f"{len(self._runs)} run{'s' if len(self._runs) > 1 else ''}"
        return "\n".join([f"{count}:", *(f"  {run}" for run in self._runs)])


def run_of(job: JobRecord, verdict: Verdict | None, at: datetime) -> Run:
    """What an attempt came to; one without a verdict has committed its own success."""
    error = None if verdict is None else verdict.error
    return Run(
        at=at,
        task=job.task,
        job_id=job.id,
        attempt=job.attempt,
        outcome=Outcome.SUCCEEDED if verdict is None else verdict.outcome,
        arguments=msgspec.json.decode(job.arguments),
        error=None if error is None else f"{error.type}: {error.message}",
        scheduled_for=job.scheduled_for,
    )
