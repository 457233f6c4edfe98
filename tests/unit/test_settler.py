"""Outcomes that the store does not take: which wait, and which are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from duly.errors import SchemaBehind, StoreError, StoreFull, StoreUnavailable
from duly.model.attempt import Outcome
from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.settlement import Settlement, succeed
from duly.runtime import settler
from duly.runtime.lease import LeaseClock
from duly.runtime.settler import REASON_REFUSED, Settler
from duly.store.protocol import Store

Judge = Callable[[Settlement], Exception | None]


class Picky:
    """A store that refuses a batch when its judge has something against one of the outcomes."""

    def __init__(self, judge: Judge) -> None:
        self.stored: list[Settlement] = []
        self._judge = judge

    def settle(self, batch: list[Settlement]) -> list[Settlement]:
        return batch

    async def arun(self, batch: list[Settlement]) -> list[bool]:
        for each in batch:
            error = self._judge(each)
            if error is not None:
                raise error
        self.stored += batch
        return [True] * len(batch)


def settled(store: Picky, outcomes: Iterable[Settlement]) -> list[Settlement]:
    """What the store holds when everything is written or given up."""

    async def main() -> None:
        writes = Settler(cast(Store, store), LeaseClock(600.0), lambda batch, landed: None)
        for each in outcomes:
            writes.put(each)
        role = asyncio.create_task(writes.run())
        async with asyncio.timeout(60):
            await writes.flushed()
        role.cancel()

    asyncio.run(main())
    return store.stored


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "PAUSE", 0.0)


def outcomes(number: int) -> list[Settlement]:
    return [succeed(new_id(), 1, str(each)) for each in range(number)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_outcome_that_cannot_be_stored_is_buried_and_holds_up_nobody(place: int) -> None:
    given = outcomes(3)

    def judge(each: Settlement) -> Exception | None:
        return StoreError("not this one") if each.result == str(place) else None

    stored = settled(Picky(judge), given)
    assert [each.job_id for each in stored] == [each.job_id for each in given]
    buried = stored.pop(place)
    assert (buried.token, buried.state, buried.reason) == (1, State.DEAD, REASON_REFUSED)
    assert buried.error is not None
    assert buried.error.message == "not this one"
    assert {each.outcome for each in stored} == {Outcome.SUCCEEDED}


@pytest.mark.parametrize(
    "trouble", [StoreUnavailable("read only"), StoreFull("no room"), SchemaBehind("no table")]
)
def test_a_store_that_takes_nothing_is_waited_for(trouble: Exception) -> None:
    given = outcomes(3)
    refusals = 0

    def judge(each: Settlement) -> Exception | None:
        nonlocal refusals
        refusals += 1
        return trouble if refusals < 50 else None

    assert settled(Picky(judge), given) == given


def test_the_end_of_a_job_that_cannot_be_stored_at_all_holds_up_nobody() -> None:
    given = outcomes(3)

    def judge(each: Settlement) -> Exception | None:
        return StoreError("never") if each.job_id == given[1].job_id else None

    assert settled(Picky(judge), given) == [given[0], given[2]]
