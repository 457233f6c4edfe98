"""Renewals of leases, and what workers are told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

import pytest

from duly.clock import runtime_clock
from duly.runtime.keeper import LeaseKeeper
from duly.store.protocol import Store
from duly.testing.simulation.clock import VirtualClock

ROUND_TRIP = 7.0


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    clock = VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))
    with runtime_clock.replaced(clock):
        yield clock


class Distant:
    """A store that takes its time to answer, and knows some workers only."""

    def __init__(self, clock: VirtualClock) -> None:
        self.known: set[UUID] = set()
        self.asked: list[list[UUID]] = []
        self._clock = clock

    def renew(self, workers: list[UUID], lease: timedelta) -> list[UUID]:
        return workers

    async def arun(self, workers: list[UUID]) -> frozenset[UUID]:
        self.asked.append(workers)
        self._clock.pass_time(ROUND_TRIP)
        return frozenset(self.known.intersection(workers))


def test_a_lease_counts_from_before_its_renewal_was_sent(clock: VirtualClock) -> None:
    store, worker = Distant(clock), uuid4()
    store.known.add(worker)
    renewals: list[float] = []
    keeper = LeaseKeeper(cast(Store, store), 60.0)
    keeper.add(worker, renewed=renewals.append, lost=lambda: pytest.fail("it is not"))
    before = clock.monotonic()
    pause = asyncio.run(keeper.tick())
    assert renewals == [before]
    assert pause < 60.0 / 2


def test_who_was_reaped_is_told_once_and_not_renewed_again(clock: VirtualClock) -> None:
    store, reaped, alive = Distant(clock), uuid4(), uuid4()
    store.known.add(alive)
    told: list[UUID] = []
    keeper = LeaseKeeper(cast(Store, store), 60.0)
    for worker in (reaped, alive):
        keeper.add(worker, lambda sent_at: None, lambda worker=worker: told.append(worker))  # type: ignore[misc]
    for _ in range(2):
        asyncio.run(keeper.tick())
    assert told == [reaped]
    assert store.asked == [[reaped, alive], [alive]]
