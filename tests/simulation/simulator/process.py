"""What Duly takes from the process it runs in, taken from a world instead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from duly import config as configuration
from duly.clock import runtime_clock
from duly.model import identifiers
from duly.runtime.chance import chance as dice
from duly.store.protocol import Store
from duly.testing.simulation.clock import VirtualClock
from tests.simulation.simulator import load
from tests.simulation.simulator.node import here
from tests.simulation.simulator.wire import Gone, Wire

if TYPE_CHECKING:
    from tests.simulation.simulator.world import World


@contextmanager
def in_charge(world: World) -> Iterator[None]:
    """Everything that Duly takes from its process comes from this world."""
    config = configuration.redirected(world.app.config, "sqlite://")
    store = cast(Store, Wire(world.store, world.clock, world.weather))
    world.app.attach(store, config, world.clock)
    sequence, state = identifiers._sequence, dice.getstate()
    identifiers._sequence = cast(Any, _Ids(world))
    dice.seed(world.seed)
    load.stage.append(world)
    logger, root = logging.getLogger("duly"), logging.getLogger()
    handlers, propagates, complaints = list(root.handlers), logger.propagate, _Complaints(world)
    level = logger.level
    logger.addHandler(complaints)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        with runtime_clock.replaced(_NodeClock(world.clock)):
            yield
    finally:
        logger.removeHandler(complaints)
        logger.setLevel(level)
        logger.propagate = propagates
        root.handlers[:] = handlers
        load.stage.pop()
        dice.setstate(state)
        identifiers._sequence = sequence


def owned(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """A task, which belongs to the node whose code made it."""
    context = options.get("context")
    node = here.get() if context is None else context.run(here.get)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    if node is not None:
        node.tasks.add(task)
        task.add_done_callback(node.tasks.discard)
    return task


class _Ids:
    """Job ids of a simulation: they follow its clock and its seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = 0

    def take(self) -> bytes:
        self._made += 1
        moment = int(self._world.clock.now().timestamp() * 1000)
        tail = self._made << 48 | self._world.chance.getrandbits(48)
        number = moment << 80 | 0x7 << 76 | 0b10 << 62 | tail & ((1 << 62) - 1)
        return number.to_bytes(16, "big")

    def take_many(self, count: int) -> list[bytes]:
        return [self.take() for _ in range(count)]


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
