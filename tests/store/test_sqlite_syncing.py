"""What is on the disk when. A machine may fail at any moment."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from duly.errors import StoreUnavailable
from duly.model.identifiers import new_id
from duly.model.job import Alike, Delivery, Draft, JobRecord
from duly.model.query import Demand
from duly.model.settlement import succeed
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.sqlite import connection as connection_module
from duly.store.sqlite import syncing
from duly.store.sqlite import transactions as transactions_module
from duly.store.sqlite import writer as writer_module
from duly.store.sqlite.connection import connect
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.syncing import Synced, Syncing
from tests.support.machine_failure import Disk, noted
from tests.support.stores import QUEUE, TASK, Scene, draft, queued, until

PATIENCE = 30.0
NORMAL, FULL = 1, 2


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
    until(lambda: not (writer._is_unsynced or writer._is_busy or writer._works))


def run_on_a_loop(store: SqliteStore, operation: Operation[Any]) -> tuple[Any, bool]:
    """The answer, and whether the thread of the event loop itself has run the operation."""
    ran_by: list[int] = []

    def steps() -> Steps[Any]:
        ran_by.append(threading.get_ident())
        return (yield from operation.start())

    def early() -> Steps[Any]:
        assert operation.early is not None
        ran_by.append(threading.get_ident())
        return (yield from operation.early())

    noting: Any = Operation(steps, conclude=operation.conclude, early=early)
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
        # The log is removed with the last connection.
        store.suspend()
        assert not Path(f"{store.path}-wal").exists()
        store.resume()
        # By the writer's thread, which opens the connection; the next is alone again.
        store.run(store.enqueue([draft()]))
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


@pytest.mark.parametrize("on_a_loop", [False, True], ids=["blocking", "on a loop"])
def test_workers_hear_of_a_submission_before_it_is_synced(
    store: SqliteStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, on_a_loop: bool
) -> None:
    transactions = store._open().writer._transactions
    committed = transactions._committed
    events: list[str] = []

    def told(wakes: frozenset[Wake]) -> None:
        committed(wakes)
        events.append("told" if Wake.WORKERS in wakes else "others told")

    rest(store)
    monkeypatch.setattr(transactions, "_committed", told)
    disk.meanwhile = lambda: events.append("synced")
    operation = store.enqueue([draft()])
    if on_a_loop:
        asyncio.run(store.arun(operation))
    else:
        store.run(operation)
    assert events == ["told", "synced"]


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


def test_one_that_waits_for_too_long_is_told_so(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "PATIENCE", 0.05)
    with closing(connect(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="has been locked by another process"):
            store.run(store.enqueue(Alike(draft(), [new_id().bytes], ["1"])))


def test_without_a_descriptor_for_the_log_sqlite_syncs(
    store: SqliteStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, flags: int) -> int:
        raise OSError(24, "Too many open files")

    store.suspend()
    store.resume()
    before = disk.own_syncs
    with monkeypatch.context() as patch:
        patch.setattr("duly.store.sqlite.syncing.os.open", refused)
        for _ in range(3):
            (answer,) = store.run(store.enqueue([draft()]))
            assert answer.job.id in disk.states()
    assert disk.own_syncs == before


def again(store: SqliteStore, job: Draft) -> bool:
    """Submit a job that may be there; whether it was not."""
    (answer,) = store.run(store.enqueue([job], repeated=True))
    return answer.created


def again_unknowing(store: SqliteStore, job: Draft) -> bool:
    """The same, as one of several clients with one id."""
    (answer,) = store.run(store.enqueue([job]))
    return answer.created


def again_in_a_transaction(store: SqliteStore, job: Draft) -> bool:
    """The same in a transaction, which has written only what nobody else sees."""
    with store.transaction() as connection:
        connection.execute("CREATE TEMP TABLE mine (value)")
        connection.execute("INSERT INTO mine VALUES (1)")
        (answer,) = connection.run(store.enqueue([job], repeated=True))
        return answer.created


def again_where_something_is_undone(store: SqliteStore, job: Draft) -> bool:
    """The same in a transaction, a part of which is undone."""
    with store.transaction() as connection:
        with suppress(RuntimeError), connection.nested():
            connection.run(store.pause_queue("mail"))
            raise RuntimeError
        (answer,) = connection.run(store.enqueue([job], repeated=True))
        return answer.created


def again_beside_one_that_fails(store: SqliteStore, job: Draft) -> bool:
    """The same in one commit with something that fails."""

    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
        raise RuntimeError

    with store.transaction():
        failing = queued(store._open().writer, Operation(steps))
        answered = queued(store._open().writer, store.enqueue([job], repeated=True))
    assert isinstance(failing.exception(PATIENCE), RuntimeError)
    return answered.result(PATIENCE)[0].created


@pytest.mark.parametrize(
    "submit_again",
    [
        again,
        again_unknowing,
        again_in_a_transaction,
        again_where_something_is_undone,
        again_beside_one_that_fails,
    ],
)
def test_who_repeats_a_submission_hears_of_it_when_it_is_on_the_disk(
    store: SqliteStore, disk: Disk, submit_again: Callable[[SqliteStore, Draft], bool]
) -> None:
    """Another process, while the first one syncs. It writes nothing that SQLite would sync."""
    seen: list[tuple[bool, bool]] = []
    repeated = draft()

    def meanwhile() -> None:
        disk.meanwhile = lambda: None
        created = submit_again(other, repeated)
        seen.append((created, repeated.id in disk.states()))

    with closing(SqliteStore(store.path)) as other:
        other.run(other.enqueue([draft()]))
        disk.meanwhile = meanwhile
        store.run(store.enqueue([repeated]))
    assert seen == [(False, True)]


def test_after_a_submission_others_are_waited_for_as_before(store: SqliteStore) -> None:
    store.run(store.enqueue(Alike(draft(), [new_id().bytes], ["1"])))
    patience = store._open().writer._transactions._patience
    with closing(connect(store.path)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("BEGIN IMMEDIATE")
        waiting = threads.submit(store.run, store.pause_queue("mail"))
        until(lambda: patience._begun)
        assert not waiting.done()
        other.execute("ROLLBACK")
        waiting.result(PATIENCE)


def test_who_was_interrupted_and_repeats_a_submission_too(
    store: SqliteStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    repeated = draft()
    writer = store._open().writer
    with monkeypatch.context() as patch:
        patch.setattr(syncing, "sync_log", interrupted)
        with pytest.raises(KeyboardInterrupt), writer._queueing:
            # The writer's thread does not sync it in the meantime.
            writer._transactions.run(store.enqueue([repeated]))
    assert repeated.id not in disk.states()
    (answer,) = store.run(store.enqueue([repeated], repeated=True))
    assert not answer.created
    assert repeated.id in disk.states()


@pytest.mark.parametrize("by", ["the store", "SQLite", "SQLite in one statement"])
def test_after_a_sync_that_failed_the_log_begins_anew(
    store: SqliteStore, scene: Scene, disk: Disk, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """What was in it may be on the disk in parts."""

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    lost, writer, claiming = draft(), store._open().writer, claim(scene)
    rest(store)
    if by == "the store":
        with monkeypatch.context() as patch:
            patch.setattr(syncing, "sync_log", broken)
            with pytest.raises(StoreUnavailable, match="may not be on the disk"):
                store.run(store.enqueue([lost]))
    else:
        (answer,) = store.run(store.enqueue([lost]))
        disk.fails = True
        failing: list[Operation[Any]] = [store.pause_queue("mail")]
        if by == "SQLite in one statement":
            failing = [store.enqueue(Alike(draft(), [new_id().bytes], ["1"])) for _ in range(2)]
        with writer._queueing:
            futures: list[Future[Any]] = [Future() for _ in failing]
            writer._queue.extend(zip(failing, futures, strict=True))
            writer._filled.notify()
        for future in futures:
            with pytest.raises(StoreUnavailable, match="IOError"):
                future.result(PATIENCE)
        disk.fails = False
    before = disk.syncs_of_database
    with closing(connect(store.path)) as reader:
        reader.execute("BEGIN")
        assert list(reader.execute("SELECT 1 FROM jobs LIMIT 1"))
        with pytest.raises(StoreUnavailable, match="a sync has failed, and others read"):
            store.run(store.pause_queue("mail"))
        assert writer.try_to_run(claiming) is None
        reader.execute("ROLLBACK")
    (answer,) = store.run(store.enqueue([draft()]))
    assert disk.syncs_of_database > before
    assert {lost.id, answer.job.id} <= disk.states().keys()


def test_a_fork_survives_a_sync_that_fails(
    store: SqliteStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    writer = store._open().writer
    rest(store)
    with monkeypatch.context() as patch:
        patch.setattr(syncing, "sync_log", broken)
        with writer._turn:
            writer._transactions._syncing.is_due = True
            suspending = threading.Thread(target=store.suspend)
            suspending.start()
            until(lambda: writer._suspending)
        suspending.join(PATIENCE)
    store.resume()
    assert writer._thread.is_alive()
    assert queued(writer, store.enqueue([draft()])).result(PATIENCE)


class Interrupting:
    """A connection whose owner is interrupted right before or after it does a thing."""

    def __init__(self, connection: apsw.Connection, before: bool) -> None:
        self._connection = connection
        self._before = before

    def total_changes(self) -> int:
        return self._connection.total_changes()

    def execute(self, text: str) -> None:
        if not self._before:
            self._connection.execute(text)
        raise KeyboardInterrupt


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("later", [Synced.AFTER_ANSWER, Synced.BEFORE_ANSWER])
def test_whoever_is_interrupted_between_two_modes_leaves_no_commit_without_a_sync(
    store: SqliteStore, later: Synced, before: bool
) -> None:
    with closing(connect(store.path)) as connection:
        mode = Syncing(store.path)
        interrupting: Any = Interrupting(connection, before)
        with pytest.raises(KeyboardInterrupt):
            mode.prepare(interrupting, later)
        mode.prepare(connection, Synced.AT_ONCE)
        assert connection.pragma("synchronous") == FULL
        mode.prepare(connection, later)
        assert connection.pragma("synchronous") == NORMAL
        with pytest.raises(KeyboardInterrupt):
            mode.prepare(interrupting, Synced.AT_ONCE)
        mode.prepare(connection, Synced.AT_ONCE)
        assert connection.pragma("synchronous") == FULL
        mode.prepare(connection, later)
        assert mode.is_due
        mode.prepare(connection, Synced.AT_ONCE)
        assert connection.pragma("synchronous") == FULL
        mode.prepare(connection, later)
        mode.let_go()
    with closing(connect(store.path)) as connection:
        mode.prepare(connection, later)
        assert connection.pragma("synchronous") == NORMAL
        mode.let_go()


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

    def meanwhile() -> None:
        with closing(connect(store.path, read_only=True)) as reader:
            seen.append(list(reader.execute("SELECT 1 FROM jobs WHERE state = 'running'")))

    seen: list[Any] = []
    disk.meanwhile = meanwhile
    with store.transaction():
        together = [queued(writer, each) for each in (claiming, other)]
    (job,), _ = (each.result(PATIENCE) for each in together)
    states = disk.states()
    assert (states[job.id], states[new.id]) == ("running", "pending")
    assert not any(seen)


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


def test_what_a_claim_ends_is_on_the_disk_before_others_see_it(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    late = scene.submit(expires_after=timedelta(seconds=1))
    scene.advance(2)
    claims = [claim(scene) for _ in range(2)]
    rest(store)
    disk.meanwhile = lambda: pytest.fail("it was committed before it was synced")
    jobs, _ = run_on_a_loop(store, claims[0])
    assert disk.states()[late.id] == "cancelled"
    assert late.id not in {job.id for job in jobs}
    late = scene.submit(expires_after=timedelta(seconds=1))
    scene.advance(2)
    store.run(claim(scene))
    assert disk.states()[late.id] == "cancelled"


def test_a_claim_of_nothing_needs_no_sync(store: SqliteStore, scene: Scene, disk: Disk) -> None:
    store.run(claim(scene))
    claims = [claim(scene) for _ in range(3)]
    rest(store)
    before = disk.own_syncs
    assert run_on_a_loop(store, claims[0])[0] == []
    assert store.run(claims[1]) == []
    assert queued(store._open().writer, claims[2]).result(PATIENCE) == []
    assert not store._open().writer._is_unsynced
    assert disk.own_syncs == before


def test_what_is_committed_after_a_claim_syncs_it(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    transactions = store._open().writer._transactions
    claiming = claim(scene)
    rest(store)
    before = disk.own_syncs
    with store._open().writer._turn:
        transactions.run(claiming)
        unsynced = [transactions.is_unsynced]
        transactions.run(store.pause_queue("mail"))
        unsynced.append(transactions.is_unsynced)
    assert unsynced == [True, False]
    assert disk.own_syncs == before


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


def test_one_in_vain_beside_another_process_needs_no_sync(
    store: SqliteStore, scene: Scene, disk: Disk
) -> None:
    store.run(claim(scene))
    claiming = claim(scene)
    writer = store._open().writer
    rest(store)
    before = disk.own_syncs
    with closing(connect(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert writer.try_to_run(claiming) is None
        assert not writer._is_unsynced
        other.execute("ROLLBACK")
    assert store.run(claiming) == []
    assert disk.own_syncs == before


def test_an_event_loop_and_another_thread_do_not_wait_for_one_another(
    store: SqliteStore, scene: Scene
) -> None:
    """Whoever comes second leaves it to the writer's thread, which waits for the first."""
    writer = store._open().writer
    claiming = claim(scene)
    rest(store)
    writer._callers.add(0)
    assert writer.try_to_run(claiming) is None
    writer._callers.discard(0)
    writer._loops.add(0)
    with ThreadPoolExecutor(1) as threads:
        submitted = threads.submit(store.run, store.enqueue([draft()]))
        try:
            until(lambda: writer._works)
            assert not submitted.done()
        finally:
            writer._loops.discard(0)
        assert submitted.result(PATIENCE)


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


def test_whoever_is_interrupted_on_an_event_loop_leaves_everything_as_it_was(
    store: SqliteStore, scene: Scene
) -> None:
    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
        raise KeyboardInterrupt

    writer = store._open().writer
    rest(store)
    with pytest.raises(KeyboardInterrupt):
        writer.try_to_run(Operation(steps, early=steps))
    assert writer._transactions._patience.waits
    assert not writer._is_busy
    assert not writer._loops
    assert run_on_a_loop(store, claim(scene))[0]


class Transacting:
    """Another thread, in a transaction for as long as it may be."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.begun, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with self._store.transaction():
            self.begun.set()
            self._ends.wait(PATIENCE)


def test_a_transaction_that_begins_while_an_event_loop_looks_waits_for_its_claim(
    store: SqliteStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the loop would wait for the transaction, for seconds."""
    writer = store._open().writer
    claiming, other = claim(scene), Transacting(store)
    rest(store)
    turn: Any = writer._turn

    class Turn:
        """The writer's lock; whoever asks whether it is held lets the other begin."""

        def locked(self) -> bool:
            held: bool = turn.locked()
            monkeypatch.setattr(writer, "_turn", turn)
            other.start()
            until(lambda: writer._works)
            # In vain.
            assert not other.begun.wait(0.2)
            return held

    monkeypatch.setattr(writer, "_turn", Turn())
    claimed = writer.try_to_run(claiming)
    assert claimed is not None
    assert len(claimed[0]) == 1
    assert other.begun.wait(PATIENCE)
    other.end()


def test_an_event_loop_does_not_begin_when_a_transaction_is_about_to(
    store: SqliteStore, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store._open().writer
    claiming, other = claim(scene), Transacting(store)
    rest(store)
    about_to, go_on = threading.Event(), threading.Event()

    def last_before() -> None:
        about_to.set()
        go_on.wait(PATIENCE)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_tell_all", last_before)
        other.start()
        assert about_to.wait(PATIENCE)
        assert writer.try_to_run(claiming) is None
    go_on.set()
    other.end()


def test_a_claim_on_an_event_loop_fails_with_its_own_error(
    store: SqliteStore, scene: Scene
) -> None:
    def steps() -> Steps[None]:
        yield Statement("INSERT INTO lanes (queue, task, priority) VALUES ('q', 't', 50)")
        yield Statement("SELECT 1 FROM nowhere")

    with pytest.raises(Exception, match="nowhere"):
        asyncio.run(store.arun(Operation(steps, early=steps)))
    with store.transaction() as mine:
        assert mine.execute("SELECT count(*) FROM lanes WHERE queue = 'q'") == [(0,)]
