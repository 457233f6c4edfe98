"""A worker that dies at every point of a job."""

from __future__ import annotations

import pytest

import duly
from duly.client.task import Task
from duly.testing import Simulation
from tests.simulation.shop import Shop, make_shop


@pytest.fixture
def shop() -> Shop:
    return make_shop()


@pytest.fixture
def duly_app(shop: Shop) -> duly.App:
    return shop.app


def fulfilment(shop: Shop, name: str) -> Task[[int], str]:
    definition = shop.app.registry.require(name)
    return Task(definition, shop.app.client)


@pytest.mark.parametrize("name", ["fulfil", "fulfil_in_a_thread"])
def test_a_step_doubles_between_its_effect_and_its_record(
    sim: Simulation, shop: Shop, name: str
) -> None:
    report = sim.crash_everywhere(fulfilment(shop, name), 7)
    assert report.doubled == {
        "step charge(7) ran": ["before step charge(7) was recorded"],
        "step ship(7) ran": ["before step ship(7) was recorded"],
    }
    assert report.missing == {}
    assert {run.state for run in report.runs} == {duly.State.SUCCEEDED}
    assert len(report.runs) == 12
    with pytest.raises(AssertionError) as failure:
        report.assert_effects_once()
    told = str(failure.value)
    assert "x before step charge(7) was recorded: step charge(7) ran 2 times instead of 1" in told
    assert "idempotency_key" in told
    report.assert_effects_once(allowed=["charge", "ship"])


def test_effects_of_the_user_s_own_are_counted_instead(sim: Simulation, shop: Shop) -> None:
    paid: set[str] = set()

    def pay() -> str:
        key = duly.current().idempotency_key
        if key not in paid:
            paid.add(key)
            shop.outbox.append("paid")
        return key

    @shop.app.task
    def careful() -> None:
        duly.current_blocking().step("pay", pay)

    observed = sim.observe(shop.outbox, before_each=paid.clear)
    report = observed.crash_everywhere(careful)
    assert report.effects == {"paid": 1}
    report.assert_effects_once()


def test_transactional_steps_and_tasks_do_not_double(sim: Simulation, shop: Shop) -> None:
    def write() -> None:
        connection = duly.current().connection
        connection.execute("CREATE TABLE IF NOT EXISTS effects (number INTEGER)")
        connection.execute("INSERT INTO effects VALUES (1)")

    @shop.app.task
    def stepped() -> None:
        duly.current_blocking().using(transactional=True).step("write", write)

    @shop.app.task(transactional=True)
    def whole() -> None:
        write()

    for task in (stepped, whole):
        report = sim.crash_everywhere(task)
        assert len(report.runs) >= 3
        report.assert_effects_once()


def test_what_a_task_without_steps_does_is_one_effect(sim: Simulation, shop: Shop) -> None:
    email = fulfilment(shop, "send_email")

    @shop.app.task
    def newsletter() -> None:
        email.enqueue("ada")  # type: ignore[arg-type]

    report = sim.crash_everywhere(newsletter)
    assert "a job of send_email was submitted" in report.doubled
    assert "the code of newsletter ran" in report.doubled

    @shop.app.task(delivery="at_most_once")
    def at_most_once() -> None: ...

    report = sim.crash_everywhere(at_most_once)
    assert report.doubled == {}
    assert duly.State.DEAD in {run.state for run in report.runs}
    assert "[the job is dead]" in str(report)


def test_a_script_plays_the_world_outside(sim: Simulation, shop: Shop) -> None:
    @shop.app.task
    async def waits() -> str:
        ctx = duly.current()
        return str((await ctx.wait_for("order.paid", key="7")).payload["order"])

    def script(job: duly.Job[str]) -> None:
        sim.advance("1h")
        shop.app.emit("order.paid", {"order": 7}, key="7", id="payment-7")
        sim.advance("1h")
        assert job.result() == "7"

    def only_says_what_happens(job: duly.Job[str]) -> None:
        shop.app.emit("order.paid", {"order": 7}, key="7", id="payment-7")

    for each in (script, only_says_what_happens):
        report = sim.observe(shop.outbox, script=each).crash_everywhere(waits)
        assert len(report.runs) > 5
        assert {run.state for run in report.runs} == {duly.State.SUCCEEDED}


def test_the_simulation_goes_on_where_it_was(sim: Simulation, shop: Shop) -> None:
    job = shop.app.enqueue("fulfil", order=1)
    sim.run()
    sim.crash_everywhere(fulfilment(shop, "fulfil"), 2)
    assert [each.id for each in shop.app.list()] == [job.id]
    sim.finish(job)
    assert job.result() == "receipt 1, parcel 1"
