"""duly event: emit, list; steps in `duly job show` and `explain`."""

from __future__ import annotations

from duly.model.settlement import suspend
from tests.cli.driving import Place
from tests.conformance.test_suspension import record, sleep, undo, wait_event, write


def test_emit_and_list(anyplace: Place) -> None:
    first = anyplace.good(
        "event", "emit", "order.paid", "--payload", '{"amount": 5}', "--key", "42"
    )
    assert "It started 0 jobs and woke 0 jobs." in first.err
    anyplace.good("event", "emit", "order.placed", "--id", "placed-1")
    events = anyplace.good("event", "list", "--json").json["events"]
    assert [event["name"] for event in events] == ["order.placed", "order.paid"]
    assert set(events[0]) == {"id", "name", "key", "payload", "at", "job_id"}
    assert (events[1]["payload"], events[1]["key"]) == ({"amount": 5}, "42")
    (chosen,) = anyplace.good("event", "list", "--name", "order.paid", "--json").json["events"]
    assert chosen["id"] == first.out.strip()
    older = anyplace.good("event", "list", "--before", "placed-1", "--json").json["events"]
    assert [event["name"] for event in older] == ["order.paid"]
    assert "order.placed" in anyplace.good("event", "list").out


def test_the_first_of_an_id_counts(place: Place) -> None:
    assert place.good("event", "emit", "a", "--id", "1", "--json").json["created"] is True
    again = place.good("event", "emit", "a", "--id", "1", "--json").json
    assert (again["created"], again["started"], again["woken"]) == (False, [], 0)
    assert "already" in place.good("event", "emit", "a", "--id", "1").err


def test_a_payload_from_stdin_wakes_one_job(place: Place) -> None:
    scene = place.scene
    job = scene.submit()
    running = scene.take()
    scene.settle(suspend(job.id, running.token, wait_event(running, "go")))
    answer = place.good("event", "emit", "go", "--payload", "-", "--job", job.id, stdin="[1]")
    assert "woke 1 job." in answer.err


def test_bad_input(place: Place) -> None:
    assert place.duly("event", "emit", "order paid").code == 2
    bad = place.duly("event", "emit", "a", "--payload", "{amount: 5}")
    assert bad.code == 2
    assert "--payload" in bad.err
    assert place.good("event", "list").err == "There are no such events.\n"


def test_show_and_explain_a_suspended_job(anyplace: Place) -> None:
    scene = anyplace.scene
    job = scene.submit()
    running = scene.take()
    record(scene, write(running, "charge", result='"receipt"', tries=1), undo(running, 2))
    scene.settle(
        suspend(job.id, running.token, sleep(running, 3600), wait_event(running, "order.paid"))
    )
    shown = anyplace.good("job", "show", job.id).out
    assert "Steps" in shown
    assert "charge" in shown
    sentence = anyplace.good("job", "explain", job.id).out
    assert "sleeps until" in sentence
    assert "waits for event 'order.paid'" in sentence
    steps = anyplace.good("job", "show", job.id, "--json").json["steps"]
    assert {step["name"]: step["result"] for step in steps}["charge"] == "receipt"
    assert anyplace.duly("job", "cancel", job.id).code == 0
    assert scene.get(job.id).undoing is not None
