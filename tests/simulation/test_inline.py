"""Plain unit tests: what was enqueued, and running it at once."""

from __future__ import annotations

import pytest

import duly
from duly.testing import Simulation
from tests.simulation.shop import Shop, make_shop


@pytest.fixture
def shop() -> Shop:
    return make_shop()


@pytest.fixture
def duly_app(shop: Shop) -> duly.App:
    return shop.app


def test_inline_runs_before_the_submission_returns(sim: Simulation, shop: Shop) -> None:
    with sim.inline():
        shop.app.enqueue("send_email", to="ada")
        assert shop.outbox == ["Hello to ada"]
        with shop.app.transaction():
            shop.app.enqueue("send_email", to="bob")
            assert len(shop.outbox) == 1
        assert len(shop.outbox) == 2
    shop.app.enqueue("send_email", to="eve")
    assert len(shop.outbox) == 2


def test_inline_raises_failures_unless_told_not_to(sim: Simulation, shop: Shop) -> None:
    with sim.inline(), pytest.raises(duly.JobFailed, match="no such address"):
        shop.app.enqueue("send_email", to="nobody")
    with sim.inline(raises=False):
        job = shop.app.enqueue("send_email", to="nobody")
    assert job.refresh().status is duly.Status.RETRYING


def test_what_was_enqueued_is_found_by_what_is_given(sim: Simulation, shop: Shop) -> None:
    app = shop.app
    app.enqueue("send_email", to="ada", subject="Welcome")
    later = app.named("send_email").using(delay="1d").enqueue(to="bob")
    assert sim.assert_enqueued("send_email", "ada", subject="Welcome").queue == "mail"
    assert sim.assert_enqueued("send_email").id == later.id
    assert len(sim.enqueued("send_email", subject="Hello")) == 1
    sim.assert_not_enqueued("fulfil")
    sim.assert_not_enqueued("send_email", to="eve")
    sim.run()
    assert sim.assert_enqueued("send_email", to="ada").state is duly.State.SUCCEEDED


def test_what_was_not_enqueued_is_told_beside_what_was(sim: Simulation, shop: Shop) -> None:
    with pytest.raises(AssertionError) as nothing:
        sim.assert_enqueued("fulfil", 7)
    assert str(nothing.value).splitlines() == [
        "fulfil(order=7) was not enqueued.",
        "Nothing at all was enqueued.",
    ]
    shop.app.named("send_email").using(delay="1d").enqueue(to="ada")
    shop.app.enqueue("fulfil", order=1)
    with pytest.raises(AssertionError) as another:
        sim.assert_enqueued("send_email", to="bob")
    assert str(another.value).splitlines() == [
        "send_email(to='bob') was not enqueued.",
        "What was enqueued of send_email:",
        "  send_email(to='ada')  scheduled, queue mail, due 2030-01-02 00:00:00",
        "Other tasks that were enqueued: fulfil (1)",
    ]
    with pytest.raises(AssertionError, match=r"fulfil.* was enqueued:"):
        sim.assert_not_enqueued("fulfil")


def test_arguments_that_the_task_does_not_have_are_refused(sim: Simulation) -> None:
    with pytest.raises(duly.InvalidArguments, match="send_email"):
        sim.assert_enqueued("send_email", whom="ada")
    with pytest.raises(duly.InvalidOption, match="expected a task, or the name of one"):
        sim.assert_enqueued(len)  # type: ignore[arg-type]
