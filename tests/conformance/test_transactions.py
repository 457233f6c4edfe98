"""A connection that the store hands out: its writes and the jobs on it are one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from duly.errors import KeyConflict, WrongConnection
from duly.model.job import KeyPolicy, State
from duly.store.operation import Wake
from tests.support.stores import Scene, draft, until


class _Undone(Exception):
    pass


def test_committed_together(scene: Scene) -> None:
    job = draft()
    with scene.store.transaction() as connection:
        scene.store.carry(connection).run(scene.store.enqueue([job], scene.now))
        connection.execute("CREATE TABLE orders (number integer)")
        connection.execute("INSERT INTO orders VALUES (7)")
    assert scene.state(job.id) is State.PENDING
    with scene.store.transaction() as connection:
        assert list(connection.execute("SELECT number FROM orders")) == [(7,)]
        connection.execute("DROP TABLE orders")


def test_rolled_back_together(scene: Scene) -> None:
    job = draft(key="k")

    def act() -> None:
        with scene.store.transaction() as connection:
            connection.execute("CREATE TABLE orders (number integer)")
            scene.store.carry(connection).run(scene.store.enqueue([job], scene.now))
            raise _Undone

    with pytest.raises(_Undone):
        act()
    assert scene.store.run(scene.store.get([job.id])) == [None]
    assert scene.enqueue(draft(key="k", key_policy=KeyPolicy.REJECT))[0].created
    with scene.store.transaction() as connection:
        connection.execute("CREATE TABLE orders (number integer)")
        connection.execute("DROP TABLE orders")


def test_a_conflict_leaves_the_transaction_usable(scene: Scene) -> None:
    scene.submit(key="k")
    kept, other = draft(), draft()
    with scene.store.transaction() as connection:
        carrier = scene.store.carry(connection)
        carrier.run(scene.store.enqueue([kept], scene.now))
        with pytest.raises(KeyConflict):
            carrier.run(
                scene.store.enqueue([other, draft(key="k", key_policy=KeyPolicy.REJECT)], scene.now)
            )
    assert scene.state(kept.id) is State.PENDING
    assert scene.store.run(scene.store.get([other.id])) == [None]


def test_other_connections_are_refused(scene: Scene) -> None:
    foreign = sqlite3.connect(":memory:")
    try:
        for connection in (foreign, object(), None):
            with pytest.raises(WrongConnection):
                scene.store.carry(connection)
    finally:
        foreign.close()


def test_run_on_an_event_loop(scene: Scene) -> None:
    async def act() -> int:
        jobs = [draft() for _ in range(20)]
        await asyncio.gather(
            *(scene.store.arun(scene.store.enqueue([job], scene.now)) for job in jobs)
        )
        found = await scene.store.arun(scene.store.get([job.id for job in jobs]))
        return sum(job is not None for job in found)

    assert asyncio.run(act()) == 20


def test_a_closed_store_opens_again(scene: Scene) -> None:
    job = scene.submit()
    scene.store.close()
    scene.store.close()
    found = scene.store.run(scene.store.get([job.id]))
    assert found == ([None] if scene.store.url == "sqlite://" else [job])


def test_a_watcher_is_woken_by_a_submission(scene: Scene) -> None:
    watch = scene.store.watch(Wake.WORKERS)
    try:
        watch.wait(0.05)
        woken = threading.Event()

        def wait() -> None:
            if watch.wait(20):
                woken.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        scene.submit()
        waiter.join(20)
        assert woken.is_set()
    finally:
        watch.close()


def test_a_watcher_is_not_woken_by_those_who_only_look(scene: Scene) -> None:
    holder = scene.hire()
    watch = scene.store.watch(Wake.WAITERS)
    try:
        until(lambda: not watch.wait(0.1))
        scene.claim(holder)
        scene.counts()
        scene.next_due()
        scene.store.run(scene.store.get([holder]))
        assert not watch.wait(0.3)
    finally:
        watch.close()
