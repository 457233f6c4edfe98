"""duly job timeline: what happened to a job, with a journal and without."""

from __future__ import annotations

from uuid import uuid4

from duly.cli.failures import WRONG_INPUT
from duly.model.journal import Journal
from duly.store.sqlite.store import SqliteStore
from tests.cli.driving import Place
from tests.support.stores import Scene


def _live_through(scene: Scene) -> str:
    job = scene.submit(max_attempts=2)
    scene.advance(1)
    scene.fail(scene.take())
    scene.advance(1)
    scene.succeed(scene.take())
    return str(job.id)


def test_from_the_rows_of_the_job(anyplace: Place) -> None:
    job = _live_through(anyplace.scene)
    answer = anyplace.good("job", "timeline", job, "--json").json
    assert [(each["what"], each["token"]) for each in answer["happened"]] == [
        ("submitted", 0),
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("succeeded", 2),
        ("succeeded", 2),
    ]
    assert answer["happened"][2]["detail"] == "ValueError: boom"
    assert "attempt 2" in anyplace.good("job", "timeline", job).out


def test_from_the_journal(place: Place) -> None:
    journaled = SqliteStore(place.url.removeprefix("sqlite:///"), Journal.FULL)
    job = _live_through(Scene(journaled, place.scene.clock))
    journaled.close()
    lines = place.good("job", "timeline", job).lines
    expected = ("pending", "pending to running", "running to pending", "pending to running")
    for line, what in zip(lines[1:], (*expected, "running to succeeded"), strict=True):
        assert f" {what} " in f"{line} "
    assert lines[2].split()[1] == "1"
    assert "ValueError" in lines[3]


def test_a_job_that_does_not_exist(place: Place) -> None:
    assert place.duly("job", "timeline", uuid4()).code == WRONG_INPUT
