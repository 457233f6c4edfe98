"""DST by example: what cron schedules do at well-known transitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.policy.recurrence import Cron
from duly.policy.recurrence.wall_clock import Fold, Gap
from tests.support.brute_force_cron import Walk, transitions

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def fires(cron: Cron, after: str, until: str) -> list[str]:
    """All fires with after < fire <= until, as day and time in UTC."""
    position, end = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (after, until))
    assert cron.count_between(position, end) == len(list(walk(cron, position, end)))
    return [f"{fire:%m-%d %H:%M}" for fire in walk(cron, position, end)]


def walk(cron: Cron, position: datetime, end: datetime) -> list[datetime]:
    found = []
    while (fire := cron.next_after(position)) is not None and fire <= end:
        assert fire > position
        assert cron.last_at_or_before(fire) == fire
        found.append(fire)
        position = fire
    return found


BERLIN = "Europe/Berlin"
SPRING = ("2027-03-27T12:00", "2027-03-29T12:00")  # 02:00 becomes 03:00 on the 28th, at 01:00 UTC
AUTUMN = ("2027-10-30T12:00", "2027-11-01T12:00")  # 03:00 becomes 02:00 on the 31st, at 01:00 UTC


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["03-28 01:00", "03-29 00:30"]),
        ("0 2 * * *", ["03-28 01:00", "03-29 00:00"]),
        ("0 3 * * *", ["03-28 01:00", "03-29 01:00"]),
        ("59 1 * * *", ["03-28 00:59", "03-28 23:59"]),
        # Two nominal times in one gap are one tick.
        ("15,45 2 * * *", ["03-28 01:00", "03-29 00:15", "03-29 00:45"]),
        # The gap's end is itself nominal: still one tick.
        ("30 2-3 * * *", ["03-28 01:00", "03-28 01:30", "03-29 00:30", "03-29 01:30"]),
        ("0 2,3 * * *", ["03-28 01:00", "03-29 00:00", "03-29 01:00"]),
        ("0 2 28 3 *", ["03-28 01:00"]),
        # With a star the wall is followed: nothing is invented.
        ("*/30 2 * * *", ["03-29 00:00", "03-29 00:30"]),
        ("30 */2 28 3 *", ["03-27 23:30", *[f"03-28 {h:02}:30" for h in range(2, 22, 2)]]),
    ],
)
def test_gap_in_berlin(expression: str, expected: list[str]) -> None:
    assert fires(Cron(expression, BERLIN), *SPRING) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["10-31 00:30", "11-01 01:30"]),
        ("0 2 * * *", ["10-31 00:00", "11-01 01:00"]),
        ("0 3 * * *", ["10-31 02:00", "11-01 02:00"]),
        ("0,30 2 31 10 *", ["10-31 00:00", "10-31 00:30"]),
        (
            "*/30 2 * * *",
            [
                "10-31 00:00",
                "10-31 00:30",
                "10-31 01:00",
                "10-31 01:30",
                "11-01 01:00",
                "11-01 01:30",
            ],
        ),
    ],
)
def test_overlap_in_berlin(expression: str, expected: list[str]) -> None:
    assert fires(Cron(expression, BERLIN), *AUTUMN) == expected


def test_an_hourly_schedule_serves_each_hour_of_short_and_long_days() -> None:
    assert len(fires(Cron("15 * 28 3 *", BERLIN), *SPRING)) == 23
    assert len(fires(Cron("15 * 31 10 *", BERLIN), *AUTUMN)) == 25


@pytest.mark.parametrize(
    ("expression", "gap", "fold", "in_spring", "in_autumn"),
    [
        ("30 2 * * *", "skip", None, ["03-29 00:30"], ["10-31 00:30", "11-01 01:30"]),
        (
            "30 2 * * *",
            None,
            "second",
            ["03-28 01:00", "03-29 00:30"],
            ["10-31 01:30", "11-01 01:30"],
        ),
        (
            "30 2 * * *",
            "next",
            "both",
            ["03-28 01:00", "03-29 00:30"],
            ["10-31 00:30", "10-31 01:30", "11-01 01:30"],
        ),
        ("*/30 2 28,31 * *", "next", "first", ["03-28 01:00"], ["10-31 00:00", "10-31 00:30"]),
        ("*/30 2 28,31 * *", None, "second", [], ["10-31 01:00", "10-31 01:30"]),
    ],
)
def test_policies_override_the_rule(
    expression: str, gap: Gap | None, fold: Fold | None, in_spring: list[str], in_autumn: list[str]
) -> None:
    cron = Cron(expression, BERLIN, gap, fold)
    assert fires(cron, *SPRING) == in_spring
    assert fires(cron, *AUTUMN) == in_autumn


@pytest.mark.parametrize(
    ("zone", "expression", "after", "until", "expected"),
    [
        # The case that sends cronsim into an endless loop: 03:45 becomes 02:45 at 14:00 UTC.
        (
            "Pacific/Chatham",
            "*/15 3 * * *",
            "2027-04-03T12:00",
            "2027-04-04T12:00",
            [
                "04-03 13:15",
                "04-03 13:30",
                "04-03 13:45",
                "04-03 14:15",
                "04-03 14:30",
                "04-03 14:45",
                "04-03 15:00",
            ],
        ),
        ("Pacific/Chatham", "0 3 * * *", "2027-04-03T12:00", "2027-04-04T12:00", ["04-03 13:15"]),
        ("Pacific/Chatham", "0 3 * * *", "2027-09-25T12:00", "2027-09-26T12:00", ["09-25 14:00"]),
        # Half an hour: 02:00 becomes 01:30 in April and 02:30 in October.
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2027-04-03T12:00",
            "2027-04-04T18:00",
            ["04-03 14:45", "04-04 15:15"],
        ),
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2027-10-02T12:00",
            "2027-10-03T18:00",
            ["10-02 15:30", "10-03 15:15"],
        ),
        (
            "Australia/Lord_Howe",
            "*/15 1 * * *",
            "2027-04-03T12:00",
            "2027-04-04T12:00",
            [
                "04-03 14:00",
                "04-03 14:15",
                "04-03 14:30",
                "04-03 14:45",
                "04-03 15:00",
                "04-03 15:15",
            ],
        ),
        # Two hours: 01:00 becomes 03:00 in March, and back in October.
        (
            "Antarctica/Troll",
            "30 1,2 * * *",
            "2027-03-27T12:00",
            "2027-03-29T12:00",
            ["03-28 01:00", "03-28 23:30", "03-29 00:30"],
        ),
        (
            "Antarctica/Troll",
            "30 1,2 * * *",
            "2027-10-30T12:00",
            "2027-10-31T12:00",
            ["10-30 23:30", "10-31 00:30"],
        ),
        # Midnight does not exist: the last Friday of April in Cairo, early September in Santiago.
        (
            "Africa/Cairo",
            "0 0 * * *",
            "2027-04-29T12:00",
            "2027-04-30T23:00",
            ["04-29 22:00", "04-30 21:00"],
        ),
        ("Africa/Cairo", "30 23 * * *", "2027-10-28T12:00", "2027-10-29T12:00", ["10-28 20:30"]),
        ("America/Santiago", "0 0 * * *", "2027-09-04T12:00", "2027-09-05T12:00", ["09-05 04:00"]),
        (
            "America/Santiago",
            "30 23 * * *",
            "2027-04-03T12:00",
            "2027-04-04T12:00",
            ["04-04 02:30"],
        ),
        # A whole day is missing: Samoa went from 29 to 31 December 2011 at 10:00 UTC.
        ("Pacific/Apia", "0 12 30 12 *", "2011-01-01T00:00", "2012-01-01T00:00", ["12-30 10:00"]),
        (
            "Pacific/Apia",
            "0 12 * * *",
            "2011-12-29T12:00",
            "2011-12-31T00:00",
            ["12-29 22:00", "12-30 10:00", "12-30 22:00"],
        ),
        ("Pacific/Apia", "0 0 * * *", "2011-12-29T12:00", "2011-12-30T12:00", ["12-30 10:00"]),
        (
            "Pacific/Apia",
            "0 */6 * * *",
            "2011-12-29T20:00",
            "2011-12-31T00:00",
            ["12-29 22:00", "12-30 04:00", "12-30 10:00", "12-30 16:00", "12-30 22:00"],
        ),
    ],
)
def test_special_zones(
    zone: str, expression: str, after: str, until: str, expected: list[str]
) -> None:
    assert fires(Cron(expression, zone), after, until) == expected


@pytest.mark.parametrize(
    "name",
    [
        "Pacific/Chatham",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Africa/Casablanca",
        "Africa/Cairo",
        "America/Santiago",
    ],
)
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "*/15 3 * * *", "0 0 * * *", "15 * * * *", "30 23,0,1 * * *"]
)
def test_special_zones_against_brute_force(name: str, expression: str) -> None:
    zone = ZoneInfo(name)
    for transition in transitions(zone, 2026, 2028, timedelta(days=5)):
        start, end = transition - timedelta(hours=20), transition + timedelta(hours=20)
        expected = Walk(zone, start, end, MINUTE, margin=timedelta(hours=4)).fires(expression)
        assert walk(Cron(expression, name), start - MINUTE, end) == expected


def test_apia_minute_by_minute() -> None:
    start, end = (datetime(2011, 12, day, tzinfo=UTC) for day in (28, 31))
    walked = Walk(ZoneInfo("Pacific/Apia"), start, end, MINUTE)
    for expression in ("30 2 * * *", "*/20 9-15 * * *", "0 8 30 12 *", "0 8 * * fri", "7 * 30 * *"):
        cron = Cron(expression, "Pacific/Apia")
        assert walk(cron, start - MINUTE, end) == walked.fires(expression)


@pytest.mark.parametrize("fold", ["first", "second", "both"])
def test_an_overlap_of_almost_a_day(fold: Fold) -> None:
    # Kwajalein went from UTC+11 to UTC-12 on 30 September 1969, at 13:00 UTC.
    start, end = (datetime(1969, 9, 29, tzinfo=UTC), datetime(1969, 10, 4, tzinfo=UTC))
    walked = Walk(ZoneInfo("Pacific/Kwajalein"), start, end, MINUTE)
    for expression in ("0 */5 * * *", "30 1,13,23 * * *", "0 12 30 9 *"):
        cron = Cron(expression, "Pacific/Kwajalein", fold=fold)
        expected = walked.fires(expression, fold=fold)
        assert walk(cron, start - MINUTE, end) == expected
        for number in range(5):
            day = start + timedelta(days=number)
            seconds = [(fire - day) / SECOND for fire in expected]
            bits = sum(1 << int(second) for second in seconds if 0 <= second < 86_400)
            assert cron.mask_of_day(day) == bits
            assert cron.count_between(day, end) == sum(fire > day for fire in expected)


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/15 2 * * *", "0 * * * *", "0-59 2 * * *"])
def test_strictly_after_from_inside_a_gap_and_a_repeated_hour(expression: str) -> None:
    zone = ZoneInfo(BERLIN)
    cron = Cron(expression, BERLIN)
    walks = [
        Walk(zone, moment - timedelta(days=2), moment + timedelta(days=2), MINUTE)
        for moment in (datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC))
    ]
    for walked, day in zip(walks, ((3, 28), (10, 31)), strict=True):
        expected = walked.fires(expression)
        for fold in (0, 1):
            for minute in range(0, 60, 7):
                # In March this local time does not exist, in October it exists twice.
                local = datetime(2027, *day, 2, minute, 3, 5, tzinfo=zone, fold=fold)
                instant = local.astimezone(UTC)
                upcoming = cron.next_after(local)
                assert upcoming is not None
                assert upcoming > instant
                assert upcoming == next(fire for fire in expected if fire > instant)


def test_from_a_fire_inside_the_repeated_hour_the_next_is_not_the_same() -> None:
    cron = Cron("30 2 * * *", BERLIN)
    first_pass = datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    next_day = datetime(2027, 11, 1, 1, 30, tzinfo=UTC)
    assert cron.next_after(first_pass) == next_day
    assert cron.next_after(first_pass + timedelta(hours=1)) == next_day
    assert cron.last_at_or_before(first_pass + timedelta(hours=1)) == first_pass


def test_an_hour_of_every_second_in_a_gap_is_one_tick() -> None:
    # The seconds field does not make a schedule follow the wall; minutes and hours do.
    cron = Cron("* 30 2 * * *", BERLIN)
    after, until = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in SPRING)
    assert cron.count_between(after, until) == 61
    assert cron.next_after(after) == datetime(2027, 3, 28, 1, tzinfo=UTC)
