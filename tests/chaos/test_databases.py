"""Databases that go away under load, and come back."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import psycopg
import pytest

from duly import Job, State, StoreUnavailable
from tests.chaos.conftest import MakeFleet, Storm
from tests.chaos.inside import FULL, INSIDE
from tests.support.fleet import LONG, Fleet, long_only, until
from tests.support.postgres import Server, fresh_database, own_server

TASKS = """
@app.task(retries=3, backoff=0.05)
def work(number: int) -> int:
    ran("begins")
    time.sleep(0.003)
    ran("ends")
    return number


@app.task(retries=0)
async def tick() -> None:
    while True:
        ran("tick")
        await asyncio.sleep(0.05)


@app.task(retries=0, isolate=True)
def tick_alone() -> None:
    while True:
        ran("tick")
        time.sleep(0.05)


@app.task(retries=0)
def large() -> str:
    ran("begins")
    hold()
    ran("ends")
    return "x" * 200_000


def slow_step():
    ran("step")
    hold()


@app.task(retries=0)
def blocking_steps() -> None:
    duly.current_blocking().step("slow", slow_step)


@app.task(retries=0)
async def async_steps() -> None:
    await duly.current().step("slow", slow_step)


@app.task(retries=0, isolate=True)
def isolated_steps() -> None:
    duly.current_blocking().step("slow", slow_step)


@app.task(retries=0)
def long() -> str:
    ran("long")
    hold()
    return "done"
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL server that may be stopped and killed."""
    with own_server({"max_connections": "100", "fsync": "off"}) as server:
        yield server


def _check(site: Fleet, jobs: Sequence[Job[int]]) -> None:
    records = site.settled(jobs, 300)
    assert Counter(record.state for record in records) == {State.SUCCEEDED: len(jobs)}
    assert {record.crashes for record in records} == {0}
    ends = Counter(effect.key for effect in site.effects("ends"))
    assert set(ends) == {str(job.id) for job in jobs}
    print(f"{len(jobs)} jobs, {sum(ends.values()) - len(jobs)} effects repeated")


def test_the_server_is_restarted_again_and_again(
    fleet: MakeFleet, server: Server, storm: Storm
) -> None:
    with fresh_database(server.url) as url:
        site = fleet(url, TASKS, lease=5.0)
        worker = site.start("--processes", 2)
        jobs: list[Job[int]] = []
        deadline = time.monotonic() + storm.seconds
        restarts = 0
        while time.monotonic() < deadline:
            jobs += site.app.enqueue_many(site.tasks.work.job(n) for n in range(storm.jobs // 4))
            time.sleep(storm.chance.uniform(0.5, 2.0))
            server.stop(signal.SIGQUIT)
            time.sleep(storm.chance.uniform(0.0, 0.5))
            server.start()
            restarts += 1
        print(f"{restarts} restarts")
        back = time.monotonic()
        more = site.tasks.work.enqueue(0)
        site.finished(more)
        print(f"work went on {time.monotonic() - back:.1f} s after the last")
        _check(site, [*jobs, more])
        assert worker.terminate() == 0
        site.app.close()


def test_connections_are_cut(fleet: MakeFleet, postgres_url: str, storm: Storm) -> None:
    site = fleet(postgres_url, TASKS, lease=5.0)
    worker = site.start("--processes", 2)
    jobs: list[Job[int]] = []
    deadline = time.monotonic() + storm.seconds
    cut = 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            time.sleep(storm.chance.uniform(0.05, 0.4))
            jobs += site.app.enqueue_many(site.tasks.work.job(n) for n in range(storm.jobs // 8))
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                " AND random() < 0.5"
            ).fetchall()
            cut += len(rows)
    print(f"{cut} connections cut")
    _check(site, jobs)
    assert worker.terminate() == 0


def test_an_outage_of_three_leases(fleet: MakeFleet, server: Server) -> None:
    """Work resumes within seconds of the return, and nobody is reaped in a mass."""
    lease = 5.0
    with fresh_database(server.url) as url:
        site = fleet(url, TASKS, lease=lease)
        workers = [site.start("--processes", 2) for _ in range(2)]
        before = {each.id for each in site.registered()}
        server.stop(signal.SIGQUIT)
        time.sleep(lease * 3)
        server.start()
        back = time.monotonic()
        job = site.tasks.work.enqueue(1)
        site.finished(job)
        resumed = time.monotonic() - back
        print(f"resumed {resumed:.1f} s after the server's return")
        assert resumed < (15 if LONG else 60)
        until(lambda: len(site.registered()) == len(before))
        for worker in workers:
            assert "lease ended" not in worker.log, worker.log
            assert worker.terminate() == 0
        site.app.close()


@pytest.mark.parametrize("task", ["tick", "tick_alone"])
def test_work_ends_with_the_lease(fleet: MakeFleet, server: Server, task: str) -> None:
    """A worker that cannot renew stops its jobs by its own clock: others may have them."""
    lease = 5.0
    with fresh_database(server.url) as url:
        site = fleet(url, TASKS, lease=lease)
        site.start()
        job = getattr(site.tasks, task).enqueue()
        site.started(job, word="tick")
        server.stop(signal.SIGQUIT)
        stopped = time.monotonic()
        time.sleep(lease / 3)
        during = len(site.effects("tick"))
        until(lambda: len(site.effects("tick")) > during, why="it works on in the meantime")
        quiet = time.monotonic() + lease * 3
        last, last_at = 0, stopped
        while time.monotonic() < quiet:
            now = len(site.effects("tick"))
            if now > last:
                last, last_at = now, time.monotonic()
            time.sleep(0.05)
        print(f"the job went on for {last_at - stopped:.1f} s with a lease of {lease:g} s")
        assert last_at - stopped < lease * (1.4 if LONG else 2)
        site.app.close()
        server.start()


def test_a_short_outage_costs_no_job_its_attempt(fleet: MakeFleet, server: Server) -> None:
    """Outcomes that could not be reported are reported then, if the lease still holds."""
    with fresh_database(server.url) as url:
        site = fleet(url, TASKS, lease=30.0)
        worker = site.start()
        job = site.tasks.long.enqueue()
        site.started(job, word="long")
        server.stop(signal.SIGQUIT)
        site.go()
        time.sleep(3)
        server.start()
        assert job.result(timeout=60) == "done"
        assert site.outcomes(job) == ["succeeded"]
        assert len(site.effects("long")) == 1
        assert worker.terminate() == 0
        site.app.close()


# As after a failover that leaves an old primary behind as a standby, but for all at one moment.
READ_ONLY = """
CREATE FUNCTION duly.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'read-only' USING ERRCODE = 'read_only_sql_transaction'; END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON duly.jobs EXECUTE FUNCTION duly.refuse()
"""


def test_outcomes_and_steps_wait_while_the_database_takes_no_writes(
    fleet: MakeFleet, postgres_url: str
) -> None:
    site = fleet(postgres_url, TASKS, lease=60.0)
    worker = site.start("--concurrency", 8)
    tasks = site.tasks
    jobs = [tasks.large.enqueue() for _ in range(4)]
    stepped = [
        each.enqueue() for each in (tasks.blocking_steps, tasks.async_steps, tasks.isolated_steps)
    ]
    for job in jobs:
        site.started(job, word="begins")
    until(lambda: len(site.effects("step")) == len(stepped))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(READ_ONLY)
        site.go()
        worker.said("outcomes wait:")
        until(lambda: worker.log.count("a step waits:") == len(stepped))
        with pytest.raises(StoreUnavailable, match="takes no writes for now") as refused:
            tasks.large.enqueue()
        assert not refused.value.unknown
        assert {job.refresh().state for job in [*jobs, *stepped]} == {State.RUNNING}
        connection.execute("DROP TRIGGER refuse ON duly.jobs")
    _check(site, jobs)
    assert {each.state for each in site.settled(stepped)} == {State.SUCCEEDED}
    assert len(site.effects("step")) == len(stepped)
    assert worker.terminate() == 0


def test_a_foreign_writer_locks_the_file(fleet: MakeFleet, tmp_path: Path, storm: Storm) -> None:
    path = tmp_path / "jobs.db"
    site = fleet(f"sqlite:///{path}", TASKS)
    worker = site.start("--processes", 2)
    jobs = site.app.enqueue_many(site.tasks.work.job(n) for n in range(storm.jobs))
    foreign = apsw.Connection(str(path))
    foreign.set_busy_timeout(60_000)
    for _ in range(2):
        foreign.execute("BEGIN IMMEDIATE")
        time.sleep(3)
        foreign.execute("ROLLBACK")
        time.sleep(0.2)
    foreign.close()
    _check(site, jobs)
    assert "locked" not in worker.log
    assert worker.terminate() == 0


def test_outcomes_wait_for_room_on_a_full_disk(fleet: MakeFleet, tmp_path: Path) -> None:
    site = fleet(f"sqlite:///{tmp_path / 'jobs.db'}", INSIDE + TASKS)
    worker = site.start("--concurrency", 4)
    jobs = [site.tasks.large.enqueue() for _ in range(4)]
    for job in jobs:
        site.started(job, word="begins")
    (site.folder / FULL).touch()
    site.go()
    worker.said("outcomes wait: no room left")
    assert [job.refresh().state for job in jobs] == [State.RUNNING] * len(jobs)
    later = site.tasks.large.enqueue()
    (site.folder / FULL).unlink()
    _check(site, [*jobs, later])
    assert [site.outcomes(job) for job in jobs] == [["succeeded"]] * len(jobs)
    assert worker.terminate() == 0


@long_only
def test_an_idle_worker_hardly_asks(fleet: MakeFleet, server: Server) -> None:
    with fresh_database(server.url) as url, psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("SELECT count(*) FROM pg_stat_statements")
        except psycopg.Error as error:
            pytest.skip(f"no pg_stat_statements here: {error}")
        site = fleet(url, TASKS)
        site.start("--processes", 2)
        time.sleep(12)
        connection.execute("SELECT pg_stat_statements_reset()")
        time.sleep(20)
        rows = connection.execute(
            "SELECT calls, left(query, 60) FROM pg_stat_statements"
            " JOIN pg_database ON oid = dbid WHERE datname = current_database()"
            " AND query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC"
        ).fetchall()
        total = sum(row[0] for row in rows)
        print(f"{total} statements in 20 s by a worker with two processes")
        for calls, query in rows[:12]:
            print(f"  {calls:4d} {' '.join(query.split())}")
        assert total < 200
