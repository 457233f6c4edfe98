"""Where a simulation takes place: a clock, an event loop, a store, and one node at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from duly import config as configuration
from duly.app import App
from duly.client.job import Job
from duly.clock import runtime_clock
from duly.model.job import JobRecord
from duly.policy.states import FINAL
from duly.policy.verdict import Verdict
from duly.runtime.chance import chance
from duly.store.operation import Wake
from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.crashing import SimulatedCrash, Witness
from duly.testing.simulation.errors import SimulationError
from duly.testing.simulation.loop import VirtualLoop
from duly.testing.simulation.node import Node
from duly.testing.simulation.runs import Ran, Run, run_of
from duly.testing.simulation.store import SimulatedStore
from duly.testing.simulation.surroundings import SimulatedSurroundings
from duly.testing.simulation.waiting import NoWaiting

if TYPE_CHECKING:
    from duly.store.protocol import Store

LONGEST_RUN = 3_600.0
MOST_RUNS_AT_ONCE = 100_000


class Stage:
    """One app, in memory and in virtual time. Nothing runs but inside `play`."""

    def __init__(self, start: datetime, workers: int, seed: int) -> None:
        self.clock = VirtualClock(start)
        self.runs: list[Run] = []
        self.playing = False
        self.submitted: Callable[[], None] = lambda: None
        """Called after a commit, while nothing plays, that workers may want to know of."""
        self._workers = workers
        self._loop = VirtualLoop(self.clock)
        self._chance = chance.getstate()
        chance.seed(seed)
        self._app: App | None = None
        self._give_back: Callable[[], None] = lambda: None
        self._store = SimulatedStore(self.clock)
        self._witness: Witness | None = None
        self._schedules = True

    @property
    def app(self) -> App:
        """The app on the stage."""
        if self._app is None:
            raise SimulationError(
                "the simulation has no app yet: call sim.use(app), or let a fixture `duly_app` of "
                "your own return it"
            )
        return self._app

    def enter(self, app: App) -> None:
        """Put the app on the stage, instead of the one that is there."""
        self.leave()
        store, config, clock = app.store, app.config, app.client.clock
        self._give_back = lambda: app.attach(store, config, clock)
        self._app = app
        self._attach(self._store, None)

    def leave(self) -> None:
        """Give the app its own database back."""
        give_back, self._give_back = self._give_back, lambda: None
        self._app = None
        give_back()

    def close(self) -> None:
        """Take everything down."""
        self.leave()
        self._store.inline.close()
        self._loop.close()
        chance.setstate(self._chance)

    def play(self, until: datetime, job: Job[Any] | None = None) -> Ran:
        """Work until that time, or until the job has ended; answers what ran."""
        if self.playing:
            raise SimulationError(
                "the simulation is running: this was called by one of its own tasks"
            )
        first = len(self.runs)
        self.playing = True
        try:
            with runtime_clock.replaced(self.clock):
                self._loop.run(self._play(until, job))
        finally:
            self.playing = False
        return Ran(self.runs[first:])

    @contextmanager
    def scene(self, witness: Witness) -> Iterator[None]:
        """Within the block the app has an empty database and no schedules, and is watched."""
        before = (self._store, self._witness, self._schedules)
        store = SimulatedStore(self.clock, witness)
        witness.died = store.die
        self._schedules = False
        self._attach(store, witness)
        try:
            yield
        finally:
            self._schedules = before[2]
            self._attach(before[0], before[1])
            store.inline.close()

    def _attach(self, store: SimulatedStore, witness: Witness | None) -> None:
        config = configuration.redirected(self.app.config, "sqlite://")
        self.app.attach(cast("Store", store), config, self.clock)
        self.app.client.waiting = NoWaiting(self.app, self._serve_waiting)
        self._store, self._witness = store, witness
        if self._hear not in store.inline.listeners:
            store.inline.listeners.append(self._hear)

    async def _play(self, until: datetime, job: Job[Any] | None) -> None:
        node = await self._started()
        runs_before = len(self.runs)
        while True:
            try:
                await node.rest(LONGEST_RUN)
            except SimulatedCrash:
                await node.bury()
                node = await self._started()
                continue
            except TimeoutError:
                tasks = ", ".join(sorted(set(node.tasks_under_way)))
                await node.bury()
                raise SimulationError(
                    f"still running after an hour of virtual time: {tasks}. Does the code wait for "
                    "something that never comes? Long waits are for ctx.sleep and ctx.wait_for"
                ) from None
            if job is not None and (await job.arefresh()).state in FINAL:
                break
            due = await node.next_due()
            now = self.clock.now()
            target = until if due is None else min(until, now + timedelta(seconds=due))
            if target > now:
                self.clock.jump(target)
                runs_before = len(self.runs)
            elif due is None or due > 0:
                break
            elif len(self.runs) - runs_before > MOST_RUNS_AT_ONCE:
                await node.bury()
                raise SimulationError(
                    f"{MOST_RUNS_AT_ONCE:,} runs at {now} and no end: a task seems to submit "
                    "itself again and again without a delay"
                )
        await node.stop()

    async def _started(self) -> Node:
        store = self._store
        surroundings = SimulatedSurroundings(self._loop, store.inline, self._ended, self._witness)
        node = Node(self.app, store, self._loop, surroundings, self._workers, self._schedules)
        await node.start()
        return node

    def _ended(self, job: JobRecord, verdict: Verdict | None) -> None:
        self.runs.append(run_of(job, verdict, self.clock.now()))
        error = None if verdict is None else verdict.error
        if error is not None and error.type == "KeyboardInterrupt":
            raise KeyboardInterrupt

    def _hear(self, wakes: frozenset[Wake]) -> None:
        if not self.playing and Wake.WORKERS in wakes:
            self.submitted()

    def _serve_waiting(self, job: Job[Any]) -> None:
        """Somebody waits for a job: run what is due, and refuse to wait for more."""
        if not self.playing:
            self.play(self.clock.now())
        if job.refresh().state in FINAL:
            return
        why = (
            "a task cannot wait for another job in a simulation, use ctx.spawn"
            if self.playing
            else f"{job.explain().sentence} Let time pass with sim.advance()"
        )
        raise SimulationError(f"job {job.id} of {job.task} has not ended: {why}")
