"""duly schedule add."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.driving import Place, run

EVERY = ("--every", "5m")
CALENDAR = ("--anchor", "2027-01-31T09:00", "--calendar")


def add(place: Place, *arguments: object) -> Any:
    return place.good("schedule", "add", *arguments, "--json").json


def test_a_cron_schedule_with_everything(anyplace: Place) -> None:
    anyplace.publish()
    made = add(
        anyplace,
        *("nightly", "work", "to=ada", "count=3", "--cron", "0 2 * * *"),
        *("--tz", "America/New_York", "--overlap", "buffer_all", "--catch-up", "all"),
        *("--window", "2d", "--pause-after", 3, "--start", "2027-01-01", "--end", "2027-12-31"),
        *("--jitter", "5m", "--exclude", "2027-12-25", "--queue", "night", "--priority", "high"),
        *("--retries", 2, "--timeout", "90s", "--expires", "1h", "--tag", "a", "--tag", "b"),
        *("--tenant", "acme", "--owner", "billing", "--gap", "skip"),
    )
    definition = made["definition"]
    assert (made["id"], made["declared"], made["status"]) == ("nightly", False, "active")
    assert made["next_at"] == "2027-01-01T07:00:00Z"
    assert definition["arguments"] == {"to": "ada", "count": 3}
    assert definition["template"] == {
        "queue": "night",
        "priority": 10,
        "max_attempts": 3,
        "max_crashes": 3,
        "timeout": 90.0,
        "expires_after": 3600.0,
        "delivery": "at_least_once",
        "tags": ["a", "b"],
        "tenant": "acme",
        "owner": "billing",
        "metadata": None,
    }
    assert (definition["overlap"], definition["catch_up"]) == ("buffer_all", "all")
    assert (definition["catch_up_window"], definition["pause_after_failures"]) == (172_800.0, 3)
    recurrence = definition["recurrence"]
    assert recurrence["rules"][0]["gap"] == "skip"
    assert recurrence["zone"] == "America/New_York"
    assert recurrence["start"] == "2027-01-01T05:00:00Z"
    assert recurrence["end"] == "2028-01-01T04:59:59.999999Z"
    assert recurrence["excluded_dates"] == ["2027-12-25"]
    assert recurrence["jitter_seconds"] == 300


def test_says_what_was_made(place: Place) -> None:
    place.publish()
    answer = place.good(
        *("schedule", "add", "once", "work", "--args", '{"to": "ada"}'),
        *("--at", "2090-01-01T09:00", "--tz", "Europe/Berlin"),
    )
    assert answer.out == ""
    assert answer.err.splitlines()[0] == "Added once: once, at 2090-01-01 08:00:00 UTC."
    assert answer.err.splitlines()[1].startswith("Next: 2090-01-01 08:00 UTC (in ")
    assert answer.err.count("\n") == 2


def test_what_the_task_says_holds_otherwise(place: Place) -> None:
    place.publish()
    template = add(place, "a", "work", "to=x", *EVERY)["definition"]["template"]
    assert (template["queue"], template["max_attempts"]) == ("mail", 4)


def test_fixed_delay(place: Place) -> None:
    place.publish()
    made = add(place, "sweep", "work", "to=x", *EVERY, "--after-finish")
    assert made["definition"]["after_finish"] == 300.0
    assert made["description"] == "5 minutes after the end of the job before"


def test_as_the_calendar_counts(place: Place) -> None:
    place.publish()
    made = add(place, "rent", "work", "to=x", *CALENDAR, "1 month", "--tz", "Europe/Berlin")
    assert made["definition"]["recurrence"]["rules"] == [
        {
            "kind": "calendar",
            "every": 1,
            "unit": "month",
            "anchor": "2027-01-31T09:00:00",
            "zone": "Europe/Berlin",
            "short_month": "last",
            "gap": None,
            "fold": None,
        }
    ]
    skipping = add(place, "b", "work", "to=x", *CALENDAR, "2 Months", "--short-month", "skip")
    assert skipping["definition"]["recurrence"]["rules"][0]["short_month"] == "skip"


def test_a_task_that_nobody_has_published(anyplace: Place) -> None:
    made = add(anyplace, "a", "later", "any=1", *EVERY, "--unchecked")
    assert (made["definition"]["task"], made["definition"]["arguments"]) == ("later", {"any": 1})
    refused = anyplace.duly("schedule", "add", "b", "later", *EVERY)
    assert refused.code == 2
    assert "--unchecked" in refused.err


def test_several_rules(place: Place) -> None:
    place.publish()
    made = add(
        place,
        *("mixed", "work", "to=x", *EVERY, "--cron", "0 9 * * *", "--cron", "0 18 * * *"),
        *("--at", "2090-01-01", "--max-fires", 1000),
    )
    rules = made["definition"]["recurrence"]["rules"]
    assert [rule["kind"] for rule in rules] == ["cron", "cron", "every", "moments"]
    assert made["definition"]["recurrence"]["start"] is not None


def test_a_name_that_is_taken(anyplace: Place) -> None:
    anyplace.publish()
    add(anyplace, "a", "work", "to=x", *EVERY)
    answer = anyplace.duly("schedule", "add", "a", "work", "to=x", *EVERY)
    assert answer.code == 1
    assert "there is one of this name" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "work", "to=x"], "say when"),
        (["a", "work", "to=x", "--cron", "0 2 * *"], "4 fields, 5 are needed"),
        (["a", "work", *EVERY], "it is required, and missing"),
        (["a", "work", "to=7", *EVERY], "as text it is to='\"7\"'"),
        (["a", "work", "to=x", "wrong=1", *EVERY], "wrong"),
        (["a", "work", "nonsense", *EVERY], "expected name=value"),
        (["a", "nope", *EVERY], "no worker has published it (known: work)"),
        (["a b", "work", "to=x", *EVERY], "name: 'a b' is not a name"),
        (["a", "work", "to=x", *EVERY, "--window", "2d"], "--window is for --catch-up all"),
        (["a", "work", "to=x", *EVERY, "--after-finish", "--window", "2d"], "give no --window"),
        (["a", "work", "to=x", *EVERY, "--after-finish", "--overlap", "allow"], "no --overlap"),
        (["a", "work", "to=x", "--cron", "@daily", "--after-finish"], "needs --every"),
        (["a", "work", "to=x", *EVERY, "--at", "2090-01-01", "--after-finish"], "no other rule"),
        (["a", "work", "to=x", *EVERY, "--after-finish", "--max-fires", "3"], "no --max-fires"),
        (["a", "work", "to=x", "--calendar", "1 month"], "give it as --anchor"),
        (["a", "work", "to=x", *CALENDAR, "1 lunation"], "--calendar: '1 lunation' is not a"),
        (["a", "work", "to=x", *EVERY, "--anchor", "2027-01-31"], "--calendar, and it is missing"),
        (["a", "work", "to=x", *EVERY, "--timeout", "soon"], "--timeout: 'soon'"),
        (["a", "work", "to=x", *EVERY, "--timeout", "0"], "--timeout: it is zero"),
        (["a", "work", "to=x", *EVERY, "--priority", "top"], "--priority: 'top'"),
        (["a", "work", "to=x", "--at", "2020-01-01"], "it has no time to come"),
    ],
)
def test_what_is_wrong_is_said(place: Place, arguments: list[str], said: str) -> None:
    place.publish()
    answer = place.duly("schedule", "add", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert place.good("schedule", "list", "--json").json["schedules"] == []


def test_a_task_from_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (tmp_path / "shop.py").write_text(
        "import duly\napp = duly.App()\n@app.task(queue='mail')\ndef send(to: str) -> None: ..."
    )
    answer = run("schedule", "add", "a", "send", "to=x", *EVERY, "--app", "shop:app", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["definition"]["template"]["queue"] == "mail"


def test_without_a_database_nothing_is_made(tmp_path: Path) -> None:
    answer = run("schedule", "add", "a", "send", "to=x", *EVERY)
    assert answer.code == 1
    assert "there is no database" in answer.err
    assert list(tmp_path.iterdir()) == []
