"""duly job wait, cancel, retry, explain, logs, and ids in short."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

import pytest

from duly.model.identifiers import new_id
from duly.model.job import State
from duly.model.query import Cancellation
from duly.model.report import LogLine
from duly.service.jobs import Retried
from tests.cli.driving import Place


def test_wait_for_finished_jobs(anyplace: Place) -> None:
    good = anyplace.scene.finished()
    answer = anyplace.duly("job", "wait", good.id)
    assert (answer.code, answer.out) == (0, f"{good.id} succeeded null\n")
    bad = anyplace.scene.dead()
    answer = anyplace.duly("job", "wait", good.id, bad.id, good.id)
    assert answer.code == 1
    assert sorted(answer.lines) == sorted(
        [f"{good.id} succeeded null", f"{bad.id} dead ValueError: boom"]
    )


def test_wait_until_a_job_finishes(place: Place) -> None:
    job = place.scene.submit()
    claimed = place.scene.take()
    timer = threading.Timer(0.1, lambda: place.scene.succeed(claimed, '{"n":1}'))
    timer.start()
    answer = place.duly("job", "wait", job.id, "--timeout", "60s", "--json")
    timer.join()
    assert answer.code == 0
    assert set(answer.json) == {"jobs", "unfinished"}
    assert answer.json["jobs"][0]["result"] == {"n": 1}


def test_wait_times_out(place: Place) -> None:
    job = place.scene.submit()
    answer = place.duly("job", "wait", job.id, "--timeout", "0.05")
    assert (answer.code, answer.out) == (124, "")
    assert f"{job.id} has not finished: ready for" in answer.err
    answer = place.duly("job", "wait", job.id, "--timeout", "0.05", "--json")
    assert (answer.code, answer.json["unfinished"]) == (124, [str(job.id)])


def test_wait_for_a_cancelled_job(place: Place) -> None:
    job = place.scene.submit()
    place.scene.cancel(job.id, reason="not needed")
    answer = place.duly("job", "wait", job.id)
    assert (answer.code, answer.out) == (1, f"{job.id} cancelled not needed\n")


def test_wait_for_no_such_job(place: Place) -> None:
    answer = place.duly("job", "wait", uuid4())
    assert answer.code == 2
    assert "no job" in answer.err


def test_cancel(anyplace: Place) -> None:
    scene = anyplace.scene
    running = scene.submit()
    scene.take()
    pending = scene.submit()
    answer = anyplace.duly("job", "cancel", running.id, pending.id, "--reason", "enough")
    assert answer.code == 0
    assert answer.lines == [
        f"{running.id} runs; it was asked to stop",
        f"{pending.id} cancelled",
    ]
    assert scene.get(pending.id).reason == "enough"
    assert scene.get(running.id).cancel_requested_at is not None
    again = anyplace.duly("job", "cancel", pending.id, "--json")
    assert again.code == 1
    assert again.json == {"jobs": [{"id": str(pending.id), "outcome": "finished"}]}
    assert anyplace.duly("job", "cancel", uuid4()).code == 2


def test_retry(anyplace: Place) -> None:
    scene = anyplace.scene
    dead = scene.dead()
    finished = scene.finished()
    running = scene.submit()
    scene.take()
    ready = scene.submit()
    scheduled = scene.submit(run_at=scene.now + timedelta(hours=1))
    unknown = new_id()
    jobs = [dead.id, scheduled.id, ready.id, running.id]
    answer = anyplace.duly("job", "retry", *jobs, "--json")
    assert answer.code == 0
    outcomes = [each["outcome"] for each in answer.json["jobs"]]
    assert outcomes == ["replayed", "hurried", "ready", "running"]
    assert scene.get(dead.id).generation == 2
    assert scene.get(scheduled.id).run_at < scene.now + timedelta(minutes=30)
    assert scene.get(ready.id).run_at == ready.run_at
    answer = anyplace.duly("job", "retry", finished.id, unknown)
    assert answer.code == 2
    assert answer.lines == [
        f"{finished.id} not retried: it has finished; submit it again instead",
        f"{unknown} no such job",
    ]


def test_retry_of_a_dead_job_whose_key_is_held(place: Place) -> None:
    dead = place.scene.dead(key="k")
    place.scene.submit(key="k")
    answer = place.duly("job", "retry", dead.id)
    assert answer.code == 1
    assert "another job holds its key" in answer.out


def test_every_outcome_has_words() -> None:
    from duly.cli.job import CANCELLED_AS, RETRIED_AS

    assert set(CANCELLED_AS) == set(Cancellation)
    assert set(RETRIED_AS) == set(Retried)


def test_explain(place: Place) -> None:
    job = place.scene.submit(queue="mail")
    answer = place.good("job", "explain", job.id)
    assert answer.out.startswith("ready for ")
    assert answer.out.endswith(", but no worker is running\n")
    assert answer.err == ""
    answer = place.good("job", "explain", job.id, "--json")
    assert set(answer.json) == {"id", "cause", "sentence"}
    assert answer.json["cause"] == "no_worker"


def test_logs(anyplace: Place) -> None:
    job = anyplace.scene.submit()
    assert anyplace.good("job", "logs", job.id).err == "It has logged nothing.\n"
    line = LogLine(job.id, 1, anyplace.scene.now, "INFO", "shop", "two\nlines \x1b[31m")
    anyplace.scene.store.run(anyplace.scene.store.report([], [line]))
    answer = anyplace.good("job", "logs", job.id)
    assert answer.lines == [f"{line.at.isoformat()} INFO shop: two\\nlines \\x1b[31m"]
    (shown,) = anyplace.good("job", "logs", job.id, "--json").json["lines"]
    assert shown["message"] == line.message
    assert anyplace.duly("job", "logs", uuid4()).code == 2


def test_an_id_may_be_shortened(anyplace: Place) -> None:
    job = anyplace.scene.submit()
    assert str(job.id) in anyplace.good("job", "show", str(job.id)[:20]).out
    assert str(job.id) in anyplace.good("job", "show", str(job.id).replace("-", "").upper()).out
    other = anyplace.scene.submit()
    shared = str(job.id)[:8]
    if str(other.id).startswith(shared):
        answer = anyplace.duly("job", "show", shared)
        assert answer.code == 2
        assert "several jobs' ids begin with" in answer.err


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("0123456", "is not one"),
        ("0" * 33, "is not one"),
        ("01234567", "no job's id begins with"),
        ("ffffffff", "no job's id begins with"),
        ("\x1b[31mred", "is not one"),
    ],
)
def test_what_is_no_id(place: Place, typed: str, problem: str) -> None:
    place.scene.submit()
    answer = place.duly("job", "show", typed)
    assert answer.code == 2
    assert problem in answer.err
    assert "\x1b" not in answer.err
    assert place.scene.state(place.scene.submit().id) is State.PENDING
