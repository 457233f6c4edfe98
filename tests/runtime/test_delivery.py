"""At most once, and exactly once in a transaction."""

from __future__ import annotations

import random
import signal
import threading
import time

import psycopg
import pytest

import duly
from duly import App, Delivery, JobFailed, Outcome, State
from duly.model.identifiers import new_id
from duly.model.job import Draft
from duly.model.query import Demand
from duly.runtime.machine import describe
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import Fleet, repeated, send, until

TASKS = """
@app.task(delivery="at_most_once", retries=3, backoff=0.05)
def once() -> str:
    ran()
    hold()
    return "done"


@app.task(delivery="at_most_once", isolate=True)
def once_isolated() -> None:
    ran()
    os._exit(3)


@app.task(delivery="at_most_once", isolate=True, timeout=1)
def once_too_long() -> None:
    ran()
    time.sleep(60)


@app.task(delivery="at_most_once", retries=2, backoff=0.05)
def once_raises() -> None:
    ran()
    raise OSError("reported")


@app.task(transactional=True, retries=20, backoff=0.05)
def pay(number: int, fail: bool) -> int:
    connection = duly.current().connection
    if isinstance(connection, object) and "psycopg" in type(connection).__module__:
        connection.execute("INSERT INTO payments (number) VALUES (%s)", (number,))
    else:
        connection.execute("INSERT INTO payments (number) VALUES (?)", (number,))
    time.sleep(0.002)
    if fail:
        raise duly.Cancel("not enough money")
    return number


@app.task(transactional=True, retries=0)
def commits_itself() -> None:
    connection = duly.current().connection
    connection.execute("INSERT INTO payments (number) VALUES (1000001)")
    if hasattr(connection, "commit"):
        connection.commit()
    else:
        connection.execute("COMMIT")


@app.task(transactional=True)
def stops_half_way() -> None:
    connection = duly.current().connection
    connection.execute("INSERT INTO payments (number) VALUES (1000002)")
    ran()
    duly.current().wait_cancelled(30)
"""


def _payments(site: Fleet) -> list[int]:
    with site.app.transaction() as connection:
        return [row[0] for row in connection.execute("SELECT number FROM payments")]


def _with_payments(site: Fleet) -> Fleet:
    with site.app.transaction() as connection:
        connection.execute("CREATE TABLE payments (number bigint)")
    return site


def test_what_started_and_did_not_report_is_lost_and_never_run_again(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start()
    job = site.tasks.once.enqueue()
    site.started(job)
    worker.children()[0].kill()
    record = site.finished(job)
    assert (record.state, record.reason) == (State.DEAD, "lost")
    assert site.outcomes(job) == ["lost"]
    crashed = site.tasks.once_isolated.enqueue()
    late = site.tasks.once_too_long.enqueue()
    for each in (crashed, late):
        record = site.finished(each)
        assert (record.state, record.reason) == (State.DEAD, "lost")
    drained = site.tasks.once.enqueue()
    site.started(drained)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.terminate() == 0
    record = site.finished(drained)
    assert (record.state, record.reason) == (State.DEAD, "lost")
    site.go()
    second = site.start()
    raised = site.tasks.once_raises.enqueue()
    assert site.finished(raised).state is State.DEAD
    assert len(site.attempts(raised)) == 3, "a failure was reported, and is retried"
    good = site.tasks.once.enqueue()
    assert good.result(timeout=60) == "done"
    again = repeated(site.effects("ran"))
    assert set(again) == {str(raised.id)}
    assert second.terminate() == 0


def test_what_was_claimed_and_not_started_is_run(app: App) -> None:
    """Its worker died between the claim and the start."""

    @app.task(delivery="at_most_once")
    def once() -> str:
        return "done"

    store = app.store
    gone = describe(new_id(), 2**22 - 3, (), ("once",), "test")
    store.run(store.register_worker(gone, duly.policy.duration.parse("5m", "lease")))
    job = once.enqueue()
    demand = Demand(worker=gone.id, queues=(), tasks=("once",), limit=1)
    (claimed,) = store.run(store.claim(demand))
    assert claimed.delivery is Delivery.AT_MOST_ONCE
    store.run(store.reap([gone.id], "killed", expired_only=False))
    app.run_until_idle(timeout=60)
    assert job.result(timeout=5) == "done"
    assert [attempt.outcome for attempt in job.attempts()] == [Outcome.SUCCEEDED]


def test_effects_happen_exactly_once_through_any_crash(fleet: MakeFleet) -> None:
    site = _with_payments(fleet(TASKS))
    worker = site.start("--processes", 2, "--concurrency", 4)
    jobs = site.app.enqueue_many(
        site.tasks.pay.job(number, number % 10 == 0) for number in range(300)
    )
    chance = random.Random(7)
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 0.8))
        children = worker.children()
        if children:
            send(chance.choice(children).pid, signal.SIGKILL)
    records = site.settled(jobs, 120)
    expected = [number for number in range(300) if number % 10]
    assert sorted(_payments(site)) == expected
    states = [record.state for record in records]
    assert states == [State.SUCCEEDED if number % 10 else State.CANCELLED for number in range(300)]


def test_a_transaction_is_the_workers_to_end(fleet: MakeFleet) -> None:
    site = _with_payments(fleet(TASKS))
    site.start()
    job = site.tasks.commits_itself.enqueue()
    record = site.finished(job)
    assert record.state is State.DEAD
    assert _payments(site) == []


def test_what_a_cancelled_transaction_wrote_is_rolled_back(fleet: MakeFleet) -> None:
    site = _with_payments(fleet(TASKS))
    site.start()
    job = site.tasks.stops_half_way.enqueue()
    site.started(job)
    # On SQLite the task holds the only writer: the request is recorded when its time is up, and
    # what it wrote is rolled back.
    job.cancel()
    assert site.finished(job).state is State.CANCELLED
    assert _payments(site) == []


def test_a_connection_that_is_cut_around_the_commit(postgres_url: str) -> None:
    """Whether the commit landed is found out by the token: once is once."""
    app = App(postgres_url, lease=5)
    app.migrate()
    with app.transaction() as connection:
        connection.execute("CREATE TABLE payments (number bigint)")

    @app.task(transactional=True, retries=50, backoff=0.02, jitter=False)
    def pay(number: int) -> None:
        duly.current().connection.execute("INSERT INTO payments VALUES (%s)", (number,))

    stop = threading.Event()

    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            while not stop.wait(0.05):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    " AND query ~ 'payments|COMMIT|settlement'"
                )

    cutter = threading.Thread(target=cut)
    with app.running(workers=4):
        jobs = app.enqueue_many(pay.job(number) for number in range(200))
        cutter.start()
        time.sleep(4)
        stop.set()
        cutter.join()
        for job in jobs:
            job.result(timeout=60)
    with app.transaction() as connection:
        rows = connection.execute("SELECT number FROM payments ORDER BY number").fetchall()
    assert [row[0] for row in rows] == list(range(200))
    app.close()


CUT_AT_COMMIT = """
CREATE TABLE payments (number bigint);
CREATE SEQUENCE commits;
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION cut();
"""


def test_a_connection_that_breaks_at_the_commit_is_not_the_tasks_fault(postgres_url: str) -> None:
    app = App(postgres_url, lease=5)
    app.migrate()
    with app.transaction() as connection:
        connection.execute(CUT_AT_COMMIT)

    @app.task(transactional=True, retries=0)
    def pay() -> str:
        duly.current().connection.execute("INSERT INTO payments VALUES (1)")
        return "paid"

    job = pay.enqueue()
    with app.running(workers=1):
        assert job.result(timeout=60) == "paid"
    assert [each.outcome.value for each in job.attempts()] == ["released", "succeeded"]
    with app.transaction() as connection:
        assert connection.execute("SELECT number FROM payments").fetchall() == [(1,)]
    app.close()


def test_the_servers_limit_for_idle_transactions_is_not_that_of_tasks(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET"
            " idle_in_transaction_session_timeout = 300', current_database()); END $$"
        )
    app = App(postgres_url)
    app.migrate()

    @app.task(transactional=True, retries=0)
    def thinks() -> str:
        time.sleep(1.5)
        connection = duly.current().connection
        (limit,) = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        return str(limit)

    jobs = [thinks.enqueue(), thinks.using(timeout=60).enqueue()]
    with app.running():
        assert [job.result(timeout=60) for job in jobs] == ["1h", "2min"]
    app.close()


def test_transactions_that_last_do_not_hold_up_other_jobs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are kept back for the worker itself; who gets none is not charged."""
    monkeypatch.setattr("duly.store.postgres.store.CONNECT_TIMEOUT", 0.5)
    app = App(postgres_url, pool_size=4)
    app.migrate()
    held, go = threading.Semaphore(0), threading.Event()

    @app.task(transactional=True, retries=0)
    def holds() -> str:
        held.release()
        go.wait(60)
        return "held"

    @app.task
    def quick() -> str:
        return "quick"

    jobs = [holds.enqueue() for _ in range(4)]
    with app.running(workers=6):
        for _ in range(2):
            assert held.acquire(timeout=30)
        assert quick.enqueue().result(timeout=30) == "quick"
        until(lambda: any(job.attempts() for job in jobs))
        go.set()
        assert {job.result(timeout=60) for job in jobs} == {"held"}
    outcomes = {each.outcome.value for job in jobs for each in job.attempts()}
    assert outcomes == {"released", "succeeded"}
    app.close()


def test_a_superseded_transaction_writes_nothing(app: App) -> None:
    """Its job was taken back while its code ran: the fence comes last, and refuses."""
    with app.transaction() as connection:
        connection.execute("CREATE TABLE payments (number bigint)")
    started, go = threading.Event(), threading.Event()

    @app.task(transactional=True, retries=0)
    def pay() -> str:
        if not started.is_set():
            started.set()
            go.wait(4)
        duly.current().connection.execute("INSERT INTO payments (number) VALUES (1)")
        return "done"

    store = app.store
    job = pay.enqueue()
    app.start(workers=1)
    assert started.wait(30)
    if app.config.url.startswith("postgresql"):
        (worker,) = store.run(store.workers())
        store.run(store.reap([worker.id], "taken for dead", expired_only=False))
    go.set()
    assert job.result(timeout=60) == "done"
    app.stop()
    with app.transaction() as connection:
        rows = list(connection.execute("SELECT number FROM payments"))
    assert len(rows) == 1


def test_a_job_by_name_takes_the_delivery_it_was_submitted_with(app: App) -> None:
    @app.task(retries=0)
    def plain() -> None:
        raise ValueError

    draft = Draft(id=new_id(), task="plain", arguments="{}", delivery=Delivery.AT_MOST_ONCE)
    app.store.run(app.store.enqueue([draft]))
    app.run_until_idle()
    with pytest.raises(JobFailed):
        app.get(draft.id).result(timeout=5)
