"""Emissions in the caller's own long transaction on PostgreSQL: nobody waits, nothing is missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly.errors import StoreError
from duly.model.event import EventRecord
from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.settlement import suspend
from duly.store.postgres.store import PostgresStore
from tests.conformance.test_suspension import wait_event
from tests.support.stores import Scene


def _event(name: str = "paid") -> EventRecord:
    return EventRecord(id=str(new_id()), name=name, payload="null")


@pytest.fixture
def scene(postgres_url: str) -> Scene:
    """A migrated PostgreSQL store."""
    store = PostgresStore(postgres_url)
    store.migrate()
    return Scene(store)


def test_a_job_that_cannot_be_sure_looks_again_soon(scene: Scene) -> None:
    store = scene.store
    scene.submit_many(2)
    job, other = scene.claim(scene.hire(), 2)
    with store.transaction() as connection:
        store.carry(connection).run(store.emit([_event()]))
        settlements = [
            suspend(job.id, job.token, wait_event(job)),
            suspend(other.id, other.token, wait_event(other, "another name")),
        ]
        # It does not wait for the open transaction, which has missed it and is not seen by it.
        assert store.run(store.settle(settlements)) == [True, True]
        asleep = scene.get(job.id)
        assert asleep.state is State.WAITING
    assert asleep.run_at < datetime.now(UTC) + timedelta(seconds=1.5)
    assert scene.get(other.id).run_at > datetime.now(UTC) + timedelta(days=365)
    store.close()


def test_an_emission_waits_for_no_suspension_but_sees_it(scene: Scene) -> None:
    store = scene.store
    scene.submit()
    (job,) = scene.claim(scene.hire(), 1)
    with store.transaction() as connection:
        connection.execute("SELECT 1")
        store.run(store.settle([suspend(job.id, job.token, wait_event(job))]))
        (emitted,) = store.carry(connection).run(store.emit([_event()]))
        assert emitted.woken == 1
    assert scene.state(job.id) is State.PENDING
    store.close()


def test_a_transaction_with_an_old_snapshot_is_refused(scene: Scene, postgres_url: str) -> None:
    store = scene.store
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(StoreError, match="READ COMMITTED"):
            store.carry(connection).run(store.emit([_event()]))
    store.close()
