"""duly schedule: list, show, pause, resume, trigger, backfill, remove."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.model.job import JobRecord, Priority, State
from duly.model.schedule import CatchUp, Definition, JobTemplate, Overlap, ScheduleRecord
from duly.policy.recurrence import Cron, Every, Recurrence
from duly.service.schedules import Schedules
from duly.store.conversation import converse
from tests.cli.driving import Place, run_process

KEYS = {*ScheduleRecord.__struct_fields__, "declared", "status", "description"}
HOURLY = Recurrence((Cron("0 * * * *", "Europe/Berlin"),), zone="Europe/Berlin")
TICK_KEYS = {
    *("schedule_id", "nominal", "kind", "outcome", "reason", "until", "count", "job_id", "at"),
    "job_state",
}


def make(
    place: Place,
    name: str = "hourly",
    recurrence: Recurrence = HOURLY,
    ago: timedelta = timedelta(0),
    **fields: Any,
) -> ScheduleRecord:
    """A schedule that was made some time ago, and that nobody has looked at since."""
    definition = Definition(
        **{
            "task": "work",
            "arguments": '{"to":"ada"}',
            "recurrence": msgspec.json.encode(recurrence).decode(),
            **fields,
        }
    )
    store = place.scene.store
    return converse(Schedules(store, datetime.now(UTC) - ago).add(name, definition), store.run)


def jobs_of(place: Place) -> list[dict[str, Any]]:
    """All jobs."""
    found: list[dict[str, Any]] = place.good("job", "list", "--json").json["jobs"]
    return found


def test_list(anyplace: Place) -> None:
    make(anyplace, ago=timedelta(hours=30))
    make(anyplace, "beat", Recurrence((Every(3600),)))
    anyplace.good("schedule", "pause", "hourly", "--note", "provider is down")
    table = anyplace.good("schedule", "list").lines
    assert table[0].split() == [
        *("NAME", "STATUS", "NEXT", "LAST", "OUTCOME", "TASK", "RULE", "NOTE")
    ]
    assert table[1].split()[:3] == ["beat", "active", "in"]
    assert "every hour" in table[1]
    assert table[2].split()[:3] == ["hourly", "paused", "-"]
    assert table[2].endswith("provider is down")
    assert " pending " in table[2]
    answer = anyplace.good("schedule", "list", "--json").json
    assert set(answer) == {"schedules", "next"}
    beat, hourly = answer["schedules"]
    assert set(beat) == {*KEYS, "last_tick"}
    assert beat["last_tick"] is None
    assert set(hourly["last_tick"]) == TICK_KEYS
    assert hourly["last_tick"]["job_state"] == "pending"


def test_pages(place: Place) -> None:
    for name in "abc":
        make(place, name)
    first = place.good("schedule", "list", "--limit", 2, "--json").json
    assert [each["id"] for each in first["schedules"]] == ["a", "b"]
    second = place.good("schedule", "list", "--after", first["next"], "--json").json
    assert [each["id"] for each in second["schedules"]] == ["c"]
    assert second["next"] is None
    assert "--after b" in place.good("schedule", "list", "--limit", 2).err


def test_no_schedules(place: Place) -> None:
    answer = place.good("schedule", "list")
    assert (answer.out, answer.err) == ("", "There are no schedules.\n")


def test_show(anyplace: Place) -> None:
    make(anyplace, ago=timedelta(hours=30))
    late = anyplace.good("schedule", "show", "hourly").out
    assert "it is late: does a worker or `duly scheduler` run?" in late
    anyplace.good("schedule", "pause", "hourly", "--note", "provider is down")
    shown = anyplace.good("schedule", "show", "hourly", "--count", 2)
    assert "Rule       every hour, Europe/Berlin" in shown.out
    assert "Note       provider is down" in shown.out
    assert "Next fires, once it is resumed" in shown.out
    fires = shown.lines.index("Next fires, once it is resumed")
    assert shown.lines[fires + 1].split() == ["Europe/Berlin", "UTC", "DISTANCE"]
    assert shown.lines[fires + 4] == ""
    ticks = shown.lines[shown.lines.index("Last ticks") :]
    assert ticks[1].split() == ["NOMINAL", "TIME", "(UTC)", "TICKS", "KIND", "OUTCOME", "DETAIL"]
    assert ticks[2].split()[2:5] == ["1", "tick", "pending"]
    assert ticks[3].split()[3:5] == ["tick", "coalesced"]
    assert "coalesced into the tick of" in ticks[3]
    answer = anyplace.good("schedule", "show", "hourly", "--json").json
    assert set(answer) == {*KEYS, "live", "fires", "ticks"}
    assert (answer["live"], answer["status"], len(answer["fires"])) == (True, "paused", 10)
    assert set(answer["fires"][0]) == {"utc", "local", "since_previous", "notes"}
    latest, earlier = answer["ticks"]
    assert set(latest) == TICK_KEYS
    assert (latest["outcome"], latest["job_state"]) == ("fired", "pending")
    assert earlier["outcome"] == "coalesced"
    assert earlier["count"] in (29, 30), "the hour may have changed meanwhile"


def test_show_has_what_was_chosen(place: Place) -> None:
    template = JobTemplate(
        queue="mail",
        priority=Priority.HIGH,
        max_attempts=4,
        timeout=90.0,
        expires_after=3600.0,
        tags=("a", "b"),
        tenant="acme",
        owner="billing",
        metadata='{"a":1}',
    )
    make(
        place,
        template=template,
        overlap=Overlap.BUFFER_ALL,
        catch_up=CatchUp.ALL,
        catch_up_window=7200.0,
        pause_after_failures=3,
    )
    shown = place.good("schedule", "show", "hourly").lines
    fields = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in shown if "  " in line}
    assert fields["Queue"] == "mail, priority 10"
    assert fields["Overlap"] == "buffer_all"
    assert fields["Catch-up"] == "all within 2h"
    assert fields["Failures"] == "0 in a row; it is paused after 3"
    assert (fields["Retries"], fields["Time limit"], fields["Expires"]) == ("3", "1m30s", "1h")
    assert (fields["Tags"], fields["Tenant"], fields["Owner"]) == ("a, b", "acme", "billing")
    assert (fields["Metadata"], fields["Made"]) == ('{"a":1}', "at run time")


def test_a_fixed_delay(place: Place) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    make(place, "sweep", Recurrence((Every(300),), start=start), after_finish=300.0)
    shown = place.good("schedule", "show", "sweep").out
    assert "5 minutes after the end of the job before; from 2026-01-01 00:00:00 UTC" in shown
    assert "Overlap" not in shown
    assert "Next fires" not in shown
    refused = place.duly("schedule", "backfill", "sweep", "7d", "now", "--yes")
    assert refused.code == 2
    assert "a fixed delay has no nominal times in the past" in refused.err


def test_one_that_has_ended(place: Place) -> None:
    now = datetime.now(UTC)
    over = Recurrence((Every(60),), end=now - timedelta(hours=1))
    make(place, "over", over, ago=timedelta(hours=2))
    place.good("schedule", "pause", "over")
    place.good("schedule", "resume", "over")
    assert place.good("schedule", "show", "over", "--json").json["status"] == "ended"
    assert "never again" in place.good("schedule", "show", "over").out


def test_pause_and_resume(anyplace: Place) -> None:
    make(anyplace)
    answer = anyplace.good("schedule", "pause", "hourly", "--note", "until noon")
    assert "duly schedule resume hourly" in answer.err
    paused = anyplace.good("schedule", "pause", "hourly", "--json").json
    assert (set(paused), paused["paused"], paused["note"]) == (KEYS, True, None)
    resumed = anyplace.good("schedule", "resume", "hourly", "--json").json
    assert set(resumed) == {*KEYS, "was_paused"}
    assert (resumed["paused"], resumed["was_paused"]) == (False, True)
    assert "was not paused" in anyplace.good("schedule", "resume", "hourly").err


def test_trigger_prints_the_id_of_the_job(anyplace: Place) -> None:
    make(anyplace)
    anyplace.good("schedule", "pause", "hourly")
    answer = anyplace.good("schedule", "trigger", "hourly")
    job = anyplace.scene.get(UUID(answer.out.strip()))
    assert (job.schedule_id, job.state) == ("hourly", State.PENDING)
    assert answer.err == "Submitted work to queue default, due now.\n"
    told = anyplace.good("schedule", "trigger", "hourly", "--json").json
    assert set(told) == {*JobRecord.__struct_fields__, "status"}
    assert len(jobs_of(anyplace)) == 2


def test_backfill_asks_with_the_count(anyplace: Place) -> None:
    make(anyplace, overlap=Overlap.ALLOW)
    refused = anyplace.duly("schedule", "backfill", "hourly", "2026-01-01", "2026-01-01")
    assert refused.code == 1
    assert (
        "Make 24 jobs of work for times from 2025-12-31 23:00 UTC to 2026-01-01 22:59:59 UTC? "
    ) in refused.err
    assert "Nothing was changed" in refused.err
    assert jobs_of(anyplace) == []
    done = anyplace.good(
        *("schedule", "backfill", "hourly", "2026-01-01", "2026-01-01"), stdin="y\n"
    )
    assert done.out == "24 ticks filled in\n"
    assert len(jobs_of(anyplace)) == 24
    asked = anyplace.duly("schedule", "backfill", "hourly", "2026-01-01T20:00Z", "2026-01-02")
    assert "Make 24 jobs" in asked.err
    assert "(3 more have one already)" in asked.err


def test_backfill_in_json(place: Place) -> None:
    make(place)
    backfill = ("schedule", "backfill", "hourly", "2026-01-01T00:00Z", "2026-01-01T03:00Z")
    first = place.good(*backfill, "--yes", "--json").json
    assert first == {"schedule": "hourly", "made": 4, "already": 0}
    again = place.good(*backfill, "--json").json
    assert again == {"schedule": "hourly", "made": 0, "already": 4}
    assert "4 ticks, made or waiting already" in place.good(*backfill).err


def test_backfill_of_nothing(place: Place) -> None:
    make(place)
    answer = place.good("schedule", "backfill", "hourly", "2100-01-01", "2100-01-02")
    assert "no past time in that range" in answer.err


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2026-01-02", "2026-01-01", "is before FROM"),
        ("yesterday", "now", "FROM: 'yesterday' is not a duration"),
        ("2026-03-29T02:30", "now", "is skipped on the clocks of Europe/Berlin"),
    ],
)
def test_a_bad_range(place: Place, first: str, last: str, said: str) -> None:
    make(place)
    answer = place.duly("schedule", "backfill", "hourly", first, last, "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_remove_asks(anyplace: Place) -> None:
    make(anyplace)
    refused = anyplace.duly("schedule", "remove", "hourly", stdin="n\n")
    assert refused.code == 1
    assert "Remove schedule hourly (every hour, Europe/Berlin" in refused.err
    assert anyplace.good("schedule", "remove", "hourly", "--yes").err == (
        "Schedule hourly is removed.\n"
    )
    make(anyplace)
    answer = anyplace.good("schedule", "remove", "hourly", "--yes", "--json").json
    assert answer == {"schedule": "hourly", "removed": True}


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nope"),
        ("pause", "nope"),
        ("resume", "nope"),
        ("trigger", "nope"),
        ("backfill", "nope", "7d", "now"),
        ("remove", "nope"),
    ],
)
def test_an_unknown_schedule(place: Place, arguments: tuple[str, ...]) -> None:
    answer = place.duly("schedule", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "no schedule 'nope'" in answer.err


def test_notes_are_inert(place: Place) -> None:
    make(place)
    place.good("schedule", "pause", "hourly", "--note", "a\x1b[31mb\nc")
    for verb in (("list",), ("show", "hourly")):
        assert r"a\x1b[31mb\nc" in place.good("schedule", *verb).out


def test_as_a_process_of_its_own(place: Place) -> None:
    make(place)
    triggered = run_process(place, "schedule", "trigger", "hourly")
    assert triggered.returncode == 0
    assert place.scene.get(UUID(triggered.stdout.strip())).schedule_id == "hourly"
    asked = run_process(place, "schedule", "remove", "hourly")
    assert asked.returncode == 1
    assert "Nothing was changed" in asked.stderr
