"""What has not started is cancelled at once; what runs is asked to stop."""

from __future__ import annotations

from datetime import timedelta

from duly.model import settlement
from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.query import Cancellation, Replay
from tests.support.stores import Scene, failure

CANCELLED, REQUESTED = Cancellation.CANCELLED, Cancellation.REQUESTED
FINISHED, UNKNOWN = Cancellation.FINISHED, Cancellation.UNKNOWN


def test_a_pending_job_is_cancelled_at_once(scene: Scene) -> None:
    job = scene.submit(delay=timedelta(hours=1))
    scene.advance(5)
    assert scene.cancel(job.id, reason="changed my mind") == [CANCELLED]
    gone = scene.get(job.id)
    assert (gone.state, gone.reason) == (State.CANCELLED, "changed my mind")
    assert (gone.finished_at, gone.attempt, gone.token) == (scene.now, 0, 0)
    scene.advance(3600)
    assert scene.claim(scene.hire()) == []


def test_without_a_reason_there_is_one_all_the_same(scene: Scene) -> None:
    job = scene.submit()
    scene.cancel(job.id)
    assert scene.get(job.id).reason == "cancelled on request"


def test_a_job_between_attempts_keeps_its_error_and_attempts(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    job = scene.fail(scene.take(), delay=60)
    assert scene.cancel(job.id) == [CANCELLED]
    gone = scene.get(job.id)
    assert (gone.state, gone.attempt, gone.error) == (State.CANCELLED, 1, failure())
    assert len(scene.attempts(job.id)) == 1


def test_a_running_job_is_asked(scene: Scene) -> None:
    scene.submit()
    holder = scene.hire()
    job = scene.take(holder)
    scene.advance(1)
    first = scene.now
    assert scene.cancel(job.id) == [REQUESTED]
    scene.advance(1)
    assert scene.cancel(job.id) == [REQUESTED]
    running = scene.get(job.id)
    assert (running.state, running.cancel_requested_at) == (State.RUNNING, first)
    assert running.token == job.token
    assert scene.store.run(scene.store.cancel_requests(holder)) == [(job.id, job.token)]


def test_requests_are_told_to_the_holder_only(scene: Scene) -> None:
    one, two = scene.hire(), scene.hire()
    scene.submit_many(3)
    first, second = scene.claim(one, 2)
    third = scene.take(two)
    assert scene.store.run(scene.store.cancel_requests(one)) == []
    scene.cancel(second.id, third.id)
    assert scene.store.run(scene.store.cancel_requests(one)) == [(second.id, second.token)]
    assert scene.store.run(scene.store.cancel_requests(two)) == [(third.id, third.token)]
    scene.succeed(second)
    assert scene.store.run(scene.store.cancel_requests(one)) == []
    assert scene.state(first.id) is State.RUNNING


def test_answers_are_in_order(scene: Scene) -> None:
    running = scene.submit(priority=100)
    scene.take()
    dead = scene.dead()
    done = scene.finished()
    pending = scene.submit(delay=timedelta(hours=1))
    gone = scene.submit()
    scene.cancel(gone.id)
    stranger = new_id()
    ids = [stranger, done.id, pending.id, dead.id, running.id, gone.id, pending.id]
    answers = [UNKNOWN, FINISHED, CANCELLED, FINISHED, REQUESTED, FINISHED, CANCELLED]
    assert scene.cancel(*ids) == answers
    assert scene.get(done.id) == done
    assert scene.get(dead.id) == dead
    assert scene.cancel() == []


def test_a_request_does_not_outlive_the_job_s_generation(scene: Scene) -> None:
    scene.submit(max_attempts=3)
    taken = scene.take()
    scene.cancel(taken.id)
    scene.kill(taken)
    assert scene.replay(taken.id) == [Replay.REPLAYED]
    assert scene.get(taken.id).cancel_requested_at is None
    assert scene.fail(scene.take()).state is State.PENDING


def test_two_thousand_at_once(scene: Scene) -> None:
    jobs = scene.submit_many(2000)
    assert scene.cancel(*(job.id for job in jobs)) == [CANCELLED] * 2000
    assert scene.counts() == {("default", State.CANCELLED): 2000}


def test_the_reason_of_a_request_is_kept(scene: Scene) -> None:
    scene.submit_many(5, max_attempts=3)
    stopped, failed, own, done, silent = scene.claim(scene.hire(), 5)
    scene.cancel(stopped.id, failed.id, own.id, done.id, reason="ordered twice")
    scene.cancel(stopped.id, reason="a second thought")
    scene.cancel(silent.id)
    scene.settle(
        settlement.cancel(stopped.id, stopped.token, "cancelled on request while it ran"),
        settlement.cancel(own.id, own.token, "paid already"),
        settlement.cancel(silent.id, silent.token, "cancelled on request by force"),
    )
    scene.fail(failed)
    scene.succeed(done)
    reasons = [scene.get(job.id).reason for job in (stopped, failed, own, done, silent)]
    assert reasons == [
        "cancelled on request while it ran: ordered twice",
        "ordered twice",
        "paid already",
        None,
        "cancelled on request by force",
    ]
    assert scene.state(done.id) is State.SUCCEEDED
