"""One run: a seed makes a world, its faults and its end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import apsw
import msgspec

from duly import config as configuration
from duly.clock import runtime_clock
from duly.errors import StoreUnavailable
from duly.model import identifiers
from duly.model.journal import Journal
from duly.runtime.chance import chance as dice
from duly.store.clocked import ClockedStore
from duly.store.protocol import Store
from duly.store.sqlite.inline import InlineSqliteStore
from duly.testing import Effect, History, Submission, Told, check_history, read_history
from duly.testing.simulation.clock import START, VirtualClock
from duly.testing.simulation.loop import VirtualLoop
from tests.simulation.simulator import load
from tests.simulation.simulator.node import LEASE, Node, here
from tests.simulation.simulator.wire import Gone, Weather, Wire

STORM = 8.0
"""How long the faults last, in virtual seconds."""

PATIENCE = 60.0
"""How long all work may take after that."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its digest is that of everything that happened in it."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    jobs: int
    crashes: int
    pauses: int


class World:
    """Nodes, clients, a store and bad weather, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = VirtualClock(START)
        self.loop = VirtualLoop(self.clock)
        self.loop.set_task_factory(_owned)
        self.loop.set_exception_handler(self._unexpected)
        self.store = _Store(self.clock)
        self.app = load.app
        sleepy = self.chance.random() < 0.4
        """Whether nodes only stand still, for as long as it takes to be given up for dead."""
        self.weather = Weather(
            self.chance,
            loss=0.0 if sleepy else self.chance.choice((0.0, 0.01, 0.05)),
            crash=0.0 if sleepy else self.chance.choice((0.0, 0.005, 0.02)),
            slow=0.0 if sleepy else self.chance.choice((0.0, 0.02, 0.1)),
        )
        self.deafness = 0.0 if sleepy else self.chance.choice((0.0, 0.5, 1.0))
        self._crash_share = 0.0 if sleepy else self.chance.choice((0.2, 0.8))
        self.with_janitor = self.chance.random() < 0.2
        self.notes: list[dict[str, Any]] = []
        self.submissions: list[Submission] = []
        self.problems: list[str] = []
        self.crashes = 0
        self.pauses = 0
        self._nodes = [Node(self, number) for number in range(self.chance.randint(2, 3))]
        self._calm = cast(Store, ClockedStore(cast(Store, self.store), self.clock))

    def run(self) -> Outcome:
        """Let it happen, and judge."""
        with _in_charge(self):
            self.loop.run(self._happen())
            history = self._history()
        complaints = [each for node in self._nodes for each in node.wire.complaints]
        violations = [str(each) for each in check_history(history)] + self.problems + complaints
        outcome = Outcome(
            self.seed,
            _digest(history),
            tuple(violations),
            len(history.jobs),
            self.crashes,
            self.pauses,
        )
        self.store.close()
        self.loop.close()
        return outcome

    def crashed(self, node: Node) -> None:
        """A node has crashed; it is started again before long."""
        self.crashes += 1
        self.loop.call_later(self.chance.uniform(0.1, 2 * LEASE), node.boot)

    async def _happen(self) -> None:
        self.app.schedules.add("beat", load.beat, timedelta(seconds=2), overlap="allow")
        load.submit_flow()
        self.submissions += [Submission(job_id=job.id) for job in self.app.list()]
        for node in self._nodes:
            node.boot()
        others = [
            asyncio.create_task(self._submit(number)) for number in range(self.chance.randint(3, 8))
        ]
        others.append(asyncio.create_task(self._strike()))
        await asyncio.sleep(STORM)
        await asyncio.gather(*others)
        self.app.schedules.pause("beat")
        self.weather.calm()
        self.deafness = 0.0
        for node in self._nodes:
            node.resume()
        for _ in range(int(PATIENCE)):
            await asyncio.sleep(1.0)
            if self.store.is_done():
                break
        for node in self._nodes:
            node.dead = True
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _submit(self, number: int) -> None:
        """One client: a job, perhaps with a key, perhaps cancelled a little later."""
        await asyncio.sleep(self.chance.uniform(0, STORM * 0.7))
        task = self.chance.choice(load.KINDS)
        key = self.chance.choice((None, None, "a", "b"))
        draft = task.using(key=key).job(number).draft
        wire = cast(Store, Wire(self.store, self.clock, self.weather))
        try:
            (answer,) = await wire.arun(wire.enqueue([draft]))
        except StoreUnavailable as error:
            told = Told.UNKNOWN if error.unknown else Told.FAILED
            self.submissions.append(Submission(job_id=draft.id, told=told, key=key))
            return
        self.submissions.append(Submission(job_id=answer.job.id, key=key))
        if self.chance.random() < 0.15:
            await asyncio.sleep(self.chance.expovariate(1.0))
            self.app.cancel(answer.job.id)

    async def _strike(self) -> None:
        """Crash nodes and let them stand still, now and then."""
        rate = self.chance.choice((0.2, 0.5, 1.0))
        end = self.clock.monotonic() + STORM
        while (pause := self.chance.expovariate(rate)) + self.clock.monotonic() < end:
            await asyncio.sleep(pause)
            node = self.chance.choice(self._nodes)
            if node.dead:
                continue
            if self.chance.random() < self._crash_share:
                node.crash()
            else:
                self.pauses += 1
                node.pause()
                longest = self.chance.choice((1, 4))
                self.loop.call_later(self.chance.uniform(0.2, longest) * LEASE, node.resume)

    def _history(self) -> History:
        paid = [
            Effect(job_id=job, token=token, result=None, ended=self.clock.now())
            for job, token in self.store.paid()
        ]
        history = read_history(
            self._calm, submissions=self.submissions, effects=[*load.effects(self), *paid]
        )
        return msgspec.structs.replace(history, now=self.clock.now())

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Gone | asyncio.CancelledError):
            self.problems.append(f"unexpected: {context.get('message')}: {error!r}")


def run(seed: int) -> Outcome:
    """The run of this seed."""
    return World(seed).run()


class _Store(InlineSqliteStore):
    """With a journal, whose clock is the simulation's, and a table for effects."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Journal.FULL)
        self._clock = clock

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            connection = super()._connected()
            connection.create_scalar_function(
                "unixepoch", lambda *unused: self._clock.now().timestamp()
            )
            connection.execute("CREATE TABLE paid (job BLOB, token INTEGER)")
        return super()._connected()

    def is_done(self) -> bool:
        """Whether no job is live."""
        return not list(self._connected().execute("SELECT 1 FROM jobs LIMIT 1"))

    def paid(self) -> list[tuple[UUID, int]]:
        """The committed effects of transactional jobs."""
        rows = self._connected().execute("SELECT job, token FROM paid ORDER BY rowid")
        return [(UUID(bytes=job), token) for job, token in rows]


class _Ids:
    """Job ids of a simulation: they follow its clock and its seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = 0

    def take(self) -> UUID:
        self._made += 1
        moment = int(self._world.clock.now().timestamp() * 1000)
        tail = self._made << 48 | self._world.chance.getrandbits(48)
        return UUID(int=moment << 80 | 0x7 << 76 | 0b10 << 62 | tail & ((1 << 62) - 1))


class _NodeClock:
    """The clock that code reads: that of the node it belongs to."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.sleep = clock.sleep

    def monotonic(self) -> float:
        node = here.get()
        return self._clock.monotonic() if node is None else node.monotonic()


class _Complaints(logging.Handler):
    """What Duly's own code logs with a traceback is a fault of it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if not isinstance(error, Gone):
                text = logging.Formatter().formatException(record.exc_info)
                self._world.problems.append(f"logged: {record.getMessage()}\n{text}")


@contextmanager
def _in_charge(world: World) -> Iterator[None]:
    """Everything that Duly takes from its process comes from this world."""
    config = configuration.redirected(world.app.config, "sqlite://")
    world.app.attach(world._calm, config, world.clock)
    sequence, state = identifiers._sequence, dice.getstate()
    identifiers._sequence = cast(Any, _Ids(world))
    dice.seed(world.seed)
    load.stage.append(world)
    logger, root = logging.getLogger("duly"), logging.getLogger()
    handlers, propagates, complaints = list(root.handlers), logger.propagate, _Complaints(world)
    logger.addHandler(complaints)
    logger.propagate = False
    try:
        with runtime_clock.replaced(_NodeClock(world.clock)):
            yield
    finally:
        logger.removeHandler(complaints)
        logger.propagate = propagates
        root.handlers[:] = handlers
        load.stage.pop()
        dice.setstate(state)
        identifiers._sequence = sequence


def _owned(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """A task, which belongs to the node whose code made it."""
    context = options.get("context")
    node = here.get() if context is None else context.run(here.get)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    if node is not None:
        node.tasks.add(task)
        task.add_done_callback(node.tasks.discard)
    return task


def _digest(history: History) -> str:
    told = [history.journal, history.attempts, history.ticks, history.effects, history.submissions]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]
