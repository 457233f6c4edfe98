"""Every attempt that started leaves one row; charged ones count without holes."""

from __future__ import annotations

from datetime import timedelta

from duly.model.attempt import Attempt, Outcome
from duly.model.job import Delivery
from duly.model.settlement import cancel, release, retry, snooze
from duly.policy.states import CHARGED
from tests.support.stores import Scene, failure


def test_the_row_of_a_success(scene: Scene) -> None:
    scene.submit()
    taken = scene.take()
    start = scene.now
    scene.advance(1.000001)
    scene.succeed(taken)
    assert scene.attempts(taken.id) == [
        Attempt(
            job_id=taken.id,
            token=1,
            number=1,
            generation=1,
            worker=taken.worker,
            started_at=start,
            ended_at=scene.now,
            outcome=Outcome.SUCCEEDED,
        )
    ]


def test_an_attempt_that_runs_has_no_row_yet(scene: Scene) -> None:
    scene.submit()
    assert scene.attempts(scene.take().id) == []


def test_rows_are_in_the_order_of_the_attempts(scene: Scene) -> None:
    scene.submit(max_attempts=50)
    job = scene.take()
    scene.settle(retry(job.id, job.token, timedelta(0), failure("1")))
    job = scene.take()
    scene.settle(release(job.id, job.token))
    job = scene.take()
    scene.settle(retry(job.id, job.token, timedelta(0), failure("2"), Outcome.TIMED_OUT))
    job = scene.take()
    scene.settle(snooze(job.id, job.token, timedelta(0)))
    job = scene.take()
    scene.crash(job)
    job = scene.take()
    scene.succeed(job)
    rows = scene.attempts(job.id)
    assert [(row.token, row.number, row.outcome) for row in rows] == [
        (1, 1, Outcome.FAILED),
        (2, 2, Outcome.RELEASED),
        (3, 2, Outcome.TIMED_OUT),
        (4, 3, Outcome.SNOOZED),
        (5, 3, Outcome.CRASHED),
        (6, 3, Outcome.SUCCEEDED),
    ]
    charged = [row.number for row in rows if row.outcome in CHARGED]
    assert charged == [1, 2, 3]
    assert [row.error and row.error.message for row in rows] == [
        "1",
        None,
        "2",
        None,
        "killed",
        None,
    ]
    assert scene.get(job.id).attempt == 3


def test_rows_follow_the_job_wherever_it_goes(scene: Scene) -> None:
    scene.submit(max_attempts=9)
    scene.fail(job := scene.take())
    assert len(scene.attempts(job.id)) == 1
    scene.kill(scene.take())
    assert len(scene.attempts(job.id)) == 2
    scene.replay(job.id)
    assert len(scene.attempts(job.id)) == 2
    taken = scene.take()
    scene.settle(cancel(taken.id, taken.token, "enough"))
    rows = scene.attempts(job.id)
    assert [(row.generation, row.number) for row in rows] == [(1, 1), (1, 2), (2, 1)]
    assert rows[-1].outcome is Outcome.CANCELLED


def test_the_start_of_an_at_most_once_attempt_is_its_beginning(scene: Scene) -> None:
    scene.submit(delivery=Delivery.AT_MOST_ONCE)
    taken = scene.take()
    scene.advance(5)
    begun = scene.now
    scene.begin(taken)
    scene.advance(2)
    scene.succeed(taken)
    (row,) = scene.attempts(taken.id)
    assert (row.started_at, row.ended_at) == (begun, scene.now)
