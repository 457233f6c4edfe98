"""Who is woken by what. A watch looks by itself only now and then, or never."""

from __future__ import annotations

import pytest

from duly.model.identifiers import new_id
from duly.model.settlement import Settlement, bury, release, succeed
from duly.store.operation import Wake
from tests.support.stores import Scene, failure

JOB = new_id()


@pytest.mark.parametrize(
    ("settlement", "wakes"),
    [
        (succeed(JOB, 1, "null"), {Wake.WAITERS}),
        (succeed(JOB, 1, "null", flow_id=JOB), {Wake.WAITERS, Wake.WORKERS}),
        (succeed(JOB, 1, "null", scheduled=True), {Wake.WAITERS, Wake.SCHEDULERS}),
        (bury(JOB, 1, "retries exhausted", failure()), set(Wake)),
        (release(JOB, 1), {Wake.WAITERS, Wake.WORKERS}),
    ],
    ids=["succeeded", "in a flow", "scheduled", "dead", "given back"],
)
def test_those_hear_of_an_end_who_may_have_to_do_with_it(
    scene: Scene, settlement: Settlement, wakes: set[Wake]
) -> None:
    """A job that is dead may have compensations, and its schedule may wait for it."""
    assert scene.store.settle([settlement]).wakes == wakes


def test_everybody_hears_of_expired_jobs(scene: Scene) -> None:
    """Their parents may go on, and what depends on them."""
    assert scene.store.expire(1).wakes == frozenset(Wake)
