"""duly dead: list, show, replay, purge."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from duly.model.attempt import Failure
from duly.model.job import JobRecord, State
from duly.model.query import Replay
from duly.model.settlement import bury
from duly.model.step import Step, StepKind, StepState, StepWrite
from tests.cli.driving import Place


def _die(place: Place, kind: str, **fields: object) -> JobRecord:
    job = place.scene.submit(**fields)
    holder = place.scene.hire()
    (claimed,) = place.scene.claim(holder, 1, (job.queue,), (job.task,))
    error = Failure(kind, "boom", "Traceback ...", f"{kind}:place")
    place.scene.settle(bury(claimed.id, claimed.token, "attempts exhausted", error))
    return place.scene.get(job.id)


def _listed(place: Place, *options: object) -> list[str]:
    return [job["id"] for job in place.good("dead", "list", "--json", *options).json["jobs"]]


def test_list_and_its_filters(anyplace: Place) -> None:
    first = _die(anyplace, "ValueError")
    anyplace.scene.advance(-7200)
    old = _die(anyplace, "KeyError", queue="mail", task="send")
    anyplace.scene.advance(7200)
    anyplace.scene.submit()
    assert _listed(anyplace) == [str(old.id), str(first.id)]
    assert _listed(anyplace, "--queue", "mail") == [str(old.id)]
    assert _listed(anyplace, "--task", "send") == [str(old.id)]
    assert _listed(anyplace, "--fingerprint", "ValueError:place") == [str(first.id)]
    assert _listed(anyplace, "--since", "1h") == [str(first.id)]
    page = anyplace.good("dead", "list", "--json", "--limit", 1).json
    assert page["next"] == str(old.id)
    assert _listed(anyplace, "--before", old.id) == [str(first.id)]
    table = anyplace.good("dead", "list")
    assert table.lines[0].split() == ["ID", "TASK", "QUEUE", "DIED", "ERROR"]
    assert table.lines[1].endswith("KeyError: boom")


def test_groups(anyplace: Place) -> None:
    _die(anyplace, "ValueError")
    last = _die(anyplace, "ValueError")
    _die(anyplace, "KeyError")
    answer = anyplace.good("dead", "list", "--group", "--json").json["groups"]
    assert [(group["jobs"], group["fingerprint"]) for group in answer] == [
        (2, "ValueError:place"),
        (1, "KeyError:place"),
    ]
    assert set(answer[0]) == {
        *("fingerprint", "task", "jobs", "first_died_at", "last_died_at"),
        *("reason", "error", "example"),
    }
    assert answer[0]["error"] == {"type": "ValueError", "message": "boom"}
    assert answer[0]["example"] == str(last.id)
    table = anyplace.good("dead", "list", "--group").lines
    assert table[1].split()[:3] == ["2", "ValueError:place", "work"]


def test_nothing_is_dead(place: Place) -> None:
    for options in ((), ("--group",)):
        answer = place.good("dead", "list", *options)
        assert (answer.out, answer.err) == ("", "No dead jobs match.\n")


def test_show_is_for_dead_jobs(place: Place) -> None:
    dead = _die(place, "ValueError")
    assert "ValueError: boom" in place.good("dead", "show", dead.id).out
    assert place.good("dead", "show", dead.id, "--json").json["status"] == "dead"
    live = place.scene.submit()
    answer = place.duly("dead", "show", live.id)
    assert answer.code == 2
    assert "is pending, not dead" in answer.err


def test_replay_by_id(anyplace: Place) -> None:
    dead = _die(anyplace, "ValueError")
    answer = anyplace.good("dead", "replay", dead.id, "--yes")
    assert answer.out == "1 job replayed\n"
    assert anyplace.scene.get(dead.id).generation == 2
    again = anyplace.duly("dead", "replay", dead.id, "--yes", "--json")
    assert again.code == 1
    assert again.json == {
        "replayed": 0,
        "not_dead": 1,
        "key_held": 0,
        "flow_ending": 0,
        "unknown": 0,
    }


@pytest.mark.parametrize("forget", [False, True])
def test_replay_goes_on_from_the_steps_or_forgets_them(anyplace: Place, forget: bool) -> None:
    scene = anyplace.scene
    scene.submit()
    job = scene.take()
    step = Step(
        job_id=job.id,
        name="charge",
        key="",
        kind=StepKind.CALL,
        state=StepState.DONE,
        number=1,
        attempt=1,
    )
    scene.store.run(scene.store.record([StepWrite(token=job.token, step=step)], scene.now))
    scene.settle(bury(job.id, job.token, "attempts exhausted", Failure("E", "boom")))
    anyplace.good("dead", "replay", job.id, "--yes", *(["--forget-steps"] if forget else []))
    left = scene.store.run(scene.store.steps(job.id, scene.now)).steps
    assert [each.name for each in left] == ([] if forget else ["charge"])


def test_replay_by_filter_and_all(anyplace: Place) -> None:
    wanted = _die(anyplace, "ValueError")
    other = _die(anyplace, "KeyError", queue="mail")
    anyplace.good("dead", "replay", "--fingerprint", "ValueError:place", "--yes")
    assert anyplace.scene.state(wanted.id) is State.PENDING
    assert anyplace.scene.state(other.id) is State.DEAD
    answer = anyplace.good("dead", "replay", "--all", "--yes", "--json")
    assert answer.json["replayed"] == 1
    assert anyplace.scene.state(other.id) is State.PENDING
    answer = anyplace.good("dead", "replay", "--all", "--yes")
    assert (answer.out, answer.err) == ("", "No dead jobs match.\n")


def test_replay_in_several_batches(place: Place) -> None:
    jobs = place.scene.submit_many(450)
    claimed = place.scene.claim(place.scene.hire(), 450)
    error = Failure("ValueError", "boom")
    place.scene.settle(*(bury(each.id, each.token, "x", error) for each in claimed))
    answer = place.good("dead", "replay", "--queue", "default", "--yes")
    assert answer.out == "450 jobs replayed\n"
    assert place.scene.counts() == {("default", State.PENDING): len(jobs)}


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_replay_asks_with_the_count_first(place: Place, typed: str) -> None:
    dead = [_die(place, "ValueError") for _ in range(2)]
    answer = place.duly("dead", "replay", "--all", stdin=typed)
    assert answer.code == 1
    assert "Replay 2 jobs? [y/N]" in answer.err
    assert "Nothing was changed" in answer.err
    assert answer.out == ""
    assert {place.scene.state(job.id) for job in dead} == {State.DEAD}
    assert place.duly("dead", "replay", "--all", stdin="y\n").code == 0


def test_replay_with_other_arguments(place: Place) -> None:
    place.publish()
    dead = _die(place, "ValueError", arguments='{"to":"typo"}')
    answer = place.duly("dead", "replay", dead.id, "--yes", "--args", '{"to":5}')
    assert answer.code == 2
    assert place.scene.state(dead.id) is State.DEAD
    place.good("dead", "replay", dead.id, "--yes", "--args", "-", stdin='{"to":"ada"}')
    assert json.loads(place.scene.get(dead.id).arguments) == {"to": "ada"}


def test_replay_when_another_job_holds_the_key(place: Place) -> None:
    dead = _die(place, "ValueError", key="k")
    place.scene.submit(key="k")
    answer = place.duly("dead", "replay", dead.id, "--yes")
    assert answer.code == 1
    assert answer.out == "1 job not replayed, because another job holds their key by now\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "say which"),
        (["--all", "--queue", "mail"], "choose one way"),
        (["0" * 32, "--all"], "choose one way"),
        (["--all", "--args", "{}"], "--args needs exactly one ID"),
    ],
)
def test_replay_wants_to_know_which(place: Place, options: list[str], problem: str) -> None:
    answer = place.duly("dead", "replay", *options, "--yes")
    assert answer.code == 2
    assert problem in answer.err


def test_purge(anyplace: Place) -> None:
    anyplace.scene.advance(-7200)
    old = _die(anyplace, "ValueError")
    anyplace.scene.advance(7200)
    young = _die(anyplace, "ValueError")
    other = _die(anyplace, "ValueError", queue="mail")
    answer = anyplace.good("dead", "purge", "--older-than", "1h", "--yes")
    assert answer.out == "1 job deleted\n"
    assert anyplace.duly("job", "show", old.id).code == 2
    answer = anyplace.duly("dead", "purge", "--queue", "mail", stdin="y\n")
    assert "Delete 1 dead job for good? [y/N]" in answer.err
    assert _listed(anyplace) == [str(young.id)]
    assert anyplace.duly("job", "show", other.id).code == 2
    assert anyplace.duly("dead", "purge", "--all", stdin="").code == 1
    assert anyplace.good("dead", "purge", "--all", "--yes", "--json").json == {"purged": 1}
    nothing = anyplace.good("dead", "purge", "--all")
    assert (nothing.out, nothing.err) == ("", "No dead jobs match.\n")
    assert anyplace.scene.counts() == {}


def test_list_replay_and_purge_choose_alike(anyplace: Place) -> None:
    anyplace.scene.advance(-7200)
    old = _die(anyplace, "ValueError")
    anyplace.scene.advance(7200)
    young = _die(anyplace, "KeyError", task="send")
    other = _die(anyplace, "OSError", queue="mail")
    ways = [
        (("--task", "send"), young),
        (("--fingerprint", "KeyError:place"), young),
        (("--older-than", "1h"), old),
        (("--since", "1h", "--queue", "mail"), other),
    ]
    for options, dead in ways:
        assert _listed(anyplace, *options) == [str(dead.id)]
        refused = anyplace.duly("dead", "replay", *options, stdin="n\n")
        assert "Replay 1 job?" in refused.err
        refused = anyplace.duly("dead", "purge", *options, stdin="n\n")
        assert "Delete 1 dead job for good?" in refused.err
    assert len(_listed(anyplace)) == 3
    anyplace.good("dead", "purge", "--fingerprint", "KeyError:place", "--yes")
    anyplace.good("dead", "purge", other.id, "--yes")
    assert _listed(anyplace) == [str(old.id)]


def test_purge_wants_to_know_which(place: Place) -> None:
    assert place.duly("dead", "purge", "--yes").code == 2
    assert place.duly("dead", "purge", "--all", "--queue", "x", "--yes").code == 2


def test_every_outcome_has_words() -> None:
    from duly.cli.dead import REPLAYED_AS

    assert set(REPLAYED_AS) == set(Replay)


def test_ids_can_be_shortened(place: Place) -> None:
    dead = _die(place, "ValueError")
    shown = place.good("dead", "show", str(dead.id)[:23], "--json").json
    assert UUID(shown["id"]) == dead.id
