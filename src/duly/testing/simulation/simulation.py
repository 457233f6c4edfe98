"""Simulations of a user's app: its real tasks in virtual time, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ParamSpec

from duly.app import App
from duly.client.job import Job
from duly.client.task import Task
from duly.errors import InvalidOption, JobFailed
from duly.policy import options
from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration
from duly.policy.states import FINAL
from duly.testing.simulation import enqueued
from duly.testing.simulation.clock import START
from duly.testing.simulation.crashes import CrashReport, Effects, crash_everywhere
from duly.testing.simulation.errors import SimulationError
from duly.testing.simulation.runs import Ran
from duly.testing.simulation.stage import Stage

P = ParamSpec("P")

AnyTask = Task[..., Any] | str


class Simulation:
    """An app in memory and in virtual time. Nothing runs but inside `run` and `advance`.

    While it lasts, what the app submits stays in the simulation; `close`, or the end of a `with`
    block, gives the app its own database back. `start` is when it begins, `workers` how many jobs
    run at a time, `seed` decides on the jitter of retries.
    """

    def __init__(
        self, app: App | None = None, *, start: datetime = START, workers: int = 10, seed: int = 0
    ) -> None:
        if not 1 <= workers <= 1000:
            raise InvalidOption("workers", f"must be from 1 to 1000; got {workers!r}")
        self._stage = Stage(options.instant(start, "start"), workers, seed)
        if app is not None:
            self.use(app)

    def use(self, app: App) -> App:
        """Simulate this app; one at a time."""
        if not isinstance(app, App):
            raise InvalidOption("app", f"expected a duly.App; got {type(app).__name__}")
        self._stage.enter(app)
        return app

    def close(self) -> None:
        """Forget the simulation, and give the app its own database back."""
        self._stage.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def app(self) -> App:
        """The app that is simulated."""
        return self._stage.app

    @property
    def now(self) -> datetime:
        """The simulation's time."""
        return self._stage.clock.now()

    @property
    def history(self) -> Ran:
        """Everything that ran so far."""
        return Ran(self._stage.runs)

    def run(self) -> Ran:
        """Run what is due, and what that makes due at once; answers what ran.

        Code that waits, as in asyncio.sleep, has its time at once, and the clock shows it after.
        """
        return self._stage.play(self.now)

    def advance(self, duration: Duration) -> Ran:
        """Let time pass: whatever is due meanwhile runs at its time; answers what ran."""
        return self._stage.play(self.now + parse_duration(duration, "duration"))

    def advance_to(self, moment: datetime) -> Ran:
        """Let time pass until that moment."""
        target = options.instant(moment, "moment")
        if target < self.now:
            raise InvalidOption("moment", f"{target} is past: in the simulation it is {self.now}")
        return self._stage.play(target)

    def finish(self, job: Job[Any], within: Duration = "366d") -> Ran:
        """Let time pass until the job has ended, however long it sleeps."""
        ran = self._stage.play(self.now + parse_duration(within, "within"), job)
        if job.refresh().state not in FINAL:
            told = job.explain().sentence
            raise SimulationError(f"job {job.id} of {job.task} has not ended: {told}")
        return ran

    @contextmanager
    def inline(self, *, raises: bool = True) -> Iterator[None]:
        """Within the block what is submitted runs at once, before the submission returns.

        An attempt that fails is raised there as JobFailed, unless `raises` is false.
        """
        before = self._stage.submitted
        self._stage.submitted = self._run_and_raise if raises else self._run_quietly
        try:
            yield
        finally:
            self._stage.submitted = before

    def enqueued(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> list[Job[Any]]:
        """Every job of the task in this simulation, also those that have ended, in the order of
        submission. With arguments, those that have them: only what is given counts."""
        return enqueued.find(self.app, task, args, kwargs)

    def assert_enqueued(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """The last job of the task with these arguments; AssertionError, which tells what was
        submitted, when there is none."""
        __tracebackhide__ = True
        return enqueued.require(self.app, task, args, kwargs)

    def assert_not_enqueued(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> None:
        """The opposite of assert_enqueued."""
        __tracebackhide__ = True
        enqueued.forbid(self.app, task, args, kwargs)

    def crash_everywhere(
        self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> CrashReport:
        """Run a job of the task once for each point at which its worker may die, let the worker
        die there and another take over; answers which effects happened more often than without
        a crash.

        Each run has an empty database of its own. Calls of steps, of tasks without steps, jobs
        and events count as effects; see `observe` for those of your own.
        """
        return self.observe().crash_everywhere(task, *args, **kwargs)

    def observe(
        self,
        effects: Effects | None = None,
        *,
        before_each: Callable[[], object] | None = None,
        script: Callable[[Job[Any]], object] | None = None,
    ) -> Observed:
        """As in `sim.observe(outbox).crash_everywhere(...)`.

        effects: the effects to count instead: a list, which is emptied before each run, or a
            function that answers with them.
        before_each: called before each run, to put things back to their beginning.
        script: called with the job after its submission, for what it needs from outside; then time
            passes until it has ended.
        """
        return Observed(self._stage, effects, before_each, script)

    def _run_quietly(self) -> None:
        self.run()

    def _run_and_raise(self) -> None:
        failed = self.run().failed
        if failed:
            error = self.app.get(failed[0].job_id).record.error
            raise JobFailed(
                failed[0].job_id,
                "its attempt failed",
                error.type if error else None,
                error.message if error else failed[0].error,
                error.traceback if error else None,
            )


class Observed:
    """A simulation and the effects to look at; what `sim.observe(...)` gives."""

    def __init__(
        self,
        stage: Stage,
        effects: Effects | None,
        before_each: Callable[[], object] | None,
        script: Callable[[Job[Any]], object] | None,
    ) -> None:
        self._stage = stage
        self._effects = effects
        self._before_each = before_each
        self._script = script

    def crash_everywhere(
        self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> CrashReport:
        """See Simulation.crash_everywhere."""
        return crash_everywhere(
            self._stage,
            lambda: task.enqueue(*args, **kwargs),
            self._effects,
            self._before_each,
            self._script,
        )
