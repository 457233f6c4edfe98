"""Asking for many: find with a cursor, counts; and purge, which ends what is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.query import JobFilter
from duly.model.settlement import cancel
from tests.support.stores import Scene


def _find(
    scene: Scene, limit: int = 100, before: UUID | None = None, **criteria: Any
) -> list[UUID]:
    found = scene.store.run(scene.store.find(JobFilter(**criteria), limit, before))
    return [job.id for job in found]


def test_newest_first_wherever_they_are(scene: Scene) -> None:
    jobs = [scene.submit(priority=100 - number) for number in range(6)]
    one, two, three, four = scene.claim(scene.hire(), 4)
    scene.succeed(one)
    scene.kill(two)
    scene.settle(cancel(three.id, three.token, "x"))
    newest_first = [job.id for job in reversed(jobs)]
    assert _find(scene) == newest_first
    found = scene.store.run(scene.store.find(JobFilter(), 100))
    assert found == [scene.get(job_id) for job_id in newest_first]
    assert _find(scene, states=frozenset({State.RUNNING})) == [four.id]
    finals = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
    assert _find(scene, states=finals) == [three.id, two.id, one.id]
    mixed = frozenset({State.PENDING, State.DEAD})
    assert _find(scene, states=mixed) == [jobs[5].id, jobs[4].id, two.id]
    assert _find(scene, states=frozenset()) == []


def test_the_cursor_goes_through_everything_once(scene: Scene) -> None:
    jobs = [job.id for job in scene.submit_many(25)]
    claimed = scene.claim(scene.hire(), 12)
    for number, job in enumerate(claimed):
        if number % 3 == 0:
            scene.succeed(job)
        elif number % 3 == 1:
            scene.kill(job)
    seen: list[UUID] = []
    before: UUID | None = None
    while page := _find(scene, 4, before):
        seen += page
        before = page[-1]
    assert seen == jobs[::-1]


CONDITIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"queue": "q"}, {"queue": "other"}),
    ({"task": "t"}, {"task": "other"}),
    ({"owner": "o"}, {"owner": "other"}),
    ({"tenant": "n"}, {"tenant": "other"}),
    ({"tags": ("a", "b", "c")}, {"tags": ("ab", "c")}),
    ({"flow_id": UUID(int=1)}, {"flow_id": UUID(int=3)}),
    ({"parent_id": UUID(int=2)}, {"parent_id": UUID(int=3)}),
    ({"queue": "q", "owner": "o"}, {"queue": "q", "owner": "other"}),
]


@pytest.mark.parametrize(("fields", "others"), CONDITIONS)
def test_every_condition(scene: Scene, fields: dict[str, Any], others: dict[str, Any]) -> None:
    scene.submit()
    scene.submit(**others)
    matching = scene.submit_many(3, **fields)
    criteria = {**fields, "tags": ("c", "a")} if "tags" in fields else fields
    expected = [job.id for job in reversed(matching)]
    assert _find(scene, **criteria) == expected
    claimed = {job.id: job for job in scene.claim(scene.hire(), 50, (), ("work", "t"))}
    scene.succeed(claimed[expected[0]])
    scene.kill(claimed[expected[1]])
    assert _find(scene, **criteria) == expected


def test_by_key(scene: Scene) -> None:
    first = scene.finished(key="k")
    second = scene.submit(key="k")
    scene.submit(key="l")
    assert _find(scene, key="k") == [second.id, first.id]


def test_by_fingerprint(scene: Scene) -> None:
    dead = scene.dead()
    scene.finished()
    assert _find(scene, fingerprint="ValueError:work") == [dead.id]
    assert _find(scene, fingerprint="other") == []


def test_by_creation(scene: Scene) -> None:
    jobs = []
    for _ in range(4):
        jobs.append(scene.submit())
        scene.advance(1)
    start = jobs[1].created_at
    assert _find(scene, created_from=start) == [job.id for job in jobs[:0:-1]]
    assert _find(scene, created_before=start) == [jobs[0].id]
    end = start + timedelta(seconds=2)
    assert _find(scene, created_from=start, created_before=end) == [jobs[2].id, jobs[1].id]


def test_counts(scene: Scene) -> None:
    assert scene.counts() == {}
    scene.submit_many(3)
    scene.submit_many(2, queue="mail", delay=timedelta(hours=1))
    one, two = scene.claim(scene.hire(), 2)
    scene.succeed(one)
    scene.kill(two)
    gone = scene.submit(queue="mail")
    scene.cancel(gone.id)
    scene.take()
    assert scene.counts() == {
        ("default", State.RUNNING): 1,
        ("default", State.SUCCEEDED): 1,
        ("default", State.DEAD): 1,
        ("mail", State.PENDING): 2,
        ("mail", State.CANCELLED): 1,
    }


def _purge(scene: Scene, state: State, limit: int = 100, queue: str | None = None) -> int:
    return scene.store.run(scene.store.purge(state, scene.now, limit, queue))


def test_purge_deletes_old_jobs_of_one_state(scene: Scene) -> None:
    done, dead = scene.finished(), scene.dead()
    gone = scene.submit()
    scene.cancel(gone.id)
    live = scene.submit()
    assert [_purge(scene, state) for state in State] == [0] * len(State)
    scene.advance(1)
    new = scene.finished(task="other")
    assert _purge(scene, State.SUCCEEDED) == 1
    assert _purge(scene, State.PENDING) == 0
    assert _find(scene) == [new.id, live.id, gone.id, dead.id]
    assert scene.attempts(done.id) == []
    assert len(scene.attempts(dead.id)) == 1
    assert _purge(scene, State.DEAD) == 1
    assert scene.attempts(dead.id) == []
    assert _purge(scene, State.CANCELLED) == 1
    assert _find(scene) == [new.id, live.id]


def test_purge_of_one_queue_up_to_a_limit(scene: Scene) -> None:
    for queue in ("a", "b", "a", "a"):
        scene.finished(queue=queue)
        scene.dead(queue=queue)
    scene.advance(1)
    assert _purge(scene, State.SUCCEEDED, 2, "a") == 2
    assert _purge(scene, State.SUCCEEDED, 2, "a") == 1
    assert _purge(scene, State.SUCCEEDED, 2, "a") == 0
    assert _purge(scene, State.DEAD, 2, "a") == 2
    assert scene.counts() == {
        ("b", State.SUCCEEDED): 1,
        ("b", State.DEAD): 1,
        ("a", State.DEAD): 1,
    }


@pytest.mark.parametrize("ending", ["cancel", "succeed", "die"])
def test_purge_leaves_no_attempts_behind(scene: Scene, ending: str) -> None:
    job = scene.submit(max_attempts=9)
    scene.fail(scene.take())
    if ending == "cancel":
        scene.cancel(job.id)
        state = State.CANCELLED
    else:
        scene.kill(scene.take())
        scene.replay(job.id)
        state = State.DEAD
        if ending == "succeed":
            scene.succeed(scene.take())
            state = State.SUCCEEDED
        else:
            scene.kill(scene.take())
    assert scene.attempts(job.id)
    scene.advance(1)
    assert _purge(scene, state) == 1
    assert scene.attempts(job.id) == []
    assert scene.replay(job.id) == ["unknown"]
    assert scene.cancel(job.id, new_id()) == ["unknown", "unknown"]


def test_by_the_time_they_finished(scene: Scene) -> None:
    early = scene.finished()
    scene.advance(60)
    boundary = scene.now
    late, dead = scene.finished(), scene.dead()
    scene.submit()
    assert _find(scene, finished_from=boundary) == [dead.id, late.id]
    assert _find(scene, finished_before=boundary) == [early.id]
    assert _find(scene, finished_from=boundary, finished_before=boundary) == []
