"""duly schedule preview."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.driving import Answer, run

NEW_YORK = ("--tz", "America/New_York")


def preview(*arguments: object) -> Answer:
    answer = run("schedule", "preview", *arguments)
    assert answer.code == 0, answer.err
    return answer


def test_local_time_utc_distance_and_notes_without_a_database(tmp_path: Path) -> None:
    answer = preview("30 2 * * *", *NEW_YORK, "--from", "2027-03-13", "--count", 4)
    assert answer.lines == [
        "America/New_York             UTC                  DISTANCE  NOTES",
        "Sat 2027-03-13 02:30 -05:00  2027-03-13 07:30          1 d",
        "Sun 2027-03-14 03:00 -04:00  2027-03-14 07:00  23 h 30 min  "
        "02:30 does not exist on this day: fires at 03:00",
        "Mon 2027-03-15 02:30 -04:00  2027-03-15 06:30  23 h 30 min",
        "Tue 2027-03-16 02:30 -04:00  2027-03-16 06:30          1 d",
    ]
    assert answer.err == "every day at 02:30 America/New_York\n\n"
    assert list(tmp_path.iterdir()) == []


def test_json() -> None:
    answer = preview(
        "30 2 * * *", *NEW_YORK, "--from", "2027-03-14T00:00-05:00", "--count", 1, "--json"
    ).json
    assert set(answer) == {"description", "zone", "recurrence", "fires"}
    assert answer["description"] == "every day at 02:30 America/New_York"
    assert answer["fires"] == [
        {
            "utc": "2027-03-14T07:00:00Z",
            "local": "2027-03-14T03:00:00-04:00",
            "since_previous": 84_600,
            "notes": ["02:30 does not exist on this day: fires at 03:00"],
        }
    ]


def test_the_first_instant_is_included() -> None:
    answer = preview("0 0 * * *", "--from", "2027-01-01", "--count", 1)
    assert answer.lines == ["UTC                   DISTANCE", "Fri 2027-01-01 00:00       1 d"]


def test_a_day_that_has_no_midnight() -> None:
    answer = preview(
        *("0 0 * * *", "--tz", "America/Santiago", "--from", "2027-09-05", "--count", 1)
    )
    assert answer.lines[1].startswith("Sun 2027-09-05 01:00 -03:00")


def test_every() -> None:
    answer = preview("--every", "90s", "--from", "2027-01-01", "--count", 3)
    assert [line[15:23] for line in answer.lines[1:]] == ["00:00:00", "00:01:30", "00:03:00"]


def test_several_rules_with_limits() -> None:
    answer = preview(
        *("0 9 * * *", "--at", "2027-05-03T10:00", "--tz", "Europe/Berlin"),
        *("--start", "2027-05-01", "--end", "2027-05-04", "--exclude", "2027-05-02"),
        *("--exclude-cron", "0 9 4 * *", "--max-fires", 3, "--from", "2027-01-01"),
    )
    assert [line[4:20] for line in answer.lines[1:]] == [
        "2027-05-01 09:00",
        "2027-05-03 09:00",
        "2027-05-03 10:00",
    ]
    assert answer.err.endswith("It never fires after that.\n")


def test_gap_and_fold() -> None:
    skipped = preview(
        *("30 2 * * *", *NEW_YORK, "--gap", "skip", "--from", "2027-03-14", "--count", 1, "--json")
    ).json
    assert skipped["fires"][0]["local"] == "2027-03-15T02:30:00-04:00"
    second = preview(
        *("30 1 * * *", *NEW_YORK, "--fold", "second", "--from", "2027-11-07", "--count", 1),
        "--json",
    ).json
    assert second["fires"][0]["local"] == "2027-11-07T01:30:00-05:00"


def test_from_the_beginning_of_time() -> None:
    assert len(preview("0 0 1 1 *", "--from", "0001-01-01", "--count", 2).lines) == 3


def test_nothing_to_come() -> None:
    answer = preview("--at", "2020-01-01T00:00Z")
    assert answer.out == ""
    assert answer.err.endswith("It does not fire from then on.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["61 * * * *"], "minute '61' (field 1, column 1): 61 is not between 0 and 59"),
        (["0 0 30 2 *"], "it can never fire: no day in Feb matches"),
        (["0 2 * *"], "4 fields, 5 are needed"),
        (["0", "2", "*", "*", "*"], "in quotes"),
        ([], "say when"),
        (["0 2 * * *", "--tz", "Europe/Berln"], "unknown time zone 'Europe/Berln'"),
        (["--every", "0.5s"], "--every: '0.5s' is not in whole seconds"),
        (["--every", "often"], "--every: 'often' is not a duration"),
        (["--every", "5m", "--gap", "skip"], "about cron expressions"),
        (["--at", "tomorrow"], "--at: 'tomorrow' is not a time"),
        (["--at", "0001-01-01T00:00+14:00"], "is not a time"),
        (["--every", "5m", "--end", "9999-12-31"], "is not a time"),
        (["--every", "5m", "--exclude", "christmas"], "--exclude: 'christmas' is not a date"),
        (["0 2 * * *", "--count", "0"], "--count"),
        (
            ["--at", "2027-03-14T02:30", *NEW_YORK],
            "is skipped on the clocks of America/New_York: the next time is "
            "2027-03-14T03:00:00-04:00",
        ),
        (
            ["--at", "2027-11-07T01:30", *NEW_YORK],
            "happens twice on the clocks of America/New_York: give 2027-11-07T01:30:00-04:00 or "
            "2027-11-07T01:30:00-05:00",
        ),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], said: str) -> None:
    answer = run("schedule", "preview", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
