"""A user's app in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import duly
from duly.testing import Simulation, SimulationError
from duly.testing.simulation import stage
from tests.simulation.shop import Shop, make_shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    yield make_shop()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def duly_app(shop: Shop) -> duly.App:
    return shop.app


def test_a_month_of_a_schedule(sim: Simulation, shop: Shop) -> None:
    ran = sim.advance("31d")
    times = [run.scheduled_for for run in ran.of("digest")]
    # January 2030 has 23 working days; nine in Berlin is eight in UTC then.
    assert len(times) == 23
    assert all(each is not None and each.hour == 8 and each.weekday() < 5 for each in times)
    assert shop.outbox == ["digest"] * 23
    assert sim.now == datetime(2030, 2, 1, tzinfo=UTC)


def test_retries_wait_for_their_backoff(sim: Simulation, shop: Shop) -> None:
    job = shop.app.enqueue("send_email", to="nobody")
    assert len(sim.run()) == 1
    ran = sim.advance("1d").of("send_email")
    assert [run.at - sim.history[0].at for run in ran] == [timedelta(hours=1), timedelta(hours=2)]
    assert [run.attempt for run in ran.failed] == [2, 3]
    assert job.refresh().state is duly.State.DEAD
    assert "attempt 3  failed: ValueError: no such address" in repr(ran)


@pytest.mark.parametrize("task", ["fulfil", "fulfil_in_a_thread"])
def test_sleeping_steps(sim: Simulation, shop: Shop, task: str) -> None:
    job = shop.app.enqueue(task, order=7)
    assert [run.outcome for run in sim.run()] == [duly.Outcome.SUSPENDED]
    assert job.refresh().state is duly.State.WAITING
    sim.advance("47h59m")
    assert job.refresh().state is duly.State.WAITING
    sim.advance("1m")
    assert job.result() == "receipt 7, parcel 7"
    assert [each for each in shop.outbox if each != "digest"] == ["charge 7", "ship 7"]


def test_finish_lets_pass_what_it_takes(sim: Simulation, shop: Shop) -> None:
    job = shop.app.enqueue("fulfil", order=7)
    sim.finish(job)
    assert job.result() == "receipt 7, parcel 7"
    assert sim.now == datetime(2030, 1, 3, tzinfo=UTC)


def test_events_start_jobs(sim: Simulation, shop: Shop) -> None:
    shop.app.emit("order.paid", {"order": 3})
    sim.run()
    assert shop.outbox == ["thanks for 3"]


def test_transactions_and_transactional_tasks(sim: Simulation, shop: Shop) -> None:
    app = shop.app

    @app.task(transactional=True)
    def count() -> None:
        duly.current().connection.execute("INSERT INTO counts VALUES (1)")

    with app.transaction() as connection:
        connection.execute("CREATE TABLE counts (number INTEGER)")
        count.enqueue()
    with pytest.raises(duly.InvalidArguments), app.transaction():
        app.enqueue_many([count.job(), count.job(1)])  # type: ignore[call-arg]
    assert [run.outcome for run in sim.run().of(count)] == [duly.Outcome.SUCCEEDED]
    with app.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM counts") == [(1,)]


def test_isolated_and_at_most_once_tasks_run_here_too(sim: Simulation, shop: Shop) -> None:
    process: list[int] = []

    @shop.app.task(isolate=True)
    def heavy() -> None:
        process.append(threading.get_ident())

    @shop.app.task(delivery="at_most_once")
    async def once() -> None:
        process.append(threading.get_ident())

    heavy.enqueue()
    once.enqueue()
    assert not sim.run().failed
    assert process == [threading.get_ident()] * 2


def test_blocking_tasks_may_have_event_loops_and_threads(sim: Simulation, shop: Shop) -> None:
    @shop.app.task
    def own_loop() -> str:
        return asyncio.run(asyncio.sleep(0, "looped"))

    @shop.app.task
    async def threads() -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            real = asyncio.get_running_loop().run_in_executor(pool, lambda: "pool")
            return [await real, await asyncio.to_thread(lambda: "thread")]

    first, second = own_loop.enqueue(), threads.enqueue()
    sim.run()
    assert first.result() == "looped"
    assert second.result() == ["pool", "thread"]


def test_it_can_be_driven_from_a_coroutine(sim: Simulation, shop: Shop) -> None:
    async def test() -> str:
        job = await shop.app.aenqueue("fulfil", order=1)
        sim.advance("2d")
        return str(await job.aresult())

    assert asyncio.run(test()) == "receipt 1, parcel 1"


def test_time_limits_are_virtual(sim: Simulation, shop: Shop) -> None:
    @shop.app.task(timeout="10s", retries=0)
    async def slow() -> None:
        await asyncio.sleep(40)

    job = slow.enqueue()
    ran = sim.run()
    assert [run.outcome for run in ran] == [duly.Outcome.TIMED_OUT]
    assert job.refresh().state is duly.State.DEAD


def test_a_task_that_never_ends_is_named(
    sim: Simulation, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LONGEST_RUN", 20.0)

    @shop.app.task
    async def hangs() -> None:
        await asyncio.Event().wait()

    hangs.enqueue()
    with pytest.raises(SimulationError, match="still running after an hour of virtual time: hangs"):
        sim.run()


def test_waiting_for_a_result_runs_what_is_due_and_no_more(sim: Simulation, shop: Shop) -> None:
    assert shop.app.enqueue("send_email", to="ada").result() == "sent to ada"
    sleeper = shop.app.enqueue("fulfil", order=1)
    with pytest.raises(SimulationError, match=r"has not ended: .*sleep.* sim\.advance"):
        sleeper.result(timeout=5)


def test_an_app_is_needed() -> None:
    with Simulation() as sim:
        with pytest.raises(SimulationError, match=r"sim\.use\(app\)"):
            sim.run()
        with pytest.raises(duly.InvalidOption, match=r"expected a duly\.App; got str"):
            sim.use("shop:app")  # type: ignore[arg-type]


def test_time_does_not_go_back(sim: Simulation) -> None:
    with pytest.raises(duly.InvalidOption, match="is past"):
        sim.advance_to(datetime(2029, 12, 31, tzinfo=UTC))
    with pytest.raises(duly.InvalidOption, match="negative"):
        sim.advance("-1d")


def test_the_app_gets_its_own_database_back() -> None:
    app = duly.App("sqlite://")

    @app.task
    def work() -> None: ...

    with Simulation(app):
        work.enqueue()
        assert len(app.list()) == 1
    assert app.list() == []
    work.enqueue()
    assert app.run_until_idle() == 1
    app.close()


def test_the_same_seed_has_the_same_jitter(shop: Shop) -> None:
    @shop.app.task(retries=3)
    def fails() -> None:
        raise ValueError

    def times(seed: int) -> list[datetime]:
        with Simulation(shop.app, seed=seed) as sim:
            fails.enqueue()
            return [run.at for run in sim.advance("1h")]

    assert times(1) == times(1) != times(2)
