"""duly queue: list, pause, resume."""

from __future__ import annotations

from datetime import timedelta

from tests.cli.driving import Place


def test_list(anyplace: Place) -> None:
    scene = anyplace.scene
    scene.dead(queue="mail")
    scene.submit(queue="mail")
    scene.submit(queue="bulk")
    scene.hire(queues=("mail", "reports"))
    scene.hire(queues=("mail",), lease=timedelta(seconds=-1))
    queues = {
        each["name"]: each for each in anyplace.good("queue", "list", "--json").json["queues"]
    }
    assert set(queues) == {"bulk", "default", "mail", "reports"}
    mail = queues["mail"]
    assert set(mail) == {"name", "paused", "note", "workers", "oldest_due_at", "jobs"}
    assert set(mail["jobs"]) == {
        *("pending", "blocked", "running", "waiting", "succeeded", "dead", "cancelled"),
    }
    assert (mail["jobs"]["pending"], mail["jobs"]["dead"], mail["workers"]) == (1, 1, 1)
    assert mail["oldest_due_at"] is not None
    assert queues["reports"]["oldest_due_at"] is None
    assert (queues["bulk"]["workers"], queues["reports"]["workers"]) == (0, 1)


def test_the_age_of_the_oldest_due_job(anyplace: Place) -> None:
    anyplace.scene.advance(-7200)
    anyplace.scene.submit(queue="mail")
    anyplace.scene.advance(7200)
    anyplace.scene.submit(queue="mail")
    anyplace.scene.submit(queue="later", delay=timedelta(hours=1))
    header, later, mail = anyplace.good("queue", "list").lines
    start = header.index("OLDEST DUE")
    assert mail[start : start + 10].strip() == "2 h"
    assert later[start : start + 10].strip() == ""


def test_a_worker_that_names_no_queue_serves_all(place: Place) -> None:
    place.scene.hire(queues=())
    place.scene.submit(queue="mail")
    (mail,) = place.good("queue", "list", "--json").json["queues"]
    assert (mail["name"], mail["workers"]) == ("mail", 1)


def test_pause_and_resume(anyplace: Place) -> None:
    anyplace.scene.submit(queue="mail")
    answer = anyplace.good("queue", "pause", "mail", "--note", "until noon")
    assert "Queue mail is paused" in answer.err
    table = anyplace.good("queue", "list").lines
    assert table[0].split()[:4] == ["QUEUE", "STATE", "WORKERS", "OLDEST"]
    assert table[1].split()[:2] == ["mail", "paused"]
    assert table[1].endswith("until noon")
    assert anyplace.scene.claim(anyplace.scene.hire(), queues=("mail",)) == []
    assert "goes on" in anyplace.good("queue", "resume", "mail").err
    assert "was not paused" in anyplace.good("queue", "resume", "mail").err
    assert len(anyplace.scene.claim(anyplace.scene.hire(), queues=("mail",))) == 1


def test_pause_and_resume_in_json(place: Place) -> None:
    answer = place.good("queue", "pause", "mail", "--json").json
    assert answer == {"queue": "mail", "paused": True, "note": None}
    answer = place.good("queue", "resume", "mail", "--json").json
    assert answer == {"queue": "mail", "paused": False, "was_paused": True}


def test_no_queues(place: Place) -> None:
    answer = place.good("queue", "list")
    assert answer.out == ""
    assert "no queues yet" in answer.err


def test_a_bad_name(place: Place) -> None:
    answer = place.duly("queue", "pause", "a b")
    assert answer.code == 2
    assert "queue: 'a b' is not a name" in answer.err
