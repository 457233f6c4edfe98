"""When a worker claims, and when not any more."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.model.query import Due
from duly.runtime.chores import Chores
from duly.runtime.claimer import Claimer
from duly.runtime.claims import Claims
from duly.runtime.pace import Pace
from duly.runtime.settler import Settler
from duly.runtime.slots import Slots
from duly.runtime.surroundings import Watch
from duly.runtime.suspicion import Suspicion


class Quiet:
    """A watch to which nothing is said."""

    hears = True

    def ease(self) -> None: ...
    def attend(self) -> None: ...
    def close(self) -> None: ...


class Asked:
    """Claims of a worker that is stopped while it looks for the second time."""

    unknown = False

    def __init__(self) -> None:
        self.looks = 0
        self.taken = 0
        self.claimer: Claimer

    async def take(self, limit: int, due_by: datetime | None) -> tuple[list[Any], dict[Any, Any]]:
        self.taken += 1
        return [], {}

    async def next_due(self, exact: bool) -> Due | None:
        self.looks += 1
        if self.looks == 1:
            return None
        self.claimer.stop()
        return Due(datetime.now(UTC), 0.0)

    async def end_expired(self) -> None: ...


class Backlog:
    """Claims of a worker that finds nothing at first, then so many full batches, and then stops."""

    unknown = False

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._taken = 0
        self.looks = 0
        self.claimer: Claimer

    async def take(self, limit: int, due_by: datetime | None) -> tuple[list[Any], dict[Any, Any]]:
        self._taken += 1
        if self._taken == 1:
            return [], {}
        if self._taken > self._batches:
            self.claimer.stop()
        return [SimpleNamespace(id=number) for number in range(limit)], {}

    async def next_due(self, exact: bool) -> Due | None:
        self.looks += 1
        return None if self.looks == 1 else Due(datetime.now(UTC), 0.0)

    async def end_expired(self) -> None: ...


class Brisk:
    """Claims of a worker for which some jobs have come whenever it looks, so many times."""

    unknown = False

    def __init__(self, times: int) -> None:
        self._times = times
        self.in_vain = 0
        self.claimer: Claimer

    async def take(self, limit: int, due_by: datetime | None) -> tuple[list[Any], dict[Any, Any]]:
        self._times -= 1
        if self._times < 0:
            self.in_vain += 1
            return [], {}
        return [SimpleNamespace(id=number) for number in range(limit // 4)], {}

    async def next_due(self, exact: bool) -> Due | None:
        return None

    async def end_expired(self) -> None: ...


async def run_claimer(
    claims: Asked | Backlog | Brisk, size: int = 1, poll: float = 0.001, patience: float = 60
) -> None:
    slots = Slots(size)
    claims.claimer = Claimer(
        cast(Claims, claims),
        cast(Suspicion, SimpleNamespace(bars=False, startable=lambda jobs, ahead: jobs)),
        slots,
        Pace(slots),
        cast(Settler, SimpleNamespace(backlog=0)),
        Chores(lambda: None),
        poll=poll,
        start=lambda *job: None,
        lease_lost=lambda: None,
    )
    async with asyncio.timeout(patience):
        await claims.claimer.run(cast(Watch, Quiet()))


def test_nothing_is_claimed_after_a_stop_that_comes_between_the_look_and_the_claim() -> None:
    asked = Asked()
    asyncio.run(run_claimer(asked))
    assert (asked.looks >= 2, asked.taken) == (True, 1)


def test_nobody_asks_when_something_is_due_between_full_batches() -> None:
    backlog = Backlog(batches=10)
    asyncio.run(run_claimer(backlog))
    assert backlog.looks == 2


def test_while_jobs_come_often_a_worker_looks_for_them_without_being_told() -> None:
    brisk = Brisk(times=20)
    with pytest.raises(TimeoutError):
        asyncio.run(run_claimer(brisk, size=12, poll=60, patience=1))
    # And stops soon when no more come.
    assert 1 <= brisk.in_vain <= 10
