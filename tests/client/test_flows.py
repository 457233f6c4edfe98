"""Flows as application code builds, submits and follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import psycopg2
import pytest
import sqlalchemy

import duly
from duly import (
    App,
    FlowChange,
    FlowNotSucceeded,
    FlowState,
    InvalidArguments,
    InvalidFlow,
    InvalidOption,
    NodeState,
    State,
    UnknownFlow,
    each,
    group,
)
from duly.model.identifiers import new_id
from tests.support.fleet import until


class Etl:
    """Tasks of a small pipeline."""

    def __init__(self, app: App) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

        @app.task(retries=0)
        def extract(count: int) -> list[int]:
            self._step("extract")
            return list(range(count))

        @app.task(retries=0)
        def double(row: int, factor: int = 2) -> int:
            self._step(f"double {row}")
            return row * factor

        @app.task(retries=0)
        def load(rows: list[int]) -> int:
            self._step("load")
            return sum(rows)

        @app.task(retries=0)
        def tell(what: str = "", total: int | None = None) -> str:
            self._step(f"tell {what}")
            return f"{what} {total}"

        self.extract, self.double, self.load, self.tell = extract, double, load, tell

    def _step(self, what: str) -> None:
        self.ran.append(what)
        if what in self.broken:
            raise ValueError(what)


@pytest.fixture
def etl(app: App) -> Etl:
    """The tasks, on each engine."""
    return Etl(app)


def test_an_etl_flow(app: App, etl: Etl) -> None:
    with app.flow("etl") as flow:
        rows = etl.extract.job(4)
        doubled = etl.double.job(each(rows), factor=3)
        total = etl.load.job(rows=doubled.outputs)
        flow.at_end(etl.tell.job("done", total=total.output))
    assert app.flows.list() == []
    run = flow.submit()
    assert (run.state, run.record.total) == (FlowState.RUNNING, 3)
    app.run_until_idle(timeout=60)
    assert run.wait(timeout=30).state is FlowState.SUCCEEDED
    assert run.job("load").result() == 18
    assert run.job("tell").result() == "done 18"
    views = {view.name: view for view in run.nodes()}
    assert (views["double"].items, views["double"].items_succeeded) == (4, 4)
    assert views["load"].parents == ("double",)
    assert app.flows.get(str(run.id)).record == run.record


def test_links_in_airflow_s_habit(app: App, etl: Etl) -> None:
    with app.flow("links") as flow:
        first = etl.tell.job("first")
        a, b, c = (etl.tell.job(name).named(name) for name in "abc")
        last = etl.tell.job("last").named("last")
        first >> [a, b, c] >> last
        d, e = etl.tell.job("d").named("d"), etl.tell.job("e").named("e")
        group(a, b) >> [d, e]
        duly.chain(d, [etl.tell.job("f").named("f")], etl.tell.job("g").named("g"))
        e << c
    run = flow.submit()
    parents = {view.name: view.parents for view in run.nodes()}
    assert parents == {
        "tell": (),
        "a": ("tell",),
        "b": ("tell",),
        "c": ("tell",),
        "last": ("a", "b", "c"),
        "d": ("a", "b"),
        "e": ("a", "b", "c"),
        "f": ("d",),
        "g": ("f",),
    }
    app.run_until_idle(timeout=60)
    order = [what.removeprefix("tell ") for what in etl.ran]
    assert order[0] == "first"
    assert order.index("last") > max(order.index(name) for name in "abc")
    assert order.index("g") > order.index("f") > order.index("d")
    assert run.refresh().state is FlowState.SUCCEEDED


def test_the_results_of_a_group_are_a_list(app: App, etl: Etl) -> None:
    with app.flow("group") as flow:
        parts = [etl.double.job(number) for number in (1, 2, 3)]
        etl.load.job(rows=parts)  # type: ignore[arg-type]
    run = flow.submit()
    app.run_until_idle(timeout=60)
    assert run.refresh().job("load").result() == 12


def test_each_over_a_list_that_is_known(app: App, etl: Etl) -> None:
    with app.flow("each") as flow:
        etl.load.job(rows=etl.double.job(each([5, 6])).outputs)
    run = flow.submit()
    app.run_until_idle(timeout=60)
    assert run.job("load").result() == 22


def test_a_failure_cancels_the_rest_and_a_retry_runs_the_failed_part(app: App, etl: Etl) -> None:
    etl.broken.add("double 2")
    with app.flow("broken", on_failure="continue") as flow:
        etl.load.job(rows=etl.double.job(each(etl.extract.job(4))).outputs)
        flow.at_end(etl.tell.job("alarm"), when="failed")
    run = flow.submit()
    app.run_until_idle(timeout=60)
    with pytest.raises(FlowNotSucceeded, match="failed"):
        run.wait(timeout=30)
    assert "tell alarm" in etl.ran
    assert run.record.failed == 1
    etl.broken.clear()
    before = len(etl.ran)
    assert run.retry() is FlowChange.DONE
    app.run_until_idle(timeout=60)
    assert run.wait(timeout=30).job("load").result() == 12
    assert etl.ran[before:] == ["double 2", "load"]
    assert {view.name: view.state for view in run.nodes()}["tell"] is NodeState.SKIPPED


def test_a_replayed_node_lets_its_flow_go_on(app: App, etl: Etl) -> None:
    etl.broken.add("extract")
    with app.flow("replayed") as flow:
        etl.load.job(rows=etl.extract.job(3).output)
    run = flow.submit()
    app.run_until_idle(timeout=60)
    assert run.refresh().state is FlowState.FAILED
    etl.broken.clear()
    assert app.replay(run.job("extract").id) == "replayed"
    app.run_until_idle(timeout=60)
    assert run.wait(timeout=30).job("load").result() == 3


def test_a_paused_flow_waits_for_an_operator(app: App, etl: Etl) -> None:
    etl.broken.add("extract")
    with app.flow("paused", on_failure="pause") as flow:
        etl.load.job(rows=etl.extract.job(3).output)
        etl.tell.job("beside")
    run = flow.submit()
    app.run_until_idle(timeout=60)
    assert run.refresh().state is FlowState.PAUSED
    assert run.resume() is FlowChange.DONE
    assert run.refresh().state is FlowState.FAILED


def test_cancelling(app: App, etl: Etl) -> None:
    with app.flow("cancelled") as flow:
        etl.load.job(rows=etl.extract.job(3).output)
    run = flow.submit()
    assert run.cancel("not today") is FlowChange.DONE
    assert (run.refresh().state, run.record.reason) == (FlowState.CANCELLED, "not today")
    assert app.run_until_idle(timeout=60) == 0


def test_submitting_in_a_transaction(app: App, etl: Etl) -> None:
    with app.flow("both") as flow:
        etl.load.job(rows=etl.extract.job(3).output)
    with suppress(KeyError), app.transaction():
        flow.submit()
        raise KeyError
    with pytest.raises(UnknownFlow):
        app.flows.get(flow.id)
    with app.transaction() as connection:
        flow.submit(connection=connection)
    assert app.flows.get(flow.id).state is FlowState.RUNNING
    assert not flow.submit().created


def test_without_blocking(app: App, etl: Etl) -> None:
    async def program() -> int:
        with app.flow("async") as flow:
            etl.load.job(rows=etl.extract.job(3).output)
        run = await flow.asubmit()
        async with app.arunning(scheduler=False):
            await run.await_end(timeout=60)
        assert [each.id for each in await app.flows.alist(name="async")] == [run.id]
        await run.arefresh()
        result: int = await (await run.ajob("load")).aresult()
        return result

    assert asyncio.run(program()) == 3


def test_at_most_so_many_at_once(app: App, etl: Etl) -> None:
    runs = []
    for _ in range(3):
        with app.flow("limited", max_active=1) as flow:
            etl.load.job(rows=etl.extract.job(2).output)
        runs.append(flow.submit())
    assert [run.state for run in runs] == ["running", "queued", "queued"]
    app.run_until_idle(timeout=60)
    assert [run.refresh().state for run in runs] == ["succeeded"] * 3


def test_a_task_that_submits_a_flow_submits_it_once(app: App, etl: Etl) -> None:
    @app.task(retries=2, backoff=0)
    def nightly(count: int) -> str:
        with app.flow("nightly") as flow:
            etl.load.job(rows=etl.extract.job(count).output)
        run = flow.submit()
        if len(created) == 0:
            created.append(run.created)
            raise ValueError("after the submission")
        created.append(run.created)
        return str(run.id)

    created: list[bool] = []
    job = nightly.enqueue(3)
    app.run_until_idle(timeout=60)
    assert created == [True, False]
    (run,) = app.flows.list(name="nightly")
    assert (str(run.id), run.record.parent_id) == (job.refresh().result(), job.id)
    assert run.wait(timeout=30).job("load").result() == 3


def test_a_schedule_submits_a_flow_at_each_tick(app: App, etl: Etl) -> None:
    @app.every(seconds=1)
    def often() -> str:
        with app.flow("often", max_active=1) as flow:
            etl.load.job(rows=etl.extract.job(3).output)
        return str(flow.submit().id)

    with app.running():
        until(lambda: len(app.flows.list(name="often", state="succeeded")) > 1)
    runs = {str(run.id): run for run in app.flows.list(name="often")}
    jobs = [job for job in app.list(task="often") if job.state is State.SUCCEEDED]
    assert len({job.record.scheduled_for for job in jobs}) == len(jobs)
    assert [runs[job.result(timeout=0)].record.parent_id for job in jobs] == [
        job.id for job in jobs
    ]
    assert {run.record.schedule_id for run in runs.values()} == {app.schedules.get("often").id}


@pytest.mark.parametrize("policy", ["cancel", "continue", "pause"])
def test_a_node_is_undone_before_its_flow_moves_on(app: App, etl: Etl, policy: str) -> None:
    undo = etl.tell

    @app.task(retries=0)
    async def saga() -> int:
        ctx = duly.current()
        await ctx.on_failure(undo, "stock is back")
        await ctx.on_failure(undo, "money is back")
        await ctx.step("charge", etl.ran.append, "charge")
        if etl.broken:
            raise ValueError("no parcel")
        return 1

    etl.broken.add("parcel")
    with app.flow("orders", on_failure=policy) as flow:
        etl.tell.job("shipped", total=saga.job().output).named("shipped")
        flow.at_end(etl.tell.job("end").named("end"))
    run = flow.submit()
    app.run_until_idle(timeout=60)
    undone = ["charge", "tell money is back", "tell stock is back"]
    if policy == "pause":
        assert (run.refresh().state, etl.ran) == ("paused", undone)
    else:
        assert (run.refresh().state, etl.ran) == ("failed", [*undone, "tell end"])
    etl.broken.clear()
    etl.ran.clear()
    run.retry()
    app.run_until_idle(timeout=60)
    assert run.refresh().state == "succeeded"
    assert etl.ran == ["charge", "tell shipped", "tell end"]


def test_a_cancelled_flow_ends_when_its_sleeping_node_is_undone(app: App, etl: Etl) -> None:
    @app.task(retries=0)
    async def saga() -> None:
        ctx = duly.current()
        await ctx.on_failure(etl.tell, "money is back")
        await ctx.sleep("30d")

    with app.flow("orders") as flow:
        saga.job() >> etl.tell.job("shipped")
    run = flow.submit()
    app.run_until_idle(timeout=60)
    run.cancel()
    assert run.refresh().state == "cancelling"
    app.run_until_idle(timeout=60)
    assert (run.refresh().state, etl.ran) == ("cancelled", ["tell money is back"])


def test_a_result_of_no_declared_type_is_checked_when_it_arrives(app: App, etl: Etl) -> None:
    @app.task(retries=3)
    def anything() -> Any:
        return "text"

    with app.flow("late") as flow:
        etl.load.job(rows=anything.job().output)
    run = flow.submit()
    app.run_until_idle(timeout=60)
    load = run.job("load")
    assert (load.state, load.record.reason) == (State.DEAD, "invalid arguments")
    assert load.record.error is not None
    assert "argument 'rows': expected `array`, got `str`" in load.record.error.message
    assert run.refresh().state is FlowState.FAILED


@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "sqlalchemy", "asyncpg"])
def test_on_the_caller_s_own_connection(postgres_app: App, postgres_url: str, library: str) -> None:
    etl = Etl(postgres_app)

    def build() -> duly.Flow:
        with postgres_app.flow("carried", max_active=1) as flow:
            scores = etl.double.using(delay=0.01).job(each(etl.extract.job(3)))
            etl.load.job(rows=scores.outputs)
            etl.double.job(each([1, 2])).named("given")
        return flow

    async def with_asyncpg() -> None:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await build().asubmit(connection=connection)
        await connection.close()

    if library == "psycopg":
        with psycopg.connect(postgres_url) as connection:
            build().submit(connection=connection)
    elif library == "psycopg2":
        other = psycopg2.connect(postgres_url)
        build().submit(connection=other)
        other.commit()
        other.close()
    elif library == "sqlalchemy":
        engine = sqlalchemy.create_engine(
            postgres_url.replace("postgresql://", "postgresql+psycopg://")
        )
        with engine.begin() as third:
            build().submit(connection=third)
        engine.dispose()
    else:
        asyncio.run(with_asyncpg())
    (run,) = postgres_app.flows.list()
    with postgres_app.running(scheduler=False):
        assert run.wait(timeout=60).record.succeeded == 7
    assert run.job("load").result() == 6


@contextmanager
def refused(app: App, match: str, name: str = "x") -> Iterator[None]:
    """A block that builds a flow which is refused."""
    with pytest.raises(InvalidFlow, match=match), app.flow(name):
        yield


class TestRefusals:
    """Nothing is stored of what cannot run."""

    @pytest.fixture(autouse=True)
    def _nothing_is_stored(self, sqlite_app: App) -> Any:
        yield
        assert sqlite_app.flows.list() == []
        assert sqlite_app.list() == []

    @pytest.fixture
    def etl(self, sqlite_app: App) -> Etl:
        return Etl(sqlite_app)

    def test_a_cycle(self, sqlite_app: App, etl: Etl) -> None:
        with refused(sqlite_app, "a >> b >> c >> a"):
            a, b, c = (etl.tell.job().named(name) for name in "abc")
            duly.chain(a, b, c, a)

    def test_a_result_of_another_type(self, sqlite_app: App, etl: Etl) -> None:
        wrong: Any = etl.load
        with refused(sqlite_app, r"double >> load: double returns int, argument 'rows' .* is list"):
            wrong.job(rows=etl.double.job(1))

    def test_items_of_another_type_and_what_is_no_list(self, sqlite_app: App, etl: Etl) -> None:
        @sqlite_app.task
        def names() -> list[str]:
            return []

        with refused(sqlite_app, "names >> double: names returns items of str", "x"):
            etl.double.job(each(names.job()))  # type: ignore[arg-type]
        with refused(sqlite_app, r"returns int, .* a list to map over", "x"):
            etl.double.job(each(etl.load.job([1])))  # type: ignore[arg-type]

    def test_a_result_that_may_be_missing(self, sqlite_app: App, etl: Etl) -> None:
        with refused(sqlite_app, r"gets None .* declare argument 'rows' as .*None", "x"):
            etl.load.job(rows=etl.extract.job(1).output).when("all_finished")

    def test_nodes_of_another_flow_or_of_none(self, sqlite_app: App, etl: Etl) -> None:
        outside = etl.tell.job()
        with sqlite_app.flow("one"):
            other = etl.tell.job()
        with refused(sqlite_app, "node of another flow, not of 'two'", "two"):
            other >> etl.tell.job()
        with refused(sqlite_app, "node of no flow, not of 'two'", "two"):
            outside >> etl.tell.job()
        with pytest.raises(InvalidFlow, match="not in a flow"):
            outside >> other
        with pytest.raises(InvalidOption, match="submit the flow"):
            sqlite_app.enqueue_many([other])

    def test_two_nodes_of_one_name(self, sqlite_app: App, etl: Etl) -> None:
        with refused(sqlite_app, "two nodes have the name 'same'", "x"):
            etl.tell.job().named("same")
            etl.tell.job().named("same")

    def test_what_is_no_option(self, sqlite_app: App, etl: Etl) -> None:
        with pytest.raises(InvalidOption, match="on_failure: must be one of 'cancel'"):
            sqlite_app.flow("x", on_failure="explode")
        with pytest.raises(InvalidOption, match="known are queued, running"):
            sqlite_app.flows.list(state="done")
        with pytest.raises(InvalidOption, match="limit"):
            sqlite_app.flows.list(limit=0)
        with pytest.raises(InvalidOption, match="max_active"):
            sqlite_app.flow("x", max_active=0)
        with refused(sqlite_app, "no key of its own"):
            etl.tell.using(key="a").job()
        with pytest.raises(InvalidArguments, match="'rows'"), sqlite_app.flow("x"):
            etl.load.job(rows=[1, "a"])  # type: ignore[list-item]
        with pytest.raises(InvalidOption, match="when: must be one of"), sqlite_app.flow("x"):
            etl.tell.job().when("sometimes")
        with refused(sqlite_app, "mixes nodes"):
            etl.load.job(rows=[1, etl.double.job(1)])  # type: ignore[list-item]
        with refused(sqlite_app, "is not a node"):
            etl.tell.job() >> 5  # type: ignore[type-var]

    def test_an_unknown_flow(self, sqlite_app: App) -> None:
        with pytest.raises(UnknownFlow):
            sqlite_app.flows.get(new_id())
