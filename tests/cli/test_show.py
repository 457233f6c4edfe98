"""duly job show: one job in full, and nothing in it that acts."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from duly.model.attempt import Failure
from duly.model.job import JobRecord, plain
from duly.model.report import Progress
from duly.model.settlement import bury, retry
from tests.cli.driving import Place
from tests.support.stores import failure

HOSTILE = "\x1b[31mred\x1b[0m\r\n\x9b2J \u202eevil\u2028 \x07"


def test_json_keys(anyplace: Place) -> None:
    job = anyplace.scene.dead(arguments='{"n":1}')
    answer = anyplace.good("job", "show", job.id, "--json").json
    assert set(answer) == {*plain(job), "status", "explanation", "progress", "steps", "attempts"}
    assert set(answer["explanation"]) == {"cause", "sentence"}
    (attempt,) = answer["attempts"]
    assert set(attempt) == {
        *("job_id", "token", "number", "generation", "worker"),
        *("started_at", "ended_at", "outcome", "error"),
    }
    assert set(attempt["error"]) == {"type", "message", "traceback", "fingerprint"}
    assert answer["arguments"] == {"n": 1}
    assert answer["created_at"].endswith("Z")


def test_a_dead_job_in_full(anyplace: Place) -> None:
    scene = anyplace.scene
    job = scene.submit(max_attempts=2, arguments='{"to":"ada"}', tags=("a", "b"), key="k")
    scene.fail(scene.take(), message="first")
    scene.kill(scene.take(), "attempts exhausted")
    out = anyplace.good("job", "show", job.id).out
    for expected in (
        f"Job        {job.id}",
        "Status     dead",
        "after attempt 2 of 2, attempts exhausted: ValueError: boom",
        'Arguments  {"to":"ada"}',
        "Tags       a, b",
        "Key        k",
        "1  failed",
        "2  failed",
        "ValueError: first",
        "Traceback of attempts 1, 2\n  Traceback ...",
    ):
        assert expected in out


def test_attempts_of_a_replayed_job_carry_their_generation(place: Place) -> None:
    job = place.scene.dead()
    place.scene.replay(job.id)
    other = Failure("KeyError", "'x'", "Traceback of another fault", "f")
    claimed = place.scene.take()
    place.scene.settle(bury(claimed.id, claimed.token, "not worth another attempt", other))
    out = place.good("job", "show", job.id).out
    assert "Traceback of attempt 1.1\n  Traceback ..." in out
    assert "Traceback of attempt 2.1\n  Traceback of another fault" in out
    assert "Replays    1" in out


def test_a_running_job_names_its_worker_and_progress(anyplace: Place) -> None:
    scene = anyplace.scene
    job = scene.submit()
    claimed = scene.take(scene.hire(name="host-a:4711"))
    told = Progress(job.id, claimed.token, 0.4, "rows 400 of 1000", scene.now)
    scene.store.run(scene.store.report([told], []))
    out = anyplace.good("job", "show", job.id).out
    assert "running on worker host-a:4711 since" in out
    assert "Worker     host-a:4711" in out
    assert "Progress   40% rows 400 of 1000" in out


def test_long_values_are_laid_out_and_very_long_ones_cut(place: Place) -> None:
    laid_out = place.scene.submit(arguments='{"text":"%s","n":1}' % ("x" * 100))
    out = place.good("job", "show", laid_out.id).out
    assert f'Arguments  {{\n             "text": "{"x" * 100}",\n             "n": 1\n' in out
    long = place.scene.submit(arguments='{"text":"%s"}' % ("x" * 100_000))
    out = place.good("job", "show", long.id).out
    assert "100,011 characters in all; --json shows them" in out
    assert len(out) < 2_000


def test_hostile_texts_of_a_live_job_are_shown_inert(anyplace: Place) -> None:
    job = _hostile(anyplace, 2)
    store = anyplace.scene.store
    store.run(store.pause_queue("default", HOSTILE))
    _shown_inert(anyplace, "job", "list")
    _shown_inert(anyplace, "job", "show", job.id)
    _shown_inert(anyplace, "job", "explain", job.id)
    _shown_inert(anyplace, "queue", "list")
    assert anyplace.good("job", "show", job.id, "--json").json["key"] == HOSTILE


def test_hostile_texts_of_a_dead_job_are_shown_inert(anyplace: Place) -> None:
    job = _hostile(anyplace, 1)
    _shown_inert(anyplace, "dead", "list")
    _shown_inert(anyplace, "dead", "list", "--group")
    _shown_inert(anyplace, "dead", "show", job.id)
    waited = anyplace.duly("job", "wait", job.id)
    assert waited.code == 1
    _inert(waited.out)


def _hostile(place: Place, max_attempts: int) -> JobRecord:
    """A job whose every text tries to act, after a failed attempt."""
    scene = place.scene
    texts = {"key": HOSTILE, "owner": HOSTILE, "tenant": HOSTILE, "tags": (HOSTILE,)}
    scene.submit(**texts, max_attempts=max_attempts)
    claimed = scene.take(scene.hire(name=HOSTILE))
    error = Failure(HOSTILE, HOSTILE, f"Traceback\n{HOSTILE}", HOSTILE)
    if max_attempts > 1:
        scene.settle(retry(claimed.id, claimed.token, timedelta(hours=1), error))
    else:
        scene.settle(bury(claimed.id, claimed.token, HOSTILE, error))
    return scene.get(claimed.id)


def _shown_inert(place: Place, *command: object) -> None:
    _inert(place.good(*command).out)
    _inert(place.good(*command, "--json").out)


def _inert(text: str) -> None:
    assert not set(text) & set("\x1b\r\x9b\u202e\u2028\x07")
    assert "red" not in [line.strip() for line in text.splitlines()]


def test_the_recorded_failure_is_the_one_shown(place: Place) -> None:
    job = place.scene.dead()
    shown = place.good("job", "show", job.id, "--json").json["error"]
    assert shown["message"] == failure().message


def test_no_such_job(place: Place) -> None:
    answer = place.duly("job", "show", uuid4())
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("Error: no job ")
