"""Letting a worker die at every point of a job, and comparing what happened with what should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly.app import App
from duly.client.job import Job
from duly.model.job import State
from duly.testing.simulation.crashing import Witness
from duly.testing.simulation.stage import Stage

Effects = list[Any] | Callable[[], Iterable[Any]]
"""A list that code under test adds to, or a function that answers with what it did."""

LONGEST_JOB = timedelta(days=366)
MOST_JOBS = 1_000


@dataclass(frozen=True, slots=True)
class CrashRun:
    """One run with a crash: where it was, how the job ended, and which effects were more or fewer
    than without it, each with how often it happened and how often it should have."""

    point: str
    state: State
    doubled: dict[str, tuple[int, int]]
    missing: dict[str, tuple[int, int]]

    def __str__(self) -> str:
        told = [
            f"{effect} {times} times instead of {due}"
            for effect, (times, due) in [*self.doubled.items(), *self.missing.items()]
        ]
        ends = "" if self.state is State.SUCCEEDED else f" [the job is {self.state.value}]"
        return f"{self.point}: {'; '.join(told) or 'every effect as without it'}{ends}"


class CrashReport:
    """What became of a job whose worker died, once at each point; printed, one a line."""

    def __init__(self, task: str, effects: Counter[str], runs: Sequence[CrashRun]) -> None:
        self.task = task
        self.effects = effects
        """The effects without a crash."""
        self.runs = tuple(runs)

    @property
    def doubled(self) -> dict[str, list[str]]:
        """Each effect that happened too often, with the points of the crashes that made it so."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            for effect in run.doubled:
                found.setdefault(effect, []).append(run.point)
        return found

    @property
    def missing(self) -> dict[str, list[str]]:
        """Each effect that happened too seldom, likewise."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            for effect in run.missing:
                found.setdefault(effect, []).append(run.point)
        return found

    def assert_effects_once(self, *, allowed: Iterable[str] = ()) -> None:
        """AssertionError with the whole report, when a crash changes how often an effect happens.

        Effects whose text contains one of `allowed` may happen more often.
        """
        __tracebackhide__ = True
        excused = tuple(allowed)
        doubled = [effect for effect in self.doubled if not any(each in effect for each in excused)]
        if doubled or self.missing:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        doubled, missing = len(self.doubled), len(self.missing)
        lines = [
            f"{self.task}: its worker died at {len(self.runs)} points; effects that doubled: "
            f"{doubled or 'none'}, that went missing: {missing or 'none'}"
        ]
        lines += [f"  {'x' if run.doubled or run.missing else ' '} {run}" for run in self.runs]
        if doubled:
            lines.append(
                "A repetition does no harm where the service that is called gets "
                "duly.current().idempotency_key, or where the step or the task is transactional."
            )
        return "\n".join(lines)

    __repr__ = __str__


def crash_everywhere(
    stage: Stage,
    submit: Callable[[], Job[Any]],
    effects: Effects | None,
    before_each: Callable[[], object] | None,
    script: Callable[[Job[Any]], object] | None,
) -> CrashReport:
    """See Simulation.crash_everywhere."""

    def play(crash_at: int | None) -> tuple[Witness, Job[Any], Counter[str]]:
        if before_each is not None:
            before_each()
        if isinstance(effects, list):
            effects.clear()
        witness = Witness(crash_at)
        with stage.scene(witness):
            job = submit()
            if script is not None:
                script(job)
            stage.play(stage.clock.now() + LONGEST_JOB, job)
            job.refresh()
            return witness, job, _counted(effects, witness, stage.app)

    clean, job, usual = play(None)
    runs = []
    for place, point in enumerate(clean.points):
        _, crashed, happened = play(place)
        runs.append(
            CrashRun(
                point,
                crashed.state,
                {each: (happened[each], usual[each]) for each in happened - usual},
                {each: (happened[each], usual[each]) for each in usual - happened},
            )
        )
    return CrashReport(job.task, usual, runs)


def _counted(effects: Effects | None, witness: Witness, app: App) -> Counter[str]:
    if effects is not None:
        return Counter(str(each) for each in (effects if isinstance(effects, list) else effects()))
    jobs = Counter(f"a job of {job.task} was submitted" for job in app.list(limit=MOST_JOBS))
    events = Counter(f"event {event.name} was emitted" for event in app.events(limit=MOST_JOBS))
    return witness.tally() + jobs + events
