"""A dead job is made pending again, in a new generation."""

from __future__ import annotations

from datetime import timedelta

from duly.model.attempt import Outcome
from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.query import Replay
from duly.model.report import LogLine
from duly.model.settlement import bury
from duly.policy.verdict import Verdict, settlement
from tests.support.stores import Scene, failure


def test_replay_starts_afresh(scene: Scene) -> None:
    job = scene.submit(
        arguments='"old"', max_attempts=2, tags=("t",), expires_after=timedelta(minutes=1)
    )
    scene.fail(scene.take())
    assert scene.crash(scene.take()).alone
    died = scene.kill(scene.take())
    scene.advance(3600)
    assert scene.replay(job.id) == [Replay.REPLAYED]
    again = scene.get(job.id)
    assert (again.state, again.generation, again.token) == (State.PENDING, 2, died.token)
    assert (again.attempt, again.crashes, again.alone) == (0, 0, False)
    assert (again.run_at, again.created_at) == (scene.now, job.created_at)
    assert (again.arguments, again.tags, again.max_attempts) == ('"old"', ("t",), 2)
    assert (again.finished_at, again.reason, again.result) == (None, None, None)
    assert (again.worker, again.started_at, again.expires_at) == (None, None, None)
    assert again.error == failure()
    taken = scene.take()
    assert (taken.token, taken.attempt, taken.generation) == (4, 1, 2)
    assert scene.succeed(taken).generation == 2


def test_earlier_attempts_stay(scene: Scene) -> None:
    job = scene.submit(max_attempts=2)
    scene.fail(scene.take())
    scene.kill(scene.take())
    scene.replay(job.id)
    assert len(scene.attempts(job.id)) == 2
    scene.succeed(scene.take())
    rows = scene.attempts(job.id)
    assert [(each.generation, each.number, each.token) for each in rows] == [
        (1, 1, 1),
        (1, 2, 2),
        (2, 1, 3),
    ]
    assert [each.outcome for each in rows] == [Outcome.FAILED, Outcome.FAILED, Outcome.SUCCEEDED]


def test_with_other_arguments(scene: Scene) -> None:
    one, two = scene.dead(arguments="1"), scene.dead(arguments="2")
    assert scene.replay(one.id, two.id, arguments="3") == [Replay.REPLAYED] * 2
    assert scene.get(one.id).arguments == "3"
    assert scene.get(two.id).arguments == "3"


def test_only_dead_jobs(scene: Scene) -> None:
    running = scene.submit(priority=100)
    scene.take()
    done = scene.finished()
    dead = scene.dead()
    gone = scene.submit()
    scene.cancel(gone.id)
    pending = scene.submit(delay=timedelta(hours=1))
    ids = [new_id(), running.id, dead.id, done.id, pending.id, gone.id, dead.id]
    assert scene.replay(*ids) == [
        Replay.UNKNOWN,
        Replay.NOT_DEAD,
        Replay.REPLAYED,
        Replay.NOT_DEAD,
        Replay.NOT_DEAD,
        Replay.NOT_DEAD,
        Replay.REPLAYED,
    ]
    assert scene.get(pending.id) == pending
    assert scene.get(done.id) == done
    assert scene.get(dead.id).generation == 2
    assert scene.replay() == []


def test_again_and_again(scene: Scene) -> None:
    job = scene.dead(max_crashes=1)
    for generation in range(2, 6):
        assert scene.replay(job.id) == [Replay.REPLAYED]
        assert scene.replay(job.id) == [Replay.NOT_DEAD]
        taken = scene.take()
        scene.settle(settlement(taken, Verdict(Outcome.CRASHED, error=failure())))
        dead = scene.get(job.id)
        assert (dead.state, dead.generation, dead.crashes) == (State.DEAD, generation, 1)


def test_two_thousand_at_once(scene: Scene) -> None:
    scene.submit_many(2000)
    claimed = scene.claim(scene.hire(), 2000)
    scene.settle(*(bury(job.id, job.token, "x", failure()) for job in claimed))
    assert scene.replay(*(job.id for job in claimed)) == [Replay.REPLAYED] * 2000
    assert len(scene.claim(scene.hire(), 2000)) == 2000


def test_dead_jobs_are_discarded_by_id(scene: Scene) -> None:
    first, second, kept = scene.dead(), scene.dead(), scene.dead()
    done, live = scene.finished(), scene.submit()
    store = scene.store
    said = LogLine(first.id, 1, scene.now, "INFO", "shop", "hello")
    store.run(store.report([], [said]))
    ids = [first.id, second.id, live.id, done.id, new_id(), first.id]
    assert store.run(store.discard(ids)) == 2
    assert store.run(store.get([first.id, second.id])) == [None, None]
    assert scene.attempts(first.id) == []
    assert store.run(store.log_lines(first.id)) == []
    assert (scene.get(kept.id), scene.get(done.id)) == (kept, done)
    assert len(scene.attempts(kept.id)) == 1
    assert scene.state(live.id) is live.state
    assert store.run(store.discard([])) == 0
