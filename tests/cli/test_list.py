"""duly job list."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.model.job import JobRecord, plain
from duly.service import jobs as service
from tests.cli.driving import Place


def _ids(place: Place, *options: object) -> list[str]:
    return [job["id"] for job in place.good("job", "list", "--json", *options).json["jobs"]]


def _every_status(place: Place) -> dict[str, JobRecord]:
    scene = place.scene
    dead = scene.dead()
    succeeded = scene.finished()
    cancelled = scene.submit()
    scene.cancel(cancelled.id)
    retrying = scene.submit(max_attempts=2)
    scene.fail(scene.take(), delay=600)
    running = scene.submit()
    scene.take()
    ready = scene.submit()
    scheduled = scene.submit(run_at=scene.now + timedelta(hours=1))
    return {
        "dead": dead,
        "succeeded": succeeded,
        "cancelled": cancelled,
        "retrying": retrying,
        "running": running,
        "ready": ready,
        "scheduled": scheduled,
    }


def test_every_status_can_be_asked_for(anyplace: Place) -> None:
    made = _every_status(anyplace)
    for status, job in made.items():
        assert _ids(anyplace, "--status", status) == [str(job.id)], status
    both = _ids(anyplace, "--status", "ready", "--state", "dead")
    assert both == [str(made["ready"].id), str(made["dead"].id)]
    pending = _ids(anyplace, "--status", "pending")
    assert pending == [str(made[name].id) for name in ("scheduled", "ready", "retrying")]
    assert len(_ids(anyplace)) == len(made)


def test_json_has_every_field_of_the_record(place: Place) -> None:
    job = place.scene.submit(arguments='{"n":1}', tags=("a",))
    answer = place.good("job", "list", "--json").json
    assert set(answer) == {"jobs", "next"}
    assert set(answer["jobs"][0]) == {*plain(job), "status"}
    assert answer["jobs"][0]["arguments"] == {"n": 1}
    assert answer["next"] is None


def test_filters(anyplace: Place) -> None:
    scene = anyplace.scene
    fields = {"queue": "mail", "task": "send", "tenant": "acme", "owner": "ada", "key": "k"}
    wanted = scene.submit(**fields, tags=("a", "b"))
    scene.submit()
    for name, value in fields.items():
        assert _ids(anyplace, f"--{name}", value) == [str(wanted.id)]
    assert _ids(anyplace, "--tag", "a", "--tag", "b") == [str(wanted.id)]
    assert _ids(anyplace, "--tag", "c") == []


def test_since(place: Place) -> None:
    place.scene.advance(-7200)
    place.scene.submit()
    place.scene.advance(7200)
    young = place.scene.submit()
    assert _ids(place, "--since", "1h") == [str(young.id)]
    moment = place.scene.now - timedelta(minutes=1)
    assert _ids(place, "--since", moment.isoformat()) == [str(young.id)]
    assert len(_ids(place, "--since", "3h")) == 2


@pytest.mark.parametrize("filters", [(), ("--status", "ready")])
def test_pages(anyplace: Place, filters: tuple[str, ...]) -> None:
    made = [str(job.id) for job in anyplace.scene.submit_many(5)][::-1]
    first = anyplace.good("job", "list", "--json", "--limit", 2, *filters).json
    assert [job["id"] for job in first["jobs"]] == made[:2]
    assert first["next"] == made[1]
    second = anyplace.good(
        "job", "list", "--json", "--limit", 3, "--before", first["next"], *filters
    ).json
    assert [job["id"] for job in second["jobs"]] == made[2:]
    assert second["next"] is None


def test_a_search_for_few_among_many_stops_now_and_then(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SCAN_STEP", 2)
    monkeypatch.setattr(service, "LONGEST_SCAN", 4)
    ready = place.scene.submit()
    later = place.scene.now + timedelta(hours=1)
    scheduled = place.scene.submit_many(5, run_at=later)
    first = place.good("job", "list", "--json", "--status", "ready").json
    assert (first["jobs"], first["next"]) == ([], str(scheduled[1].id))
    prose = place.good("job", "list", "--status", "ready")
    assert prose.out == ""
    assert "No jobs match among the newest ones" in prose.err
    second = place.good("job", "list", "--json", "--status", "ready", "--before", first["next"])
    assert [job["id"] for job in second.json["jobs"]] == [str(ready.id)]


def test_the_table_is_not_cut_when_it_is_piped(place: Place) -> None:
    job = place.scene.submit(task="t" * 100, queue="q" * 100)
    place.scene.submit()
    answer = place.good("job", "list", "--limit", 2)
    assert answer.lines[0].split() == ["ID", "STATUS", "TASK", "QUEUE", "TRY", "WHEN"]
    cells = answer.lines[2].split()
    assert cells[:5] == [str(job.id), "ready", "t" * 100, "q" * 100, "0/1"]
    assert "\x1b" not in answer.out


def test_nothing_to_list(place: Place) -> None:
    answer = place.good("job", "list")
    assert answer.out == ""
    assert answer.err == "No jobs match.\n"


def test_more_to_list(place: Place) -> None:
    made = place.scene.submit_many(2)
    answer = place.good("job", "list", "--limit", 1)
    assert f"--before {made[1].id}" in answer.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--limit", 0], "limit: must be"),
        (["--limit", 10_001], "limit: must be"),
        (["--status", "odd"], "is not one of"),
        (["--since", "often"], "--since: 'often' is not a duration"),
        (["--before", "xyz"], "job id: 'xyz' is not one"),
        (["--queue", "a b"], "queue: 'a b' is not a name"),
    ],
)
def test_bad_filters_are_refused(place: Place, options: list[object], problem: str) -> None:
    answer = place.duly("job", "list", *options)
    assert answer.code == 2
    assert problem in answer.err
