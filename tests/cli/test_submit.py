"""duly job submit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from duly.model.job import State
from tests.cli.driving import Place, run

SHOP = """
import duly
app = duly.App()

@app.task(queue="mail")
def send(to: str, count: int = 1) -> str: ...
"""


def test_prints_the_id_on_stdout_and_prose_on_stderr(anyplace: Place) -> None:
    anyplace.publish()
    answer = anyplace.good("job", "submit", "work", "to=ada@example.com", "count=3")
    job = anyplace.scene.get(UUID(answer.out.strip()))
    assert job.arguments == '{"to":"ada@example.com","count":3}'
    assert (job.queue, job.max_attempts) == ("mail", 4)
    assert answer.err == "Submitted work to queue mail, due now.\n"


def test_json_has_the_record_and_whether_it_is_new(place: Place) -> None:
    place.publish()
    first = place.good("job", "submit", "work", "to=x", "--key", "k", "--json").json
    again = place.good("job", "submit", "work", "to=x", "--key", "k", "--json").json
    assert (first["created"], again["created"]) == (True, False)
    assert first["id"] == again["id"]
    assert first["status"] == "ready"
    assert first["arguments"] == {"to": "x"}


def test_says_so_when_the_key_is_held(place: Place) -> None:
    place.publish()
    first = place.good("job", "submit", "work", "to=x", "--key", "k")
    again = place.good("job", "submit", "work", "to=x", "--key", "k")
    assert again.out == first.out
    assert "holds key 'k' already" in again.err
    refused = place.duly("job", "submit", "work", "to=x", "--key", "k", "--key-policy", "reject")
    assert refused.code == 1
    assert "is held by job" in refused.err


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("x=3", '{"x":3}'),
        ("x=true", '{"x":true}'),
        ("x=null", '{"x":null}'),
        ("x=[1,2]", '{"x":[1,2]}'),
        ('x="007"', '{"x":"007"}'),
        ("x=007", '{"x":"007"}'),
        ("x=NaN", '{"x":"NaN"}'),
        ("x=", '{"x":""}'),
        ("x=a=b", '{"x":"a=b"}'),
        ("x={not json", '{"x":"{not json"}'),
    ],
)
def test_a_value_is_json_if_it_is_json_and_else_text(place: Place, typed: str, stored: str) -> None:
    answer = place.good("job", "submit", "anything", typed, "--unchecked")
    assert place.scene.get(UUID(answer.out.strip())).arguments == stored


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (["x=99999999999999999999"], "argument 'x'"),
        (['x={"a":1,"a":2}'], "argument 'x'"),
        (["x=" + "[" * 2000 + "]" * 2000], "nested too deeply"),
        (["x"], "expected name=value"),
        (["=3"], "expected name=value"),
        (["x=1", "x=2"], "'x' is given twice"),
        (["x=1", "--args", "{}"], "not both"),
        (["--args", "[1]"], "expected a JSON object"),
        (["--args", "{"], "--args: $"),
    ],
)
def test_bad_arguments_are_refused(place: Place, typed: list[str], problem: str) -> None:
    answer = place.duly("job", "submit", "anything", "--unchecked", *typed)
    assert answer.code == 2
    assert problem in answer.err
    assert "Traceback" not in answer.err
    assert place.scene.counts() == {}


def test_arguments_from_json_and_from_stdin(place: Place) -> None:
    place.publish()
    typed = place.good("job", "submit", "work", "--args", '{"to":"a"}', "--json").json
    piped = place.good("job", "submit", "work", "--args", "-", "--json", stdin='{"to":"b"}').json
    assert (typed["arguments"], piped["arguments"]) == ({"to": "a"}, {"to": "b"})


def test_stdin_is_not_read_beyond_the_limit(place: Place) -> None:
    answer = place.duly("job", "submit", "x", "--unchecked", "--args", "-", stdin=b"x" * 2**21)
    assert answer.code == 2
    assert "the limit is 1,048,576" in answer.err


def test_arguments_are_checked_against_the_catalogue(place: Place) -> None:
    place.publish()
    wrong = place.duly("job", "submit", "work", "to=x", "count=many")
    assert wrong.code == 2
    assert "argument 'count'" in wrong.err
    assert place.duly("job", "submit", "work", "other=1").code == 2


def test_every_option_reaches_the_job(place: Place) -> None:
    place.publish()
    answer = place.good(
        *("job", "submit", "work", "to=x", "--queue", "bulk", "--priority", "urgent"),
        *("--delay", "1h", "--key", "k", "--key-window", "10m", "--retries", "7"),
        *("--timeout", "90s", "--expires", "2h", "--tag", "a", "--tag", "b"),
        *("--tenant", "acme", "--owner", "ada"),
    )
    job = place.scene.get(UUID(answer.out.strip()))
    assert (job.queue, job.priority, job.key, job.key_window) == ("bulk", 20, "k", 600)
    assert (job.max_attempts, job.timeout, job.tags) == (8, 90, ("a", "b"))
    assert (job.tenant, job.owner) == ("acme", "ada")
    assert job.run_at - job.created_at == timedelta(hours=1)
    assert job.expires_at is not None
    assert job.expires_at - job.created_at == timedelta(hours=2)
    assert "due in 1 h" in answer.err


def test_at_a_time(place: Place) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    answer = place.good("job", "submit", "x", "--unchecked", "--at", at.isoformat())
    assert place.scene.get(UUID(answer.out.strip())).run_at == at


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--at", "tomorrow"], "--at: 'tomorrow' is not an instant"),
        (["--at", "2026-11-16T09:00"], "has no time zone"),
        (["--at", "2026-11-16T09:00Z", "--delay", "1h"], "either --delay or --at"),
        (["--delay", "soon"], "--delay: 'soon' is not a duration"),
        (["--priority", "101"], "--priority: 101 is not a priority"),
        (["--queue", "a b"], "queue: 'a b' is not a name"),
        (["--retries", "x"], "not a valid integer"),
        (["--key-policy", "x"], "is not one of"),
        (["--wait=x"], "--wait: 'x' is not a duration"),
        (["--wait", "x=1"], "put --wait at the end"),
    ],
)
def test_bad_options_are_refused(place: Place, options: list[str], problem: str) -> None:
    answer = place.duly("job", "submit", "x", "--unchecked", *options)
    assert answer.code == 2
    assert problem in answer.err
    assert place.scene.counts() == {}


def test_an_unknown_task_is_refused_with_what_to_do(place: Place) -> None:
    place.publish()
    answer = place.duly("job", "submit", "nope")
    assert answer.code == 2
    assert "unknown task 'nope'" in answer.err
    assert "known: work" in answer.err
    assert "--unchecked" in answer.err
    assert "app.named" not in answer.err


def test_a_submission_that_cannot_succeed_makes_no_database(tmp_path: Path) -> None:
    answer = run("job", "submit", "nope")
    assert answer.code == 1
    assert "there is no database" in answer.err
    assert not (tmp_path / "duly.db").exists()


def test_tasks_and_database_of_an_app(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_for_submit.py").write_text(SHOP)
    monkeypatch.setenv("DULY_URL", "sqlite:///other.db")
    app = ("--app", "shop_for_submit:app")
    answer = place.good("job", "submit", "send", "to=x", *app, "--url", place.url, "--json")
    assert answer.json["queue"] == "mail"
    assert place.scene.state(UUID(answer.json["id"])) is State.PENDING
    wrong = place.duly("job", "submit", "send", "to=5", *app)
    assert wrong.code == 2
    assert "as text it is to='\"5\"'" in wrong.err


def test_wait_prints_the_result(place: Place) -> None:
    place.publish()
    done = place.scene.finished(task="work", key="k", key_window=600.0)
    answer = place.duly("job", "submit", "work", "to=x", "--key", "k", "--wait")
    assert answer.code == 0
    assert answer.lines == [str(done.id), "null"]


def test_wait_gives_up_after_its_time(place: Place) -> None:
    answer = place.duly("job", "submit", "x", "--unchecked", "--wait", "0.05s")
    assert answer.code == 124
    assert "has not finished: ready for" in answer.err
    assert place.duly("job", "submit", "x", "--unchecked", "--wait=0s", "--json").code == 124
