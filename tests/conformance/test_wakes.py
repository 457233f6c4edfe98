"""Who is woken by what. A watch looks by itself only now and then, or never."""

from __future__ import annotations

import pytest

from duly.model.identifiers import new_id
from duly.model.settlement import Settlement, bury, release, succeed
from duly.store.operation import Wake
from tests.support.stores import Scene, failure

JOB = new_id()


@pytest.mark.parametrize(
    ("settlement", "workers"),
    [
        (succeed(JOB, 1, "null"), False),
        (bury(JOB, 1, "retries exhausted", failure()), True),
        (release(JOB, 1), True),
    ],
    ids=["succeeded", "dead", "given back"],
)
def test_workers_hear_of_ends_that_may_leave_work(
    scene: Scene, settlement: Settlement, workers: bool
) -> None:
    """Of the last failure too: a job may have compensations."""
    wakes = scene.store.settle([settlement]).wakes
    assert Wake.WAITERS in wakes
    assert (Wake.WORKERS in wakes) is workers


def test_everybody_hears_of_expired_jobs(scene: Scene) -> None:
    """Their parents may go on, and what depends on them."""
    assert scene.store.expire(1).wakes == frozenset(Wake)
