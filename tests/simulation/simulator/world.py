"""One run: a seed makes a world, its faults and its end."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import msgspec

from duly.model.job import Delivery, JobRecord
from duly.model.settlement import Settlement, release
from duly.model.step import StepState
from duly.policy.reaping import after_crash
from duly.store.clocked import ClockedStore
from duly.store.protocol import Store
from duly.testing import Effect, History, check_history, read_history
from duly.testing.simulation.clock import START, VirtualClock
from tests.simulation.simulator import load
from tests.simulation.simulator.clients import Clients
from tests.simulation.simulator.loop import WorldLoop
from tests.simulation.simulator.node import LEASE, Node
from tests.simulation.simulator.process import in_charge, owned
from tests.simulation.simulator.store import WorldStore
from tests.simulation.simulator.wire import Gone, Weather

STRIKES = (
    ("crash",),
    ("mistake", "mistake", "pause"),
    ("crash", "pause", "drain", "mistake"),
    ("drain", "crash", "mistake"),
)

PATIENCE = 40.0
"""How long all work may take when the faults have ended, in virtual seconds."""

GLANCE = 0.1


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its digest is that of everything that happened in it."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    jobs: Counter[str]
    faults: Counter[str]


class World:
    """Nodes, clients, a store and bad weather, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = VirtualClock(START)
        self.loop = WorldLoop(self.clock)
        self.loop.set_task_factory(owned)
        self.loop.set_exception_handler(self._unexpected)
        self.store = WorldStore(self.clock)
        self.app = load.app
        sleepy = self.chance.random() < 0.4
        """Whether nodes only stand still, for as long as it takes to be given up for dead."""
        self.faults: Counter[str] = Counter()
        self.weather = Weather(
            self.chance,
            self.faults,
            loss=0.0 if sleepy else self.chance.choice((0.0, 0.05, 0.15)),
            crash=0.0 if sleepy else self.chance.choice((0.0, 0.02, 0.06)),
            slow=0.0 if sleepy else self.chance.choice((0.0, 0.02, 0.1)),
        )
        self.deafness = 0.0 if sleepy else self.chance.choice((0.0, 0.5, 1.0))
        self._strikes = ("pause",) if sleepy else self.chance.choice(STRIKES)
        self.with_janitor = self.chance.random() < 0.2
        self.notes: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self._storm = self.chance.uniform(0.6, 2.0)
        self._schedule = "beat" if self.chance.random() < 0.6 else None
        self._nodes = [Node(self, number) for number in range(self.chance.choice((2, 2, 2, 3)))]
        self._calm = cast(Store, ClockedStore(cast(Store, self.store), self.clock))
        self._clients = Clients(self)

    def run(self) -> Outcome:
        """Let it happen, and judge."""
        try:
            with in_charge(self):
                self.loop.run(self._happen())
                history = self._history()
            violations = [
                *(str(each) for each in check_history(history)),
                *_charges(history, self.store.charged()),
                *self.problems,
                *(each for node in self._nodes for each in node.wire.complaints),
            ]
        finally:
            self.store.close()
            self.loop.close()
        jobs = Counter(job.task for job in history.jobs)
        return Outcome(self.seed, _digest(history), tuple(violations), jobs, self.faults)

    def start_again(self, node: Node) -> None:
        """A node has crashed or has left; another is there before long."""
        self.loop.call_later(self.chance.uniform(0.1, 2 * LEASE), node.boot)

    def look(self, job_id: UUID) -> JobRecord | None:
        """At a job, without a wire."""
        return self._calm.run(self._calm.get([job_id]))[0]

    async def _happen(self) -> None:
        self._set_up()
        for node in self._nodes:
            node.boot()
        self.weather.rages = True
        acts = [
            asyncio.create_task(self._clients.act(number, self._storm * 1.5))
            for number in range(self.chance.randint(3, 7))
        ]
        await asyncio.gather(self._strike(), asyncio.sleep(self._storm))
        self.weather.rages = False
        self.deafness = 0.0
        await asyncio.gather(*acts)
        if self._schedule is not None:
            self.app.schedules.pause(self._schedule)
        for _ in range(int(PATIENCE / GLANCE)):
            await asyncio.sleep(GLANCE)
            if self.store.is_done():
                break
        await self._end()

    def _set_up(self) -> None:
        if self._schedule is not None:
            self.app.schedules.add(
                self._schedule,
                load.beat,
                timedelta(seconds=1),
                overlap=self.chance.choice(("allow", "skip", "buffer_one", "cancel_other")),
                catch_up=self.chance.choice(("latest", "all")),
            )

    async def _end(self) -> None:
        """Nothing goes on."""
        for node in self._nodes:
            node.dead = True
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _strike(self) -> None:
        """Something befalls a node, now and then."""
        rate = self.chance.choice((1.0, 2.0, 4.0))
        end = self.clock.monotonic() + self._storm
        while (pause := self.chance.expovariate(rate)) + self.clock.monotonic() < end:
            await asyncio.sleep(pause)
            node = self.chance.choice(self._nodes)
            if node.dead:
                continue
            kind = self.chance.choice(self._strikes)
            self.faults[kind] += 1
            if kind == "crash":
                node.crash()
            elif kind == "drain":
                node.drain(self.chance.choice((0.0, 1.0)))
            elif kind == "mistake":
                self._take_from_the_living()
            else:
                node.pause()
                leases = self.chance.choice((self.chance.uniform(0.2, 1.0), 1.5, 2.5))
                self.loop.call_later(leases * LEASE, node.resume)

    def _take_from_the_living(self) -> None:
        """Somebody gives all jobs back, as if their workers had. They do not know, and go on: only
        their stale tokens keep them from finishing what others have by then."""
        store = self._calm
        for worker in store.run(store.workers()):
            held = [job_id for job_id, _ in store.run(store.held(worker.id))]
            jobs = [job for job in store.run(store.get(held)) if job is not None]
            store.run(store.settle([_given_back(job) for job in jobs]))

    def _history(self) -> History:
        paid = [
            Effect(job_id=job, token=token, result=None, ended=self.clock.now())
            for job, token in self.store.paid()
        ]
        history = read_history(
            self._calm,
            submissions=self._clients.submissions,
            emissions=self._clients.emissions,
            effects=[*load.effects(self), *paid],
        )
        return msgspec.structs.replace(history, now=self.clock.now())

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Gone | asyncio.CancelledError):
            self.problems.append(f"unexpected: {context.get('message')}: {error!r}")


def run_all(seeds: range) -> list[Outcome]:
    """The outcomes of some seeds. What they leave behind is cleared away once, after them."""
    gc.freeze()
    gc.disable()
    found = [World(seed).run() for seed in seeds]
    gc.enable()
    gc.collect()
    return found


def _given_back(job: JobRecord) -> Settlement:
    if job.delivery is Delivery.AT_MOST_ONCE:
        return after_crash(job, "given up by mistake")
    return release(job.id, job.token)


def _charges(history: History, charged: list[UUID]) -> Iterator[str]:
    """A transactional step is recorded if its effect is there, and only then; and once."""
    recorded = {
        step.job_id
        for step in history.steps
        if step.name == "charge" and step.state is StepState.DONE
    }
    for job_id in recorded.symmetric_difference(charged):
        yield f"job {job_id}: its transactional step is recorded without its effect, or not at all"
    for job_id, count in Counter(charged).items():
        if count > 1:
            yield f"job {job_id}: its transactional step has {count} effects"


def _digest(history: History) -> str:
    told: list[Any] = [history.journal, history.attempts, history.ticks, history.events]
    told += [history.steps, history.effects, history.submissions]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]
