"""What is on the disk when. A machine may fail at any moment."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from duly.errors import StoreUnavailable
from duly.model.identifiers import new_id
from duly.model.job import Alike, Delivery, JobRecord
from duly.model.query import Demand
from duly.model.settlement import succeed
from duly.store.operation import Operation, Statement, Steps
from duly.store.sqlite import syncing
from duly.store.sqlite import transactions as transactions_module
from duly.store.sqlite import writer as writer_module
from duly.store.sqlite.connection import connect
from duly.store.sqlite.store import SqliteStore
from tests.support.machine_failure import Disk, noted
from tests.support.stores import QUEUE, TASK, Scene, draft, queued, until

PATIENCE = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with noted(tmp_path / "duly.db") as disk:
        yield disk


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(tmp_path / "duly.db"))) as store:
        store.run(store.enqueue([draft()]))
        yield store


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)


def claim(scene: Scene, **fields: Any) -> Operation[list[JobRecord]]:
    """A claim of a new worker's."""
    holder = scene.hire()
    demand = Demand(worker=holder, queues=(QUEUE,), tasks=(TASK,), limit=10, **fields)
    return scene.store.claim(demand, scene.now)


def rest(store: SqliteStore) -> None:
    """Wait until everything is on the disk, and nobody uses the writer's connection."""
    writer = store._open().writer
    until(lambda: not (writer._is_unsynced or writer._is_busy))


def run_on_a_loop(store: SqliteStore, operation: Operation[Any]) -> tuple[Any, bool]:
    """The answer, and whether the thread of the event loop itself has run the operation."""
    ran_by: list[int] = []

    def steps() -> Steps[Any]:
        ran_by.append(threading.get_ident())
        return (yield from operation.start())

    noting: Any = Operation(steps, conclude=operation.conclude, early=True)
    answer = asyncio.run(store.arun(noting))
    return answer, ran_by[-1] == threading.get_ident()


# Submissions


def test_a_submission_is_on_the_disk_when_it_is_answered(store: SqliteStore, disk: Disk) -> None:
    for _ in range(5):
        ((answer,),) = (store.run(store.enqueue([draft()])),)
        assert disk.states()[answer.job.id] == "pending"


def test_so_are_those_of_threads_and_of_coroutines(store: SqliteStore, disk: Disk) -> None:
    def submit(_: int) -> bool:
        (answer,) = store.run(store.enqueue([draft()]))
        return answer.job.id in disk.states()

    async def submit_here() -> bool:
        (answer,) = await store.arun(store.enqueue([draft()]))
        return answer.job.id in disk.states()

    async def submit_together() -> list[bool]:
        return list(await asyncio.gather(*(submit_here() for _ in range(20))))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(submit, range(80)))
    assert all(asyncio.run(submit_together()))


def test_those_of_other_processes_too_when_a_log_is_new(tmp_path: Path, disk: Disk) -> None:
    """Whoever leaves last removes the log; the next to come makes another."""
    for _ in range(3):
        with closing(SqliteStore(str(tmp_path / "duly.db"))) as store:
            (answer,) = store.run(store.enqueue([draft()]))
            assert answer.job.id in disk.states()


@pytest.mark.parametrize("anew", [False, True], ids=["always", "after a fork"])
def test_others_write_while_a_submission_is_synced(
    store: SqliteStore, disk: Disk, anew: bool
) -> None:
    if anew:
        store.suspend()
        store.resume()
        store.run(store.pause_queue("mail"))
    answered: list[bool] = []
    wrote: list[bool] = []

    def meanwhile() -> None:
        with closing(apsw.Connection(store.path)) as other:
            other.execute("BEGIN IMMEDIATE; ROLLBACK")
            wrote.append(True)
        assert not answered

    disk.meanwhile = meanwhile
    store.run(store.enqueue([draft()]))
    answered.append(True)
    assert wrote == [True]


def test_a_submission_that_cannot_be_synced_is_not_answered_as_if_it_were(
    store: SqliteStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(syncing, "sync_log", broken)
        with pytest.raises(StoreUnavailable, match=r"may not be on the disk.*Input/output") as told:
            store.run(store.enqueue([draft()]))
    assert told.value.unknown
    assert store.run(store.enqueue([draft()]))


def test_a_submission_that_had_to_wait_is_as_of_when_it_had_the_file(
    store: SqliteStore, scene: Scene
) -> None:
    """It is tried again as one statement: the file is not held for more than that."""
    said: list[str] = []
    connection = store._open().writer._transactions.connection
    assert connection is not None
    waiting = store._open().writer._transactions._patience
    with closing(connect(store.path)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("BEGIN IMMEDIATE")
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: said.append(event["sql"]))
        submission = store.enqueue(Alike(draft(), [new_id().bytes], ["1"]))
        submitted = threads.submit(store.run, submission)
        until(lambda: waiting._begun)
        other.execute("ROLLBACK")
        submitted.result(PATIENCE)
    assert said
    assert not any(text.startswith("BEGIN") for text in said)


# Everything else is on the disk before others see it


def test_what_ends_a_job_is_on_the_disk_before_others_see_it(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    (job,) = store.run(claim(scene))
    rest(store)
    disk.meanwhile = lambda: pytest.fail("it was committed before it was synced")
    scene.settle(succeed(job.id, job.token, None))
    assert disk.states()[job.id] == "succeeded"


def test_an_attempt_at_most_once_is_on_the_disk_before_its_code_starts(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    scene.submit(delivery=Delivery.AT_MOST_ONCE)
    jobs = store.run(claim(scene))
    assert all(scene.begin(job) == (job.delivery is Delivery.AT_MOST_ONCE) for job in jobs)
    states = disk.states()
    assert [states[job.id] for job in jobs] == ["running", "running"]


def test_a_transaction_of_the_caller_is_on_the_disk_at_its_end(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    store.run(claim(scene))
    new = draft()
    with store.transaction() as connection:
        connection.run(store.enqueue([new]))
    assert new.id in disk.states()


@pytest.mark.parametrize("beside", ["a submission", "another write"])
def test_a_claim_that_shares_a_commit_is_synced_with_it(
    store: SqliteStore, scene: Scene, disk: Disk, beside: str
) -> None:
    claiming, new = claim(scene), draft()
    other: Operation[Any] = store.enqueue([new], scene.now if beside == "another write" else None)
    writer = store._open().writer
    disk.meanwhile = lambda: pytest.fail("it was committed before it was synced")
    with store.transaction():
        together = [queued(writer, each) for each in (claiming, other)]
    (job,), _ = (each.result(PATIENCE) for each in together)
    states = disk.states()
    assert (states[job.id], states[new.id]) == ("running", "pending")


# Claims


@pytest.mark.parametrize("where", ["in a thread", "on an event loop", "by the writer's thread"])
def test_a_claim_is_answered_before_it_is_on_the_disk_and_is_there_soon(
    store: SqliteStore, scene: Scene, disk: Disk, where: str
) -> None:
    claiming = claim(scene)
    answered, synced = threading.Event(), threading.Event()

    def meanwhile() -> None:
        assert answered.wait(PATIENCE)
        synced.set()

    disk.meanwhile = meanwhile
    if where == "in a thread":
        (job,) = store.run(claiming)
    elif where == "on an event loop":
        ((job,), _) = run_on_a_loop(store, claiming)
    else:
        (job,) = queued(store._open().writer, claiming).result(PATIENCE)
    assert disk.states()[job.id] == "pending"
    answered.set()
    assert synced.wait(PATIENCE)
    until(lambda: disk.states()[job.id] == "running")


def test_a_claim_is_on_the_disk_with_what_follows_it(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    """Nobody finds a result on the disk of an attempt that is not there."""
    (job,) = store.run(claim(scene))
    ((answer,),) = (store.run(store.enqueue([draft()])),)
    states = disk.states()
    assert (states[job.id], states[answer.job.id]) == ("running", "pending")


def test_a_claim_is_on_the_disk_when_the_store_is_closed(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    with closing(connect(store.path)):
        # So that the store is not the last to close the file, which takes the log into it.
        (job,) = store.run(claim(scene))
        store.close()
        assert disk.states()[job.id] == "running"


def test_a_claim_that_cannot_be_synced_is_told_to_the_log(
    store: SqliteStore,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = threading.Event()

    def broken(descriptor: int) -> None:
        tried.set()
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "duly.store"):
        patch.setattr(syncing, "sync_log", broken)
        (job,) = store.run(claim(scene))
        assert tried.wait(PATIENCE)
        until(lambda: "may not be on the disk" in caplog.text)
    assert scene.settle(succeed(job.id, job.token, None)) == [True]


# Claims on event loops


def test_a_claim_is_made_on_the_event_loop_itself(store: SqliteStore, scene: Scene) -> None:
    jobs, here = run_on_a_loop(store, claim(scene))
    assert len(jobs) == 1
    assert here


def test_not_while_another_thread_writes(store: SqliteStore, scene: Scene) -> None:
    claiming = claim(scene)
    begun, go_on = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        begun.set()
        go_on.wait(PATIENCE)
        yield Statement("SELECT 1")

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(store.run, Operation(steps))
        assert begun.wait(PATIENCE)
        threading.Timer(0.1, go_on.set).start()
        jobs, here = run_on_a_loop(store, claiming)
        writing.result(PATIENCE)
    assert len(jobs) == 1
    assert not here


def test_not_while_another_process_writes(store: SqliteStore, scene: Scene) -> None:
    claiming = claim(scene)
    waiting = store._open().writer._transactions._patience
    with closing(connect(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")

        def let_go() -> None:
            until(lambda: waiting._begun)
            other.execute("ROLLBACK")

        letting_go = threading.Thread(target=let_go)
        letting_go.start()
        jobs, here = run_on_a_loop(store, claiming)
        letting_go.join()
    assert len(jobs) == 1
    assert not here


def test_not_after_one_that_took_long_for_a_while(
    store: SqliteStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [claim(scene) for _ in range(4)]
    monkeypatch.setattr(writer_module, "REST_AFTER_LONG", PATIENCE)
    here: list[bool] = []
    for number, longest in enumerate((PATIENCE, 0.0, 0.0)):
        monkeypatch.setattr(writer_module, "LONG_HERE", longest)
        rest(store)
        here.append(run_on_a_loop(store, claims[number])[1])
    monkeypatch.setattr(store._open().writer, "_rests_until", 0.0)
    rest(store)
    here.append(run_on_a_loop(store, claims[3])[1])
    assert here == [True, True, False, True]


def test_an_event_loop_does_not_take_the_log_into_the_file(
    store: SqliteStore, scene: Scene, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_module, "CHECKPOINT", 1)
    connection = store._open().writer._transactions.connection
    assert connection is not None
    claiming = claim(scene)
    connection.wal_autocheckpoint(1)
    before = disk.syncs_of_database
    (job,), here = run_on_a_loop(store, claiming)
    assert here
    assert disk.syncs_of_database == before
    scene.settle(succeed(job.id, job.token, None))
    assert disk.syncs_of_database > before


def test_a_claim_on_an_event_loop_fails_with_its_own_error(
    store: SqliteStore, scene: Scene
) -> None:
    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
        yield Statement("SELECT 1 FROM nowhere")

    with pytest.raises(Exception, match="nowhere"):
        asyncio.run(store.arun(Operation(steps, early=True)))
    with store.transaction() as mine:
        assert mine.execute("SELECT count(*) FROM lanes WHERE queue = 'q'") == [(0,)]
