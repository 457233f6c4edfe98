"""A job that has not started by its expiry is cancelled."""

from __future__ import annotations

from datetime import timedelta

from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.settlement import release
from tests.support.stores import Scene

SECOND = timedelta(seconds=1)


def test_expire_cancels_what_is_past_its_time(scene: Scene) -> None:
    past = scene.submit(expires_after=SECOND, delay=timedelta(hours=1))
    later = scene.submit(expires_after=2 * SECOND)
    never = scene.submit()
    scene.advance(0.999999)
    assert scene.expire() == 0
    scene.advance(0.000001)
    assert scene.expire() == 1
    gone = scene.get(past.id)
    assert (gone.state, gone.reason, gone.finished_at) == (State.CANCELLED, "expired", scene.now)
    assert scene.state(later.id) is State.PENDING
    assert scene.state(never.id) is State.PENDING


def test_expire_keeps_to_its_limit_and_takes_the_oldest_first(scene: Scene) -> None:
    jobs = [scene.submit(expires_after=SECOND * number) for number in (3, 1, 2)]
    scene.advance(10)
    assert scene.expire(2) == 2
    assert [scene.state(job.id) for job in jobs] == [
        State.PENDING,
        State.CANCELLED,
        State.CANCELLED,
    ]
    assert scene.expire(2) == 1
    assert scene.expire(2) == 0


def test_a_claim_cancels_what_is_past_its_time(scene: Scene) -> None:
    past = scene.submit(expires_after=SECOND, key="k")
    kept = scene.submit(expires_after=2 * SECOND)
    scene.advance(1)
    assert [job.id for job in scene.claim(scene.hire())] == [kept.id]
    gone = scene.get(past.id)
    assert (gone.state, gone.reason, gone.finished_at) == (State.CANCELLED, "expired", scene.now)
    assert (gone.token, gone.attempt, gone.started_at, gone.worker) == (0, 0, None, None)
    assert scene.attempts(past.id) == []
    assert scene.counts() == {("default", State.CANCELLED): 1, ("default", State.RUNNING): 1}


def test_a_claim_never_brings_what_is_past_its_time(scene: Scene) -> None:
    past = scene.submit(expires_after=SECOND)
    kept = scene.submit()
    scene.advance(1)
    holder = scene.hire()
    assert [job.id for job in scene.claim(holder, expiring=False)] == [kept.id]
    assert scene.state(past.id) in (State.PENDING, State.CANCELLED)
    assert scene.claim(holder) == []
    assert scene.state(past.id) is State.CANCELLED


def test_many_expired_jobs_do_not_hide_the_others_for_long(scene: Scene) -> None:
    scene.submit_many(30, expires_after=SECOND, priority=100)
    kept = scene.submit()
    scene.advance(1)
    holder = scene.hire()
    claims = [scene.claim(holder, 10) for _ in range(4)]
    assert [[job.id for job in each] for each in claims] == [[], [], [], [kept.id]]


def test_a_job_that_started_does_not_expire(scene: Scene) -> None:
    scene.submit(expires_after=SECOND, max_attempts=3)
    running = scene.take()
    scene.advance(10)
    assert scene.expire() == 0
    assert scene.get(running.id) == running
    assert scene.succeed(running).state is State.SUCCEEDED


def test_a_job_that_went_back_does(scene: Scene) -> None:
    scene.submit_many(3, expires_after=SECOND, max_attempts=3)
    failed, released, claimed = scene.claim(scene.hire())
    scene.fail(failed)
    scene.settle(release(released.id, released.token), release(claimed.id, claimed.token))
    scene.advance(1)
    assert scene.claim(scene.hire(), 1) == []
    assert scene.expire() == 2
    for job in (failed, released, claimed):
        assert (scene.get(job.id).state, scene.get(job.id).reason) == (State.CANCELLED, "expired")
    gone = scene.get(failed.id)
    assert (gone.attempt, gone.error is not None, len(scene.attempts(gone.id))) == (1, True, 1)


def test_expired_attempts_are_purged_with_their_job(scene: Scene) -> None:
    scene.submit(expires_after=SECOND, max_attempts=3)
    job = scene.fail(scene.take())
    scene.advance(1)
    assert scene.claim(scene.hire(), 1) == []
    scene.advance(1)
    assert scene.store.run(scene.store.purge(State.CANCELLED, scene.now, 10)) == 1
    assert scene.attempts(job.id) == []
    assert scene.expire() == 0
    assert scene.cancel(new_id()) == ["unknown"]
