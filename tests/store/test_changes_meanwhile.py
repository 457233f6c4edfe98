"""Ends of jobs on PostgreSQL that meet a change of the same rows, made after they began."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

from duly.model.job import JobRecord, State
from duly.model.settlement import Settlement, bury, release, retry, succeed
from duly.runtime import settler as settler_module
from duly.runtime.lease import LeaseClock
from duly.runtime.settler import Settler
from duly.store.postgres import tries
from duly.store.postgres.store import PostgresStore
from tests.support.stores import Scene, failure, until

T = TypeVar("T")

PATIENCE = 60.0
BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
CANCEL = "UPDATE duly.jobs SET cancel_requested_at = now(), reason = 'stop it' WHERE id = %s"
REAP = "UPDATE duly.jobs SET state = 'pending', worker = NULL WHERE id = %s"
CLAIM = "UPDATE duly.jobs SET state = 'running', token = token + 1 WHERE id = %s"

CHANGES = pytest.mark.parametrize(
    ("changes", "landed"),
    [((CANCEL,), True), ((REAP,), False), ((CLAIM,), False), ((REAP, CLAIM), False)],
    ids=["cancelled", "reaped", "claimed", "reaped and claimed"],
)

ENDS: dict[str, Callable[[JobRecord], Settlement]] = {
    "retry": lambda job: retry(job.id, job.token, timedelta(seconds=5), failure(str(job.id))),
    "release": lambda job: release(job.id, job.token),
    "bury": lambda job: bury(job.id, job.token, "worn out", failure(str(job.id))),
}


@pytest.fixture
def scene(postgres_store: PostgresStore) -> Scene:
    return Scene(postgres_store)


class Meanwhile:
    """Somebody who changes rows, and commits when another waits for that."""

    def __init__(self, url: str, connection: psycopg.Connection) -> None:
        self._url = url
        self._connection = connection

    def count(self, text: str, *values: object) -> int:
        ((number,),) = self._connection.execute(text.encode(), values).fetchall()
        return int(number)

    def change(self, *changes: tuple[str, UUID], during: Callable[[], T]) -> T:
        with psycopg.connect(self._url) as other, ThreadPoolExecutor(1) as threads:
            for text, row in changes:
                other.execute(text.encode(), (row,))
            under_way = threads.submit(during)
            until(lambda: under_way.done() or self.count(BLOCKED) >= 1)
            other.commit()
            return under_way.result(PATIENCE)


@pytest.fixture
def meanwhile(shared_database: str, connection: psycopg.Connection) -> Meanwhile:
    return Meanwhile(shared_database, connection)


def three(scene: Scene, **fields: Any) -> list[JobRecord]:
    scene.submit_many(3, **fields)
    return sorted(scene.claim(scene.hire(), limit=3), key=lambda job: job.id)


@CHANGES
def test_successes(
    scene: Scene, meanwhile: Meanwhile, changes: tuple[str, ...], landed: bool
) -> None:
    first, changed, last = jobs = three(scene)
    outcomes = [succeed(job.id, job.token, f'"{number}"') for number, job in enumerate(jobs)]
    assert meanwhile.change(
        *((change, changed.id) for change in changes), during=lambda: scene.settle(*outcomes)
    ) == [True, landed, True]
    assert [scene.get(job.id).result for job in (first, last)] == ['"0"', '"2"']
    assert (scene.state(changed.id) is State.SUCCEEDED) is landed
    assert meanwhile.count("SELECT count(*) FROM duly.jobs") == int(not landed)
    assert meanwhile.count("SELECT count(*) FROM duly.archive") == 2 + int(landed)


@CHANGES
@pytest.mark.parametrize("end", ENDS)
def test_other_ends(
    scene: Scene, meanwhile: Meanwhile, changes: tuple[str, ...], landed: bool, end: str
) -> None:
    first, changed, last = jobs = three(scene, max_attempts=5)
    outcomes = [ENDS[end](job) for job in jobs]
    assert meanwhile.change(
        *((change, changed.id) for change in changes), during=lambda: scene.settle(*outcomes)
    ) == [True, landed, True]
    usual = State.DEAD if end == "bury" else State.PENDING
    assert [scene.state(job.id) for job in (first, last)] == [usual, usual]
    if end != "release":
        assert scene.get(last.id).error == failure(str(last.id))
    if landed:
        job = scene.get(changed.id)
        assert job.state is (State.DEAD if end == "bury" else State.CANCELLED)
        assert job.reason == ("worn out" if end == "bury" else "stop it")
    live = "SELECT count(*) FROM duly.jobs WHERE id = %s"
    assert meanwhile.count(live, changed.id) == int(not landed)


@pytest.mark.parametrize("window", [None, 60.0])
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("end", ["succeed", "bury", "cancel"])
def test_keys(
    scene: Scene, meanwhile: Meanwhile, window: float | None, taken_over: bool, end: str
) -> None:
    jobs = [scene.submit(key=f"key {number}", key_window=window) for number in range(3)]
    another = scene.submit(task="another")
    if end != "cancel":
        jobs = sorted(scene.claim(scene.hire()), key=lambda job: job.id)
    changed = jobs[1]
    new_holder = f"job_id = '{another.id}'" if taken_over else "held_until = NULL"
    ends: dict[str, Callable[[], object]] = {
        "succeed": lambda: scene.settle(*(succeed(job.id, job.token, "1") for job in jobs)),
        "bury": lambda: scene.settle(*(bury(job.id, job.token, "x", failure()) for job in jobs)),
        "cancel": lambda: scene.cancel(*(job.id for job in jobs)),
    }
    change = f"UPDATE duly.keys SET {new_holder} WHERE job_id = %s"
    meanwhile.change((change, changed.id), during=ends[end])
    of_another = "SELECT count(*) FROM duly.keys WHERE job_id = %s AND held_until IS NULL"
    kept = "SELECT count(*) FROM duly.keys WHERE held_until IS NOT NULL"
    assert meanwhile.count(of_another, another.id) == int(taken_over)
    assert meanwhile.count(kept) == (0 if window is None else 3 - int(taken_over))
    assert meanwhile.count("SELECT count(*) FROM duly.keys") == (
        int(taken_over) if window is None else 3
    )


@pytest.mark.parametrize("end", ["succeed", "bury", "cancel"])
def test_parents_and_attempts(
    scene: Scene, meanwhile: Meanwhile, connection: psycopg.Connection, end: str
) -> None:
    parent = scene.submit(task="parent")
    job = scene.submit(parent_id=parent.id, max_attempts=5)
    scene.fail(scene.take())
    connection.execute("UPDATE duly.jobs SET state = 'waiting' WHERE id = %s", (parent.id,))
    if end != "cancel":
        job = scene.take()
    ends: dict[str, Callable[[], object]] = {
        "succeed": lambda: scene.settle(succeed(job.id, job.token, "1", None, parent.id)),
        "bury": lambda: scene.settle(bury(job.id, job.token, "x", failure(), parent_id=parent.id)),
        "cancel": lambda: scene.cancel(job.id),
    }
    meanwhile.change(
        ("UPDATE duly.jobs SET priority = priority WHERE id = %s", parent.id),
        ("UPDATE duly.attempts SET outcome = outcome WHERE job_id = %s", job.id),
        during=ends[end],
    )
    assert scene.state(parent.id) is State.PENDING
    assert len(scene.attempts(job.id)) == (1 if end == "cancel" else 2)


def test_an_outcome_waits_for_a_lock_longer_than_the_server_does(
    scene: Scene, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lock_timeout is set for everybody, a table that is being changed costs nothing."""
    monkeypatch.setattr(settler_module, "PAUSE", 0.001)
    monkeypatch.setattr(tries, "PAUSES", (0.001,))
    scene.submit()
    job = scene.take()
    sign = "&" if "?" in shared_database else "?"
    store = PostgresStore(f"{shared_database}{sign}options=-c%20lock_timeout%3D1ms")
    tried = threading.Semaphore(0)
    settle = store.settle

    def settle_and_tell(*arguments: Any) -> Any:
        tried.release()
        return settle(*arguments)

    monkeypatch.setattr(store, "settle", settle_and_tell)

    async def report() -> None:
        settler = Settler(store, LeaseClock(600.0), lambda batch, landed: None)
        running = asyncio.create_task(settler.run())
        settler.put(succeed(job.id, job.token, "1"))
        await asyncio.wait_for(settler.flushed(), PATIENCE)
        running.cancel()

    with psycopg.connect(shared_database) as other, ThreadPoolExecutor(1) as threads:
        other.execute("LOCK TABLE duly.archive IN ACCESS EXCLUSIVE MODE")
        reported = threads.submit(asyncio.run, report())
        for _ in range(settler_module.TRIES + 1):
            assert tried.acquire(timeout=PATIENCE)
        other.rollback()
        reported.result(PATIENCE)
    assert scene.state(job.id) is State.SUCCEEDED
    store.close()
