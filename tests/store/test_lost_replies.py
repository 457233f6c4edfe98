"""PostgreSQL: what was asked for is done, and whoever asked does not hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from duly.errors import StoreUnavailable
from duly.model.event import EventRecord
from duly.model.identifiers import new_id
from duly.model.settlement import retry, succeed
from duly.model.step import EventWait, Step, StepKind, StepState
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres import tries as tries_module
from duly.store.postgres.store import PostgresStore
from tests.support.stores import Scene, draft, failure, opened

T = TypeVar("T")

LOST = "the reply is lost"
REFUSED = "no connection"


class LossyStore(PostgresStore):
    """Its next tries go as `fates` says; those after them go well."""

    fates: tuple[str, ...] = ()

    def _try(self, engine: Any, operation: Operation[T], start: Callable[[], Steps[T]]) -> T:
        fate, self.fates = (self.fates[0], self.fates[1:]) if self.fates else ("", ())
        if fate == REFUSED:
            raise StoreUnavailable(REFUSED)
        result = super()._try(engine, operation, start)
        if fate == LOST:
            raise StoreUnavailable(LOST, unknown=True)
        return result

    async def _atry(
        self,
        engine: Any,
        operation: Operation[T],
        start: Callable[[], Steps[T]],
        connection: psycopg.Connection[Any],
    ) -> T:
        fate, self.fates = (self.fates[0], self.fates[1:]) if self.fates else ("", ())
        if fate == REFUSED:
            raise StoreUnavailable(REFUSED)
        result = await super()._atry(engine, operation, start, connection)
        if fate == LOST:
            raise StoreUnavailable(LOST, unknown=True)
        return result


class LossyOnALoop(LossyStore):
    """The same, and whatever needs no transaction around it is done on an event loop."""

    def run(self, operation: Operation[T]) -> T:
        return asyncio.run(self.arun(operation))


@pytest.fixture(params=[LossyStore, LossyOnALoop])
def scene(
    request: pytest.FixtureRequest,
    shared_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setattr(tries_module, "PAUSES", (0.0,))
    with opened("postgres", tmp_path, lambda: shared_database):
        store: LossyStore = request.param(shared_database)
        store.run(store.counts())
        yield Scene(store)
        store.close()


def suffer(scene: Scene, *fates: str) -> None:
    assert isinstance(scene.store, LossyStore)
    scene.store.fates = fates


def test_a_submission_is_stored_once_and_told_of_as_new(scene: Scene) -> None:
    suffer(scene, LOST, REFUSED, LOST)
    (answer,) = scene.enqueue(draft())
    assert answer.created
    assert sum(scene.counts().values()) == 1


@pytest.mark.parametrize(
    ("fates", "unknown"),
    [((REFUSED,) * 5, False), ((LOST,) + (REFUSED,) * 4, True), ((REFUSED,) * 4 + (LOST,), True)],
)
def test_that_it_may_have_landed_is_told_whichever_try_it_was(
    scene: Scene, fates: tuple[str, ...], unknown: bool
) -> None:
    suffer(scene, *fates)
    with pytest.raises(StoreUnavailable) as refusal:
        scene.enqueue(draft())
    assert refusal.value.unknown is unknown
    assert sum(scene.counts().values()) == int(unknown)


def test_outcomes_are_told_of_as_they_landed(scene: Scene) -> None:
    scene.submit_many(3)
    stale = scene.take()
    scene.crash(stale)
    again, done, failed = scene.claim(scene.hire(), 3)
    assert again.id == stale.id
    suffer(scene, LOST)
    landed = scene.settle(
        succeed(done.id, done.token, "1"),
        retry(failed.id, failed.token, timedelta(0), failure()),
        succeed(stale.id, stale.token, "3"),
    )
    assert landed == [True, True, False]


def test_an_event_that_was_taken_is_handed_over(scene: Scene) -> None:
    scene.submit()
    job = scene.take()
    event = EventRecord(id=str(new_id()), name="paid", payload='"x"', at=scene.now)
    scene.store.run(scene.store.emit([event], scene.now))
    step = Step(
        job_id=job.id,
        name="event:paid",
        key="",
        kind=StepKind.EVENT,
        state=StepState.READY,
        number=1,
        attempt=1,
    )
    suffer(scene, LOST)
    holds, got = scene.store.run(
        scene.store.take_event(job.token, step, EventWait(name="paid"), scene.now)
    )
    assert holds
    assert got is not None
    assert got.event_id == event.id


@pytest.mark.parametrize(
    ("writes", "atomic", "unknown"),
    [(True, False, True), (True, True, False), (False, False, False)],
    ids=["a write", "in a transaction, before its commit", "a question"],
)
def test_a_connection_that_breaks_may_have_done_what_it_was_asked_for(
    scene: Scene, writes: bool, atomic: bool, unknown: bool
) -> None:
    tries = 0

    def breaks() -> Steps[None]:
        nonlocal tries
        tries += 1
        yield Statement("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailable) as broken:
        scene.store.run(Operation(breaks, writes=writes, atomic=atomic))
    assert broken.value.unknown is unknown
    # What may have been done is not done again.
    assert (tries == 1) is unknown
