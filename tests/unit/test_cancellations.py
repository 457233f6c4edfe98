"""When a worker asks for requests to cancel, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import pytest

from duly.runtime.cancellations import GAP, LOOK, Cancellations
from duly.runtime.slots import Slots
from duly.store.protocol import Store
from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.loop import VirtualLoop


class Asked:
    """A store that notes when it was asked, and knows of no request."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self.moments: list[float] = []

    def cancel_requests(self, worker: object) -> None: ...

    async def arun(self, operation: object) -> list[Any]:
        self.moments.append(self._loop.time() - self._begun)
        return []


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(VirtualClock())
    yield loop
    loop.close()


async def looks_after(hints: list[float], running: list[str]) -> list[float]:
    store = Asked()
    cancellations = Cancellations(uuid4(), cast(Store, store), cast(Slots, running))
    role = asyncio.create_task(cancellations.run())
    loop = asyncio.get_running_loop()
    for hint in hints:
        loop.call_later(hint, cancellations.hint)
    await asyncio.sleep(LOOK - 0.1)
    role.cancel()
    return store.moments


def test_a_hint_soon_after_a_look_is_heeded_a_little_later(loop: VirtualLoop) -> None:
    moments = loop.run(looks_after([0.01, 0.02, 0.1, 1.0], ["job"]))
    assert moments == pytest.approx([0.0, GAP, 1.0], abs=0.001)


def test_nobody_asks_while_nothing_runs(loop: VirtualLoop) -> None:
    assert loop.run(looks_after([0.01, 1.0], [])) == []
