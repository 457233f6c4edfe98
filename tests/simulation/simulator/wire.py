"""The way from a node to the store, on which everything can go wrong."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from duly.errors import StoreUnavailable
from duly.model.query import Demand
from duly.store.clocked import ClockedStore
from duly.store.operation import Operation, Statement, Steps
from duly.store.protocol import Store
from duly.store.sqlite.inline import InlineSqliteStore
from duly.store.sqlite.rows import micros
from duly.testing.simulation.clock import VirtualClock

if TYPE_CHECKING:
    from tests.simulation.simulator.node import Node

T = TypeVar("T")

LEASE_HELD = "SELECT 1 FROM workers WHERE id = ? AND lease_until > ?"
LONGEST_WAY = 3.0


class Gone(BaseException):
    """Raised in the code of a node that has crashed: nothing of it goes on."""


class Fate(StrEnum):
    """What becomes of one request."""

    FINE = "fine"
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    CRASH_BEFORE = "crash before a transaction"
    CRASH_INSIDE = "crash inside a transaction"
    CRASH_AFTER = "crash after a commit"


LOSSES = (Fate.REQUEST_LOST, Fate.REPLY_LOST)
CRASHES = (Fate.CRASH_BEFORE, Fate.CRASH_INSIDE, Fate.CRASH_AFTER)


@dataclass
class Weather:
    """How likely each fault is for one request, while it rages."""

    chance: random.Random
    faults: Counter[str]
    loss: float
    crash: float
    slow: float
    rages: bool = False

    def fate(self, may_crash: bool) -> Fate:
        """Draw the fate of one request."""
        if not self.rages:
            return Fate.FINE
        draw = self.chance.random()
        if draw < self.loss:
            return self._faced(*LOSSES)
        if draw < self.loss + (self.crash if may_crash else 0.0):
            return self._faced(*CRASHES)
        return Fate.FINE

    def _faced(self, *fates: Fate) -> Fate:
        fate = self.chance.choice(fates)
        self.faults[fate.value] += 1
        return fate

    def latency(self) -> float:
        """Draw how long a message travels, in seconds."""
        if self.rages and self.chance.random() < self.slow:
            return self.chance.uniform(0.1, LONGEST_WAY)
        return self.chance.uniform(0.0001, 0.01)


class Wire(ClockedStore):
    """The store as one node, or one client, reaches it."""

    def __init__(
        self,
        store: InlineSqliteStore,
        clock: VirtualClock,
        weather: Weather,
        node: Node | None = None,
    ) -> None:
        super().__init__(cast(Store, store), clock)
        self.inline = store
        self._weather = weather
        self._node = node
        self.complaints: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """A verb, which reads the clock when it is run, not when it is sent."""
        found = super().__getattr__(name)
        if getattr(found, "__name__", "") != "on_the_clock":
            return found

        def sent(*args: Any, **kwargs: Any) -> Operation[Any]:
            operation: Operation[Any] = found(*args, **kwargs)

            def start() -> Steps[Any]:
                return found(*args, **kwargs).start()  # type: ignore[no-any-return]

            def again() -> Steps[Any]:
                return found(*args, **kwargs).again()  # type: ignore[no-any-return]

            return replace(
                operation,
                start=(lambda: self._entitled(args[0], start())) if name == "claim" else start,
                again=operation.again and again,
            )

        self.__dict__[name] = sent
        return sent

    def _entitled(self, demand: Demand, steps: Steps[T]) -> Steps[T]:
        """A claim, after which the claimer's lease is looked at, in the same transaction."""
        jobs = yield from steps
        if jobs:
            held = yield Statement(LEASE_HELD, (demand.worker.bytes, micros(self._clock.now())))
            if not held:
                self.complaints.append(f"worker {demand.worker} claimed without a lease")
        return jobs

    async def arun(self, operation: Operation[T]) -> T:
        """See Store.arun."""
        await self._travel()
        fate = self._drawn()
        if fate is Fate.CRASH_BEFORE:
            self._crash()
        if fate is Fate.REQUEST_LOST:
            raise StoreUnavailable("the request was lost")
        result = self._done(operation, fate)
        if fate is Fate.REPLY_LOST:
            if operation.again is None:
                raise StoreUnavailable("the reply was lost", unknown=True)
            result = self.inline.run(replace(operation, start=operation.again))
        if operation.writes:
            # An old answer to a question is as good as a late request that follows from it.
            await self._travel()
        return result

    def run(self, operation: Operation[T]) -> T:
        """See Store.run: what blocking code asks takes no time, and may be its node's end."""
        self._refuse_the_dead()
        fate = self._drawn()
        if fate is Fate.CRASH_BEFORE:
            self._crash()
        return self._done(operation, fate)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """See Store.transaction."""
        self._refuse_the_dead()
        fate = self._drawn()
        with self.inline.transaction() as connection:
            yield connection
            if fate in (Fate.CRASH_BEFORE, Fate.CRASH_INSIDE):
                self._crash()
            if fate is Fate.REQUEST_LOST:
                raise StoreUnavailable("the connection broke before the commit")
        if fate is Fate.CRASH_AFTER:
            self._crash()
        if fate is Fate.REPLY_LOST:
            raise StoreUnavailable("the connection broke after the commit", unknown=True)

    def _drawn(self) -> Fate:
        return self._weather.fate(may_crash=self._node is not None)

    def _done(self, operation: Operation[T], fate: Fate) -> T:
        if fate is Fate.CRASH_INSIDE:
            after, start = self._weather.chance.randrange(4), operation.start
            operation = replace(operation, start=lambda: self._cut(start(), after))
        result = self.inline.run(operation)
        if fate is Fate.CRASH_AFTER:
            self._crash()
        return result

    def _cut(self, steps: Steps[T], after: int) -> Steps[T]:
        """The same statements up to one at which the node crashes: all are rolled back."""
        try:
            statement = next(steps)
            for _ in range(after):
                statement = steps.send((yield statement))
        except StopIteration:
            pass
        self._crash()
        raise AssertionError("unreachable")

    async def _travel(self) -> None:
        self._refuse_the_dead()
        await asyncio.sleep(self._weather.latency())
        if self._node is not None and self._node.stands_still:
            await self._node.awake()
        self._refuse_the_dead()

    def _crash(self) -> None:
        assert self._node is not None
        self._node.crash()
        raise Gone

    def _refuse_the_dead(self) -> None:
        if self._node is not None and self._node.dead:
            raise Gone
